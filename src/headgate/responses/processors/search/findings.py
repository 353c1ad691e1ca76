"""What a pattern finds in a JSON document: elements of arrays and members of objects, in their places."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec import Raw

from headgate.responses.content import Content, characters
from headgate.responses.paths import below
from headgate.responses.processors.search.matching import Held, Matcher, opened_or_none
from headgate.responses.processors.search.strings import StringHit, string_hits

# What lies deeper is kept whole or not at all.
_DEEPEST = 64


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """An array or an object on the way to something that was found."""

    is_object: bool
    parent: "Container | None" = None
    # Its place in the parent.
    key: str | None = None
    index: int = 0
    depth: int = 0
    # The most characters that the containers down to this one take.
    overhead: int = 2

    def inside(self, held: Held, key: str | None, index: int) -> "Container":
        """The container that one of its parts is."""
        name = 0 if key is None else len(msgspec.json.encode(key)) + 1
        overhead = self.overhead + name + 3
        return Container(isinstance(held, dict), self, key, index, self.depth + 1, overhead)

    @property
    def path(self) -> str:
        """Where it is, as a path."""
        return "" if self.parent is None else path_of(self.parent, self.key, self.index)


def path_of(container: Container, key: str | None, index: int) -> str:
    """The path of one of the parts of a container."""
    return f"{container.path}[{index}]" if key is None else below(container.path, key)


class Finding(NamedTuple):
    """One part of a container that matches."""

    container: Container
    key: str | None
    value: Raw
    # Which one it is of the parts.
    number: int
    # It matches as a whole only, and no page has room for it.
    too_large: bool = False
    # It is a string that no page has room for, and this is one of the matches in it.
    part: StringHit | None = None

    @property
    def path(self) -> str:
        """Where it is."""
        return path_of(self.container, self.key, self.number)

    @property
    def element(self) -> int:
        """Which of the outermost parts it is or is in."""
        return outermost(self.container, self.number)


def outermost(container: Container | None, index: int) -> int:
    """Which of the outermost parts of a document a part of one of its containers is in."""
    while container is not None and container.parent is not None:
        container, index = container.parent, container.index
    return index


class Findings:
    """Looks through a document for what matches."""

    def __init__(self, matcher: Matcher, room: int) -> None:
        self._matcher = matcher
        self._room = room

    def of(self, content: Content | Raw) -> Iterator[Finding]:
        """All of them, in order; of what is larger than the room, what matches in it.

        If nothing in it matches by itself, it is given as too large.
        """
        held = opened_or_none(content)
        if held is not None:
            yield from self._inside(held, Container(isinstance(held, dict)))

    def _inside(self, held: Held, container: Container) -> Iterator[Finding]:
        keys, values = parted(held)
        for index in self._matcher.indexes(held):
            key, value = keys[index] if keys else None, values[index]
            if key is None:
                yield from self._element(value, container, index)
            elif self._matcher.in_key(key):
                yield from self._all(value, container, key, index)
            else:
                yield from self._member(value, container, key, index)

    def _element(self, value: Raw, container: Container, index: int) -> Iterator[Finding]:
        held = None if self._fits(value, container, None) else opened_or_none(value)
        if held is None or container.depth >= _DEEPEST:
            yield from self._single(value, container, None, index)
        else:
            yield from self._parts(value, held, container, None, index)

    def _member(self, value: Raw, container: Container, key: str, index: int) -> Iterator[Finding]:
        held = opened_or_none(value) if container.depth < _DEEPEST else None
        if held is None:
            yield from self._single(value, container, key, index)
        else:
            yield from self._parts(value, held, container, key, index)

    def _parts(
        self, value: Raw, held: Held, container: Container, key: str | None, index: int
    ) -> Iterator[Finding]:
        """What matches in a value that does."""
        empty = True
        for finding in self._inside(held, container.inside(held, key, index)):
            empty = False
            yield finding
        if empty:
            # What matches runs from one of its parts into another.
            yield Finding(container, key, value, index, too_large=not self._fits(value, container, key))

    def _all(self, value: Raw, container: Container, key: str | None, index: int) -> Iterator[Finding]:
        """Whole, or else all of its parts."""
        held = None if self._fits(value, container, key) else opened_or_none(value)
        if held is None or container.depth >= _DEEPEST:
            yield from self._single(value, container, key, index)
            return
        deeper = container.inside(held, key, index)
        keys, values = parted(held)
        for position, part in enumerate(values):
            yield from self._all(part, deeper, keys[position] if keys else None, position)

    def _single(self, value: Raw, container: Container, key: str | None, index: int) -> Iterator[Finding]:
        """A value that is not opened: whole, or each match in a string that is too long."""
        if memoryview(value)[0] != ord('"') or self._fits(value, container, key):
            yield Finding(container, key, value, index)
            return
        for part in string_hits(value, self._matcher.pattern):
            yield Finding(container, key, value, index, part=part)

    def _fits(self, value: Raw, container: Container, key: str | None) -> bool:
        name = 0 if key is None else len(msgspec.json.encode(key)) + 1
        room = self._room - container.overhead - name - 1
        if len(value) <= room:
            return True
        # No character has more than four bytes.
        return len(value) <= 4 * room and characters(bytes(value)) <= room


def parted(held: Held) -> tuple[list[str] | None, list[Raw]]:
    """The names, if there are any, and the values."""
    return (list(held), list(held.values())) if isinstance(held, dict) else (None, held)
