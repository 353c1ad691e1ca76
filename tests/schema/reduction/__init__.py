"""Tests of the small forms of tools."""
