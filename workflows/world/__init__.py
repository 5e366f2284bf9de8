"""The toy world: sorting numbers, a vocabulary of number tokens, and a supervised warm start."""
