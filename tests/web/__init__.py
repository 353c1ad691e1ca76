"""What the person who runs the gateway sees."""
