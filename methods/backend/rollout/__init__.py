"""Sampling responses: engines, the age of their weights, and what they hand to the trainer."""
