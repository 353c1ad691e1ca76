"""Sentences about what Headgate does, checked with real processes and sockets."""
