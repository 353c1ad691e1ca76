"""Whether slim texts still tell tools apart: search over them beside search over the whole definitions."""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Final

import msgspec

from bench.retrieval.engine import Engine
from bench.retrieval.lexical import Words
from bench.retrieval.semantic import BOTH, WORDS, Hybrid
from bench.retrieval.sets import data_directory
from headgate.catalog.evaluation.labelled_set import DEPTH, LabelledQuery, LabelledSet, read_labelled_set
from headgate.catalog.evaluation.labelled_set import measure as judge
from headgate.catalog.search.tool_document import ToolDocument, document_of
from headgate.catalog.tool_forms import find_shared_text, make_slim_forms
from headgate.domain.item import Item

# Vectors of thousands of tools take too long.
_FEW_TOOLS: Final = 600
_QUICK_QUESTIONS: Final = 40
_MOST_QUESTIONS: Final = 500
_FEW_QUESTIONS: Final = 150


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """R@5 on one labelled set, by words or by both."""

    labelled: str
    way: str
    tools: int
    questions: int
    # Tools of which mode slim says less, and how many bytes are left of all.
    shortened: int
    bytes_left: float
    full: float
    slim: float

    @property
    def lost(self) -> float:
        """What slim texts find less."""
        return self.full - self.slim


class NothingShorter(Exception):
    """No tool of a set became shorter, so that it would be compared with itself."""


def compared(*, quick: bool) -> list[Compared]:
    """Every set that there is, by words; those of few tools by both, too. Raises NothingShorter."""
    found = []
    for directory in sorted(path.parent for path in data_directory().glob("*/tools.jsonl")):
        if not (directory / "queries.jsonl").stat().st_size:
            # Nothing is asked of it.
            continue
        labelled = _read(directory)
        most = _QUICK_QUESTIONS if quick else _MOST_QUESTIONS
        found.append(_compare(directory.name, labelled, WORDS, Words(), most))
        if not quick and len(labelled.items) <= _FEW_TOOLS:
            found.append(_compare(directory.name, labelled, BOTH, Hybrid(), _FEW_QUESTIONS))
    return found


def lost_on_average(found: Sequence[Compared], way: str) -> float:
    """The mean of sets of what is lost."""
    return mean(one.lost for one in found if one.way == way)


def _read(directory: Path) -> LabelledSet:
    tools, questions = (
        (directory / name).read_bytes().splitlines() for name in ("tools.jsonl", "queries.jsonl")
    )
    return read_labelled_set(tools, questions)


def _compare(name: str, labelled: LabelledSet, way: str, engine: Engine, most: int) -> Compared:
    print(f"bench: listing, slim texts of {name}, {way}", file=sys.stderr, flush=True)
    questions = labelled.questions[:: max(1, len(labelled.questions) // most)]
    whole = [_defined(item) for item in labelled.items]
    short = _in_few_words(whole)
    shortened = sum(one.definition != other.definition for one, other in zip(whole, short, strict=True))
    if not shortened:
        raise NothingShorter(name)
    return Compared(
        labelled=name,
        way=way,
        tools=len(labelled.items),
        questions=len(questions),
        shortened=shortened,
        bytes_left=_size(short) / _size(whole),
        full=_recall_at_5(engine, _documents(labelled, whole), questions),
        slim=_recall_at_5(engine, _documents(labelled, short), questions),
    )


def _defined(item: Item) -> Item:
    """The tool as a server would list it: sets leave out its name, and some what its arguments are."""
    tool = msgspec.json.decode(item.definition)
    schema = tool["inputSchema"] if isinstance(tool["inputSchema"], dict) else {}
    definition = {
        "name": item.public_name,
        "description": tool["description"] or "",
        "inputSchema": {**schema, "type": "object"},
    }
    return msgspec.structs.replace(item, definition=msgspec.json.encode(definition))


def _size(items: Sequence[Item]) -> int:
    return sum(len(item.definition) for item in items)


def _in_few_words(items: Sequence[Item]) -> list[Item]:
    """The tools as mode slim lists them; what their servers' tools share is said elsewhere, and so gone."""
    definitions: dict[str, list[bytes]] = {}
    for item in items:
        definitions.setdefault(item.server, []).append(item.definition)
    common = {server: find_shared_text(own) for server, own in definitions.items()}
    return [
        msgspec.structs.replace(item, definition=make_slim_forms(item.definition, common[item.server]).slim)
        for item in items
    ]


def _documents(labelled: LabelledSet, items: Sequence[Item]) -> list[ToolDocument]:
    read = [document_of(item.server, item.name, item.public_name, item.definition) for item in items]
    return [msgspec.structs.replace(one, key=(one.key[0], labelled.identifiers[one.key])) for one in read]


def _recall_at_5(
    engine: Engine, documents: Sequence[ToolDocument], questions: Sequence[LabelledQuery]
) -> float:
    answers = engine.answer(documents, [one.text for one in questions], DEPTH)
    judged = [
        (question.groups, [identifier for _, identifier in keys])
        for question, keys in zip(questions, answers.found, strict=True)
    ]
    return judge(judged).recall_at_5
