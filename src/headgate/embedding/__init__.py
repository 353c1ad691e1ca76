"""Texts become vectors: by an offline model, an endpoint or a model of Hugging Face; and their index."""
