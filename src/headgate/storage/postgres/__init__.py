"""What is kept in PostgreSQL; its driver is an extra, and imported only by those who use it."""
