"""A few words from the examples and choices of a tool's arguments, such as the tool itself does not say."""

import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Final

from headgate.domain.words import SOFT_STOPS

_MOST_WORDS: Final = 3
_MOST_ARGUMENTS: Final = 12
_MOST_CHOICES: Final = 8
# Of the text about one argument.
_LONGEST_READ: Final = 240
_LONGEST_WORD: Final = 24
# What follows is mostly one of many that the argument can be, and so what the tool is about.
_BEFORE_EXAMPLES: Final = ("e.g.", "such as ", "for example", "one of ", "including ", "like ", "(", ": ")
# Behind a bracket or a colon there are examples if several are named at once.
_SEVERAL: Final = re.compile(r"\W*\w+\W{0,2}(?:,|/|\||\bor\b)")
_WORD: Final = re.compile(r"[^\W\d_][^\W_]{3,}")
# They stand in texts about arguments of any kind.
_SAID_OF_ANY: Final = SOFT_STOPS | frozenset(
    [
        "also",
        "argument",
        "array",
        "boolean",
        "case",
        "characters",
        "contain",
        "contains",
        "date",
        "days",
        "default",
        "defaults",
        "desc",
        "display",
        "empty",
        "example",
        "false",
        "field",
        "fields",
        "format",
        "formats",
        "from",
        "hours",
        "http",
        "https",
        "identifier",
        "integer",
        "item",
        "items",
        "json",
        "list",
        "maximum",
        "minimum",
        "minutes",
        "must",
        "name",
        "names",
        "none",
        "null",
        "number",
        "object",
        "omit",
        "only",
        "option",
        "optional",
        "options",
        "path",
        "required",
        "returns",
        "seconds",
        "should",
        "string",
        "strings",
        "that",
        "their",
        "then",
        "this",
        "time",
        "true",
        "type",
        "types",
        "uuid",
        "value",
        "values",
        "when",
        "where",
        "which",
        "will",
        "with",
        "your",
        "yyyy",
    ]
)


def keywords(arguments: Collection[Any], known: str, room: int, repeated: Collection[str] = ()) -> str:
    """Up to three words that are no part of `known`, in at most `room` characters.

    Texts that are `repeated` with other tools are not looked at.
    """
    seen = known.lower()
    found: list[str] = []
    for text in _texts(arguments, repeated):
        for word in _WORD.findall(text):
            plain = word.lower()
            if plain in _SAID_OF_ANY or len(plain) > _LONGEST_WORD or plain.removesuffix("s") in seen:
                continue
            room -= len(word) + 1
            if room < 0:
                return " ".join(found)
            found.append(word)
            if len(found) == _MOST_WORDS:
                return " ".join(found)
            seen = f"{seen} {plain}"
    return " ".join(found)


def _texts(arguments: Collection[Any], repeated: Collection[str]) -> Iterator[str]:
    for schema in islice(arguments, _MOST_ARGUMENTS):
        if not isinstance(schema, dict):
            continue
        text = schema.get("description")
        if isinstance(text, str) and text in repeated:
            continue
        if isinstance(text, str):
            yield _examples(text[:_LONGEST_READ])
        choices = schema.get("enum")
        if isinstance(choices, list):
            yield " ".join(one[:_LONGEST_READ] for one in choices[:_MOST_CHOICES] if isinstance(one, str))


def _examples(text: str) -> str:
    """What stands behind a word that announces examples, up to the end of the sentence."""
    lower = text.lower()
    for mark in _BEFORE_EXAMPLES:
        at = lower.find(mark)
        if at >= 0:
            found = text[at + len(mark) :].partition(". ")[0]
            if len(mark) > 2 or _SEVERAL.match(found):
                return found.partition(")")[0]
    return ""
