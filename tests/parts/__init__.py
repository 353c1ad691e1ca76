"""Files for npm and pip that pin the real servers and clients, and a test of what they install."""
