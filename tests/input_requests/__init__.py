"""What an upstream asks while it works, and how the client is asked."""
