"""Removes terminal control sequences (ANSI) before a search, and maps positions back."""

import re
from collections.abc import Iterator, Sequence

from headgate.results.content import Content, Scratch, first_byte

_WINDOW = 4 * 1024 * 1024
# Colours and cursor moves, links and titles, and everything that is one sign behind the escape.
_RAW = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[()*+][0-9A-Za-z]|[@-Z\\-_=>])"
)
# As a JSON string has them. An escaped backslash is passed over, so that what follows it is no escape.
_ESCAPED = re.compile(rb"(\\\\)|\\u001[bB](?:\[[0-?]*[ -/]*[@-~]|[()*+][0-9A-Za-z])")
_IN_PATTERN = ("\x1b", "\\x1b", "\\x{1b}", "\\x{001b}", "\\033")


def mentions_ansi(pattern: str) -> bool:
    """Whether somebody looks for the control sequences themselves."""
    low = pattern.lower()
    return any(spelling in low for spelling in _IN_PATTERN)


class ContentWithoutAnsi:
    """A content without control sequences, and where its places are in the content that was given."""

    def __init__(self, given: Content, scratch: Scratch) -> None:
        self._given = given
        self._expression = _expression(given)
        self.content = given if self._expression is None else _stripped(given, self._expression, scratch)

    def original_positions(self, places: Sequence[int]) -> list[int]:
        """Where places of the plain content are in the given one."""
        if self._expression is None:
            return list(places)
        found, removed = dict[int, int](), 0
        codes = _sequence_spans(self._given, self._expression)
        code = next(codes, None)
        for place in sorted(places):
            while code is not None and code[0] - removed <= place:
                removed += code[1] - code[0]
                code = next(codes, None)
            found[place] = place + removed
        return [found[place] for place in places]


def _expression(content: Content) -> "re.Pattern[bytes] | None":
    if content.find(b"\x1b") >= 0:
        return _RAW
    # In JSON and JSON Lines. Elsewhere it is a program that writes them.
    is_escaped = first_byte(content) in (b"{", b"[") and content.find(b"\\u001") >= 0
    return _ESCAPED if is_escaped else None


def _stripped(content: Content, expression: "re.Pattern[bytes]", scratch: Scratch) -> Content:
    if len(content) <= _WINDOW:
        return _without(content[:], expression)
    return scratch.store(_without(window, expression) for window in _windows(content))


def _without(data: bytes, expression: "re.Pattern[bytes]") -> bytes:
    return expression.sub(rb"\1" if expression.groups else b"", data)


def _windows(content: Content) -> Iterator[bytes]:
    """The content in pieces that end behind a line end or a comma, where no sequence goes on."""
    start, size = 0, len(content)
    while start < size:
        window = content[start : start + _WINDOW]
        if start + len(window) < size:
            cut = max(window.rfind(b"\n"), window.rfind(b","))
            window = window[: cut + 1] or window
        yield window
        start += len(window)


def _sequence_spans(content: Content, expression: "re.Pattern[bytes]") -> Iterator[tuple[int, int]]:
    """Where each sequence begins and ends."""
    return (found.span() for found in expression.finditer(content) if not (found.re.groups and found[1]))
