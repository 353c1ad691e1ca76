"""Clients without an SDK: they send exact bytes, leave in the middle, and read what a library would hide."""
