"""Does a method keep its contract? Checks on a small synthetic batch, before any job."""
