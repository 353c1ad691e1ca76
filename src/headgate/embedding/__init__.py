"""Embedders: an offline model, a Hugging Face model or an OpenAI-compatible endpoint; and an index of tools.

In come texts; out go unit vectors of little-endian float32. It may import catalog, search and domain; the
libraries of an embedder are imported when it is chosen.
"""
