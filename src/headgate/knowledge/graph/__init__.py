"""The graph of entities and relationships: claims, their resolution and merging, lookup and traversal.

In come claims of documents and imports; out go entities and relationships. It does no I/O; it may import the
data model, the Protocols and search.
"""
