"""Trainer against rollout before any update, over engines and precisions: `python -m workflows mismatch`."""
