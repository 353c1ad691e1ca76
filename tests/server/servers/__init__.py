"""Servers that run as children of a gate."""
