"""Low precision in floating point, as trainer, rollout and scoring imitate it."""
