"""The sets of section `knowledge`: documents, questions, and which documents answer them.

See bench/data/knowledge/README.md for where they come from.
"""

import lzma
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from bench.retrieval.sets import Labelled
from headgate.knowledge.search.query import LONGEST_QUERY

DATA: Final = Path(__file__).resolve().parents[1] / "data" / "knowledge"
MANUAL: Final = "postgresql"
NAMES: Final = (MANUAL, "squad", "papers")


class Document(msgspec.Struct, frozen=True):
    """A text that is ingested as a file of its own."""

    id: str
    title: str
    text: str

    @property
    def file(self) -> str:
        """What its file is called."""
        return f"{self.id.replace('/', '_')}.md"

    @property
    def markdown(self) -> str:
        """As a file has it."""
        return self.text if self.text.startswith("# ") or not self.title else f"# {self.title}\n\n{self.text}"


class Asked(msgspec.Struct, frozen=True):
    """A question, and how well each document answers that does: 2 is better than 1."""

    query: str
    relevant: dict[str, int]


class Knowledge(msgspec.Struct, frozen=True):
    """One set."""

    name: str
    documents: list[Document]
    questions: list[Asked]


@lru_cache(maxsize=len(NAMES))
def read(name: str) -> Knowledge:
    """A set by its name."""
    directory = DATA / name
    documents = lzma.decompress((directory / "documents.jsonl.xz").read_bytes()).splitlines()
    return Knowledge(
        name,
        [msgspec.json.decode(line, type=Document) for line in documents],
        [
            msgspec.json.decode(line, type=Asked)
            for line in (directory / "queries.jsonl").read_bytes().splitlines()
        ],
    )


def of_tools(labelled: Labelled) -> Knowledge:
    """Tools as documents: what a description says of what it is for, asked as people do."""
    documents = [
        Document(one.key[1], one.key[1], one.description) for one in labelled.documents if one.description
    ]
    known = {one.id for one in documents}
    questions = [
        Asked(one.text, dict.fromkeys(set().union(*one.groups) & known, 1))
        for one in labelled.few()
        # A longer one is refused.
        if len(one.text) <= LONGEST_QUERY
    ]
    return Knowledge(labelled.name, documents, [one for one in questions if one.relevant])


def texts() -> list[str]:
    """All that is written in the sets."""
    return [one.text for name in NAMES for one in read(name).documents]
