"""What section `retrieval` asks of a search engine."""

from collections.abc import Sequence
from statistics import quantiles
from typing import Protocol

import msgspec

from headgate.catalog.search.tool_document import ToolDocument, ToolKey


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine found, query by query, and the CPU time that it took."""

    found: list[list[ToolKey]]
    index_seconds: float | None = None
    # None where the vectors of the questions came from a file: that says nothing about a search.
    seconds: list[float] | None = None


class Engine(Protocol):
    """Indexes documents, once, and answers queries."""

    name: str
    # Whether it has nothing but words to go by.
    lexical: bool

    def answer(self, documents: Sequence[ToolDocument], queries: Sequence[str], limit: int) -> Answers:
        """The best documents of each query, best first."""


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th, in milliseconds."""
    if len(seconds) < 2:
        return (seconds[0] * 1000,) * 2 if seconds else (0.0, 0.0)
    cuts = quantiles(seconds, n=100, method="inclusive")
    return cuts[49] * 1000, cuts[98] * 1000
