"""Connections to PostgreSQL; the driver is an optional dependency, imported by users of this package alone.

Imports `domain`.
"""
