"""The SQLite engine of the knowledge store: statements, migrations, full text and vectors in one file."""
