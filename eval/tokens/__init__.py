"""The token study: do a criterion's kept tokens move away from the rollout policy less often than another's?

Definitions and denominators: arXiv 2607.10848, 4.2 [S]. The seed (one run) is the unit of every interval and test.
"""
