"""The labelled passages of tests/data/entities, and how well what is found in them fits."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from headgate.knowledge.data_model import NewChunk, NewEntity, name_key
from headgate.knowledge.extraction.extractor import extract

TYPES: Final = ("ORG", "PERSON", "PLACE", "PRODUCT")
FILES: Final = Path(__file__).parents[1] / "tests" / "data" / "entities"
_LABEL: Final = re.compile(r"\[\[(\w+)\|([^\]]+)\]\]")


class Labels(NamedTuple):
    """A passage, with its mentions as type, begin and end, and its relationships as three names."""

    name: str
    text: str
    mentions: frozenset[tuple[str, int, int]]
    relationships: frozenset[tuple[str, str, str]]


class Score(NamedTuple):
    """How many were found and right, found and wrong, and not found."""

    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        """The share of what was found that is right."""
        return self.right / max(1, self.right + self.wrong)

    @property
    def recall(self) -> float:
        """The share of what is right that was found."""
        return self.right / max(1, self.right + self.missed)

    @property
    def f1(self) -> float:
        """Both in one."""
        return 2 * self.right / max(1, 2 * self.right + self.wrong + self.missed)


def passages(split: str) -> list[Labels]:
    """Those of `dev` or `test`."""
    parts = (FILES / f"{split}.txt").read_text(encoding="utf-8").split("%% ")
    return [_passage(part) for part in parts if part]


def chunk(text: str) -> NewChunk:
    """A chunk of this text."""
    return NewChunk(text=text, header="", tokens=0, digest="")


def scores(split: str) -> dict[str, Score]:
    """By type of entity, of all of them, and of relationships; a mention is right with type and both ends."""
    tallies = {key: Counter[str]() for key in (*TYPES, "all", "relationships")}
    for passage in passages(split):
        mentions, relationships = found_in(passage)
        for one in passage.mentions | mentions:
            for key in (one[0], "all"):
                tallies[key][_verdict(one, passage.mentions, mentions)] += 1
        for stated in passage.relationships | relationships:
            tallies["relationships"][_verdict(stated, passage.relationships, relationships)] += 1
    return {key: Score(tally["right"], tally["wrong"], tally["missed"]) for key, tally in tallies.items()}


def found_in(passage: Labels) -> tuple[frozenset[tuple[str, int, int]], frozenset[tuple[str, str, str]]]:
    """What the rules find, as labels: each end of a relationship by the longest form that the text has."""
    entities, relationships = extract([chunk(passage.text)])
    names = {entity.name: _longest_form(entity, passage.text) for entity in entities}
    return (
        frozenset(
            (entity.type, mention.start, mention.end) for entity in entities for mention in entity.mentions
        ),
        frozenset(
            (names[one.source], one.type, names[one.target])
            for one in relationships
            if one.type != "MENTIONED_WITH"
        ),
    )


def _longest_form(entity: NewEntity, text: str) -> str:
    return name_key(max((text[one.start : one.end] for one in entity.mentions), key=len))


def _verdict(one: object, labelled: frozenset[object], found: frozenset[object]) -> str:
    if one not in labelled:
        return "wrong"
    return "right" if one in found else "missed"


def _passage(part: str) -> Labels:
    title, _, body = part.partition("\n")
    lines = body.rstrip("\n").split("\n")
    relationships = [line.removeprefix("@@ ") for line in lines if line.startswith("@@ ")]
    text, mentions = _without_labels("\n".join(line for line in lines if not line.startswith("@@ ")))
    return Labels(title.split(" ")[0], text, frozenset(mentions), frozenset(map(_three, relationships)))


def _three(line: str) -> tuple[str, str, str]:
    source, type_, target = line.split(" | ")
    return name_key(source), type_, name_key(target)


def _without_labels(marked: str) -> tuple[str, Iterable[tuple[str, int, int]]]:
    text = ""
    rest = 0
    mentions: list[tuple[str, int, int]] = []
    for label in _LABEL.finditer(marked):
        text += marked[rest : label.start()]
        mentions.append((label[1], len(text), len(text) + len(label[2])))
        text += label[2]
        rest = label.end()
    return text + marked[rest:], mentions
