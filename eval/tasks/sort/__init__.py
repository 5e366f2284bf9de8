"""The toy world's sorting problems as an lm-eval task (`sort.yaml`, `utils.py`)."""
