"""Tells what a result consists of."""
