"""The search engines that section `retrieval` measures, each behind the same two methods."""

import importlib
import importlib.util
import re
import sqlite3
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final, Protocol

from headgate.catalog.search import FLOOR, Document, Key, LexicalIndex

_WORD: Final = re.compile(r"\w+")


class Engine(Protocol):
    """Holds documents and searches them."""

    def search(self, query: str, limit: int) -> list[Key]:
        """The best documents, best first."""


Make = Callable[[Sequence[Document]], Engine]


class Headgate:
    """The engine of the base install."""

    def __init__(self, documents: Sequence[Document], floor: float = FLOOR) -> None:
        self.index = LexicalIndex()
        self._floor = floor
        by_server = sorted(documents, key=lambda document: document.key[0])
        for server, own in groupby(by_server, key=lambda document: document.key[0]):
            self.index.put(server, list(own))

    def search(self, query: str, limit: int) -> list[Key]:
        """The best documents, best first."""
        return [hit.key for hit in self.index.search(query, limit, floor=self._floor)]


class HeadgateAlwaysAnswering(Headgate):
    """The same without the gate that answers nothing."""

    def __init__(self, documents: Sequence[Document]) -> None:
        super().__init__(documents, 0.0)


class Fts5:
    """The full-text search of SQLite with its stemmer, all texts as one."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._keys = [document.key for document in documents]
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute("CREATE VIRTUAL TABLE tools USING fts5(text, tokenize='porter unicode61')")
        self._connection.executemany(
            "INSERT INTO tools(rowid, text) VALUES (?, ?)",
            [(number, _text(document)) for number, document in enumerate(documents, 1)],
        )

    def search(self, query: str, limit: int) -> list[Key]:
        """The best documents, best first."""
        words = " OR ".join(f'"{word}"' for word in dict.fromkeys(_WORD.findall(query)))
        if not words:
            return []
        rows = self._connection.execute(
            "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools), rowid LIMIT ?", (words, limit)
        )
        return [self._keys[number - 1] for (number,) in rows]


class Bm25s:
    """The library bm25s with its English stop words, all texts as one."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._library: Any = importlib.import_module("bm25s")
        self._keys = [document.key for document in documents]
        self._index = self._library.BM25()
        self._index.index(self._tokens([_text(document) for document in documents]), show_progress=False)

    def search(self, query: str, limit: int) -> list[Key]:
        """The best documents, best first."""
        limit = min(limit, len(self._keys))
        found, scores = self._index.retrieve(self._tokens([query]), k=limit, show_progress=False)
        return [self._keys[number] for number, score in zip(found[0], scores[0], strict=True) if score > 0]

    def _tokens(self, texts: list[str]) -> Any:
        return self._library.tokenize(texts, stopwords="en", show_progress=False)


def _text(document: Document) -> str:
    """Everything that the library engines get to see; names cut into words as a kindness."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^0-9A-Za-z]+", " ", document.name)
    parts = (name, document.key[0], document.description, document.parameters, document.parameter_texts)
    return " ".join(parts)


def engines() -> dict[str, Make]:
    """Those that can run here, ours first."""
    found: dict[str, Make] = {
        "headgate": Headgate,
        "headgate, always answering": HeadgateAlwaysAnswering,
        "SQLite FTS5": Fts5,
    }
    if importlib.util.find_spec("bm25s"):
        found["bm25s"] = Bm25s
    return found
