"""Verdicts on the papers' claims about training: outcomes of runs, intervals, and the words that follow.

The rules are in docs/verdicts.md.

python -m eval.claims --results results/toy --claims eval/claims/claims.yaml --output DIR
"""
