"""Ingestion: brings a store up to date with a library of files.

In come parsed documents; chunks, vectors, entities and relationships go into a store. It reads files and
writes stores through Protocols, and may import the data model and `knowledge.search`.
"""
