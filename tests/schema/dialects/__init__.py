"""Tests of the dialects that schemas are served in."""
