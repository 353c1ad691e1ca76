"""Frozen values and the error tree: what the rest of the gate talks about."""
