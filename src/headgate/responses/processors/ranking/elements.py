"""Where the elements of a JSON document are, found without building any of them."""

import re
from array import array
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.responses.content import Content, first_sign

_BLANK = b" \t\r\n"
_BETWEEN = b", \t\r\n"
# What is searched in is found near the top; below that, an element is an element.
_DEEPEST = 8
# An object with more members is a table with names for its rows.
_FEWEST_ROWS = 64
# Pages of results are few and large: what is in them is looked for, not the pages.
_MOST_PAGES = 16
_SMALLEST_PAGE_BYTES = 8_000
# An object without an array in it is one piece up to here, and beyond it each of its members is.
_LARGEST_MEMBER_BYTES = 2_000
_MOST_OPENED = 1_000
_COMPARED_BYTES = 1024 * 1024

_quoted = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_as_array = msgspec.json.Decoder(list[Raw])
_as_object = msgspec.json.Decoder(dict[str, Raw])
_as_key = msgspec.json.Decoder(str)


class Elements:
    """The elements of all arrays near the top of a document, and the members that are in no array."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._opened = 0
        self.starts = array("q")
        self.ends = array("q")
        # The starts of those that are `"name": value`.
        self.members: set[int] = set()

    def find(self) -> bool:
        """Look for them; false for what is not JSON, or an object that cannot be taken apart."""
        sign = first_sign(self._content)
        if sign not in (b"{", b"["):
            return False
        whole = _opened(_as_array if sign == b"[" else _as_object, self._content)
        if whole is None:
            return False
        at = self._content.find(sign)
        if sign == b"[":
            if not self._take_array(at, whole, 0) and whole:
                self._add(at, self._content.rfind(b"]") + 1)
            return True
        return self._take_object(at, whole, 0) is not None

    def _take_array(self, at: int, elements: list[Raw], depth: int) -> bool:
        """Add each element; false, and nothing added, if there are only numbers and the like."""
        # A few thousand say what the rest is.
        if not any(_sign(element) in b'{["' for element in elements[:4096]):
            return False
        pages = len(elements) <= _MOST_PAGES
        for start, element in _located(self._content, at + 1, elements):
            large = pages and len(element) > _SMALLEST_PAGE_BYTES
            if not (large and self._take_inside(start, element, depth + 1, apart=False)):
                self._add(start, start + len(element))
        return True

    def _take_inside(self, at: int, value: Raw, depth: int, *, apart: bool) -> bool:
        """Add what the arrays inside hold; false, and nothing added, if there is none.

        With `apart`, a large object without any is taken apart all the same.
        """
        self._opened += 1
        sign = _sign(value)
        if depth > _DEEPEST or self._opened > _MOST_OPENED or sign not in b"{[":
            return False
        if sign == ord("["):
            elements = _opened(_as_array, value)
            return elements is not None and self._take_array(at, elements, depth)
        members = _opened(_as_object, value)
        if members is None:
            return False
        mark = len(self.starts)
        found = self._take_object(at, members, depth)
        if found or (found is False and apart and len(value) > _LARGEST_MEMBER_BYTES):
            return True
        self._forget(mark)
        return False

    def _take_object(self, at: int, members: dict[str, Raw], depth: int) -> bool | None:
        """Add what it holds and say whether an array was among it; None if it names something twice."""
        mark = len(self.starts)
        rows = len(members) > _FEWEST_ROWS
        found = rows
        end = at + 1
        try:
            for name_at, value_at, value in _named(self._content, at + 1, members):
                end = value_at + len(value)
                if not rows and self._take_inside(value_at, value, depth + 1, apart=True):
                    found = True
                else:
                    self.members.add(name_at)
                    self._add(name_at, end)
        except _NamedTwice:
            self._forget(mark)
            return None
        brace = _after(self._content, end, _BLANK)
        if self._content[brace : brace + 1] != b"}":
            self._forget(mark)
            return None
        return found

    def _add(self, start: int, end: int) -> None:
        self.starts.append(start)
        self.ends.append(end)

    def _forget(self, mark: int) -> None:
        self.members.difference_update(self.starts[mark:])
        del self.starts[mark:], self.ends[mark:]


class _NamedTwice(Exception):
    """An object has two members of one name, so that what was decoded is not all of it."""


def _opened(decoder: "msgspec.json.Decoder[Any]", data: Content | Raw) -> Any:
    try:
        return decoder.decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _sign(value: Raw) -> int:
    return memoryview(value)[0]


def _located(content: Content, at: int, elements: list[Raw]) -> Iterator[tuple[int, Raw]]:
    """Where each element starts; `at` is behind the bracket."""
    gap = b""
    for element in elements:
        # Most documents have the same between all their elements.
        after = at + len(gap)
        if content[at:after] == gap and content[after] not in _BETWEEN:
            at = after
        else:
            after = _after(content, at, _BETWEEN)
            gap = content[at:after]
            at = after
        yield at, element
        at += len(element)


def _named(content: Content, at: int, members: dict[str, Raw]) -> Iterator[tuple[int, int, Raw]]:
    """Where each name and each value starts; `at` is behind the brace. Raises `_NamedTwice`."""
    for name, value in members.items():
        at = _after(content, at, _BETWEEN)
        quoted = _quoted.match(content, at)
        if quoted is None:
            raise _NamedTwice
        name_end = quoted.end()
        value_at = _after(content, name_end, b": \t\r\n")
        end = value_at + len(value)
        if _opened(_as_key, content[at:name_end]) != name or not _stands_at(content, value_at, value):
            raise _NamedTwice
        yield at, value_at, value
        at = end


def _stands_at(content: Content, at: int, value: Raw) -> bool:
    size = len(value)
    if size <= _COMPARED_BYTES:
        return content[at : at + size] == bytes(value)
    seen = memoryview(value)
    return all(
        content[at + start : at + min(start + _COMPARED_BYTES, size)]
        == seen[start : start + _COMPARED_BYTES].tobytes()
        for start in range(0, size, _COMPARED_BYTES)
    )


def _after(content: Content, at: int, signs: bytes) -> int:
    """The first place from `at` on where none of the signs is, which is the end of the content at most."""
    size = len(content)
    while at < size and content[at] in signs:
        at += 1
    return at
