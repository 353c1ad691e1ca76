"""Tests of text analysis and ranking."""
