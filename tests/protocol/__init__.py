"""Messages as bytes: what is refused, and that nothing else is lost."""
