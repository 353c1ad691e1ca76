"""Counts the tokens of a text as models with the vocabulary o200k_base do."""

from headgate.catalog.tokens.counter import count_tokens

__all__ = ["count_tokens"]
