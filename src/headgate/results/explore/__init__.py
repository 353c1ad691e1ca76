"""explore package."""
