"""Reads listings as text, member by member, so that nothing is compared that a parser has touched."""

import json
from collections.abc import Iterator
from typing import NamedTuple

DECODER = json.JSONDecoder()
BLANK = " \t\r\n"


class Definition(NamedTuple):
    """One tool: its name, and its source text with the value of the name cut out."""

    name: str
    rest: str


def definitions(result: str) -> list[Definition]:
    """Every tool of a tools/list result that has a name, in order."""
    return [found for item in sources(result) if (found := definition(item)) is not None]


def sources(result: str) -> list[str]:
    """The source text of every tool of a tools/list result, in order."""
    for key, start, _ in members(result):
        if key == "tools":
            return list(items(result, start))
    raise AssertionError("the result has no member 'tools'")


def definition(item: str) -> Definition | None:
    if not item.startswith("{"):
        return None
    for key, start, end in members(item):
        if key == "name":
            return Definition(json.loads(item[start:end]), item[:start] + item[end:])
    return None


def members(text: str) -> Iterator[tuple[str, int, int]]:
    """Each member of the object that the text is: its key, and where its value starts and ends."""
    position = past_blank(text, past_blank(text, 0, "{"))
    while text[position] != "}":
        key, position = DECODER.raw_decode(text, position)
        start = past_blank(text, past_blank(text, position, ":"))
        _, end = DECODER.raw_decode(text, start)
        yield key, start, end
        position = past_blank(text, end)
        if text[position] == ",":
            position = past_blank(text, position + 1)


def items(text: str, position: int) -> Iterator[str]:
    """The source text of each item of the list that starts at the position."""
    position = past_blank(text, past_blank(text, position, "["))
    while text[position] != "]":
        _, end = DECODER.raw_decode(text, position)
        yield text[position:end]
        position = past_blank(text, end)
        if text[position] == ",":
            position = past_blank(text, position + 1)


def past_blank(text: str, position: int, mark: str = "") -> int:
    """The next position that is not blank and, with a mark, the one after the mark that stands there."""
    while text[position] in BLANK:
        position += 1
    assert text.startswith(mark, position), f"expected {mark!r} at {position}"
    return position + len(mark)
