"""Chooses how much of each tool an answer has room for: as much as was asked for, little, or its name."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

# Of the text of an answer, about 8,000 tokens (decision 0080).
MOST_CHARACTERS: Final = 32_000
# Of the room at most, for the names of tools of which nothing else is shown.
_NAMES_SHARE: Final = 4
_AROUND_NAME: Final = len('"",')
_AROUND_MARK: Final = len(',"brief":true')


class Entry(NamedTuple):
    """One tool: its name, what is shown of it at least, and what was asked for if that is more."""

    name: str
    brief: dict[str, Any]
    whole: Callable[[], dict[str, Any]] | None


class Fitted(NamedTuple):
    """What is shown of the tools, in their order."""

    tools: list[dict[str, Any]]
    # How many of these show less than was asked for.
    brief: int
    # Of which only the name is shown, and how many are not even named.
    named: list[str]
    unnamed: int

    @property
    def found(self) -> int:
        """All of them."""
        return len(self.tools) + len(self.named) + self.unnamed


def fit(entries: Sequence[Entry], room: int) -> Fitted:
    """As many brief entries as there is room for, best first; then as many of these whole, best first."""
    shown, named, left = list[Entry](), list[str](), room
    names = sum(len(entry.name) + _AROUND_NAME for entry in entries)
    for entry in entries:
        names -= len(entry.name) + _AROUND_NAME
        size = size_of(entry.brief) + (_AROUND_MARK if entry.whole else 0)
        if size <= left - min(names, room // _NAMES_SHARE):
            shown.append(entry)
            left -= size
        else:
            named.append(entry.name)
    first = _fitting_names(named, left)
    left -= sum(len(name) + _AROUND_NAME for name in first)
    tools, brief = _completed(shown, left)
    return Fitted(tools, brief, first, len(named) - len(first))


def size_of(part: object) -> int:
    """How many characters it takes in an answer, with a comma."""
    return len(msgspec.json.encode(part).decode()) + 1


def _fitting_names(names: list[str], room: int) -> list[str]:
    fitting = list[str]()
    for name in names:
        room -= len(name) + _AROUND_NAME
        if room < 0:
            break
        fitting.append(name)
    return fitting


def _completed(entries: Sequence[Entry], room: int) -> tuple[list[dict[str, Any]], int]:
    """Each entry whole where there is room, else marked as brief; how many are."""
    tools, brief = list[dict[str, Any]](), 0
    for entry in entries:
        if entry.whole is None:
            tools.append(entry.brief)
            continue
        whole = entry.whole()
        more = size_of(whole) - size_of(entry.brief)
        if more <= room:
            room -= max(more, 0)
            tools.append(whole)
        else:
            brief += 1
            tools.append(entry.brief | {"brief": True})
    return tools, brief
