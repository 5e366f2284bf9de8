"""The figures of the token study, one file per figure."""
