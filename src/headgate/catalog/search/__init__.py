"""Finds the tools that a request asks for, by the words that describe them."""
