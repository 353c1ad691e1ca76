"""Evaluates how well search finds the tools of a catalog, on labelled or on synthetic queries."""
