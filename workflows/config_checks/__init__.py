"""What is checked of a configuration before the grid is made of it: the file, its values, sweeps, a user's own task."""
