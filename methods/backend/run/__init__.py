"""A run on disk: its folder, restart points, metrics, and what is checked before it starts."""
