"""Tests of what readers meet: README, documentation pages, the commands in them, and the site."""
