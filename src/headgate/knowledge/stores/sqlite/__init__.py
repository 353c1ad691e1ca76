"""The documents and the graph in one SQLite file."""
