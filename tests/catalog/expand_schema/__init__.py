"""expandSchema: what it gives back, by which paths, and what it refuses."""
