"""Counts the tokens of a text as models with the vocabulary o200k_base do."""
