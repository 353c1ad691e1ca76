"""What is made of large results."""
