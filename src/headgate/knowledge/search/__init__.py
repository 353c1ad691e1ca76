"""Hybrid search: vectors and BM25 fused, filtered, boosted and cached.

In come queries; out go rankings of chunks with explanations and notices. It reads stores and embedders
through Protocols, does no I/O, and may import the data model and search.
"""
