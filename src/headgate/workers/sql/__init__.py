"""SQL over a stored result: table detection, an in-memory SQLite sandbox, and checks of numeric text."""
