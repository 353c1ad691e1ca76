"""files package."""
