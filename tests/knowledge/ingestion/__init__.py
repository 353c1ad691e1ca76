"""Tests of the ingestion of documents."""
