"""Frozen values and the error tree, shared by all packages.

In and out: plain values; no I/O, no event loop. Imports nothing of Headgate and no library but msgspec.
"""
