"""Tests of the embedders and of the index of vectors."""
