"""Tests of what is found in text by rules."""
