"""Tests of the search by words."""
