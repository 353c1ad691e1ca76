"""Text analysis and ranking, used by the catalog, the results and the document server.

In: text, terms and scores. Out: words, stems, tokens, BM25 scores, fused rankings. Pure functions and
in-memory indexes without I/O. Imports `protocol` and `domain` only.
"""
