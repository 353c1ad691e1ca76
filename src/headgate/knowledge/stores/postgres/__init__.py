"""The team's documents and their graph in PostgreSQL with pgvector."""
