"""One file per method. Every module here is imported on start; adding a file registers a method."""
