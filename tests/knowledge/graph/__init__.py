"""Tests of the entity graph of documents."""
