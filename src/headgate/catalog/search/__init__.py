"""Finds the tools that a request asks for, by the words that describe them."""

from headgate.catalog.search.document import Document, Key, document_of
from headgate.catalog.search.hit import Contribution, Explanation, Hit
from headgate.catalog.search.index import FLOOR, LexicalIndex

__all__ = ["FLOOR", "Contribution", "Document", "Explanation", "Hit", "Key", "LexicalIndex", "document_of"]
