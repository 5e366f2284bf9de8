"""Small programs that rules start."""
