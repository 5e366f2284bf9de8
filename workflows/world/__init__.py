"""The toy world: sorting numbers, a vocabulary of number tokens, and a supervised warm start."""

# From the project's root, as a configuration names it.
REWARD = "workflows/world/reward.py"
