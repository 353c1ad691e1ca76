"""The labelled sets: directories with `tools.jsonl` and `queries.jsonl`, and all of them as one catalog."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headgate.catalog.evaluation.labelled_set import LabelledQuery, read_labelled_queries, read_labelled_tools
from headgate.catalog.search.tool_document import ToolDocument

SAMPLE: Final = Path(__file__).resolve().parents[2] / "tests" / "data" / "retrieval"
POOL: Final = "all in one pool"
# Of each set in the pool and for the gateway: a large set would decide alone, and take minutes.
FEW_QUESTIONS: Final = 150
# Questions of these share few words with the tools they ask for, and those many.
GROUPS: Final = {
    "low overlap": ("mcpproxy_golden_v1", "metatool_single"),
    "high overlap": ("seal_tools",),
}


class Labelled(msgspec.Struct, frozen=True):
    """One set; a corpus without questions only serves to be mistaken for something else."""

    name: str
    documents: list[ToolDocument]
    questions: list[LabelledQuery]

    def few(self) -> list[LabelledQuery]:
        """Some of the questions, from the whole length of the set."""
        return self.questions[:: max(1, len(self.questions) // FEW_QUESTIONS)]


def data_directory() -> Path:
    """Where the sets are: HEADGATE_RETRIEVAL_DATA, or the small one of the tests."""
    return Path(os.environ.get("HEADGATE_RETRIEVAL_DATA") or SAMPLE)


def read_sets(root: Path, most: int | None = None) -> Iterator[Labelled]:
    """Every set below the directory by name, each with at most so many questions."""
    for directory in sorted(path.parent for path in root.glob("*/tools.jsonl")):
        documents = read_labelled_tools((directory / "tools.jsonl").read_bytes().splitlines())
        questions = read_labelled_queries((directory / "queries.jsonl").read_bytes().splitlines())
        # What a set keeps for the end is not looked at.
        questions = [one for one in questions if one.split != "test"]
        yield Labelled(directory.name, documents, questions[:most])


def pool_of(sets: Sequence[Labelled]) -> Labelled:
    """All tools of all sets in one catalog, and of each set some questions."""
    documents = [
        msgspec.structs.replace(document, key=(document.key[0], f"{one.name}:{document.key[1]}"))
        for one in sets
        for document in one.documents
    ]
    questions = [
        LabelledQuery(
            question.text,
            tuple(frozenset(f"{one.name}:{tool}" for tool in group) for group in question.groups),
        )
        for one in sets
        for question in one.few()
    ]
    return Labelled(POOL, documents, questions)


def of_size(documents: Sequence[ToolDocument], size: int) -> list[ToolDocument]:
    """So many of them from the whole length; where there are too few, servers come again under new names."""
    if size <= len(documents):
        return [documents[number * len(documents) // size] for number in range(size)]
    return [
        msgspec.structs.replace(one, key=(f"{one.key[0]} {again}" if again else one.key[0], one.key[1]))
        for again, one in (
            (number // len(documents), documents[number % len(documents)]) for number in range(size)
        )
    ]
