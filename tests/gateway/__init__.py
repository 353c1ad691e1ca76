"""Tests of the path of calls and other requests."""
