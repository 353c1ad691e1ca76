"""Tests of what the conformance run decides by itself."""
