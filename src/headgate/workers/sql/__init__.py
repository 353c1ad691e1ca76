"""sql package."""
