"""Tests of the knowledge tools."""
