"""Tests of the commands of the document server."""
