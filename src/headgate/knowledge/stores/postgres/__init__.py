"""The PostgreSQL engine of the knowledge store: statements, migrations, full text and pgvector."""
