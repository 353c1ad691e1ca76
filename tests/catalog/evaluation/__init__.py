"""Tests of what says how well search finds."""
