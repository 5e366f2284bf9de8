"""Mutation testing of methods/: `python -m workflows.tools.mutation` (or `make mutate SAMPLE=200 SEED=0`)."""
