"""Tests of how the edges are joined."""
