"""Documents in files."""
