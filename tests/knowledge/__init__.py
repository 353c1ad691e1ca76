"""Tests of `headgate.knowledge`."""
