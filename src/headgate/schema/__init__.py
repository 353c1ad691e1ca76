"""JSON Schema algorithms on the schemas of tools.

In: schemas and definitions as decoded JSON or bytes. Out: resolved references, parts at a path, reduced
schemas, provider dialects, and rules for truncated results. Imports `search`, `protocol` and `domain` only.
"""
