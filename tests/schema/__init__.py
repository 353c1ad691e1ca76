"""Tests of JSON Schema work."""
