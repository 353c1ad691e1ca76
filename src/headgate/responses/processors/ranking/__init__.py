"""Finds what comes nearest to some words, best first."""
