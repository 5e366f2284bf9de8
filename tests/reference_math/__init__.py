"""Formulas that only tests use, to hold the losses against."""
