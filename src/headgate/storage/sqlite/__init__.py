"""sqlite package."""
