"""What a client is shown of a result."""
