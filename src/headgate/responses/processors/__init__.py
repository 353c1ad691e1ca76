"""The ways to look at a stored result, each a processor of its own."""
