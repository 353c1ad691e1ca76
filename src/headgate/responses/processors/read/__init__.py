"""Pages through a result."""
