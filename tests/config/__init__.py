"""What the operator writes, and what the gateway makes of it."""
