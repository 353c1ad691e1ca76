"""Extraction by rules: the default EntityExtractor.

In come the chunks of one document and the known entities; out go entities with mentions, and relationships.
It does no I/O and may import the data model, `knowledge.graph` and search.
"""
