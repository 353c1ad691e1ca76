"""Finds lines, elements, passages and names by a pattern."""
