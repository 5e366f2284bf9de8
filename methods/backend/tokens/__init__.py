"""Token records: what the criteria said before an optimiser step, and what the step then did at the same states."""
