"""The mathematics of a policy loss for LLM reinforcement learning: what a token's gradient is multiplied with.

This room knows torch only. `methods.catalogue` holds one file per method, `methods.backend` is the one place that
knows verl, and everything else here is a pure function of log-probabilities.
"""
