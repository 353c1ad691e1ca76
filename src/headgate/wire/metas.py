"""The `_meta` of a result: members of it are changed, and every other byte of the result stays."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, runtime_checkable

from msgspec import DecodeError, Raw

from headgate.wire.envelope import decode_object, encode_object
from headgate.wire.skim import NotAnObject, Skimmer

# Whoever carries more about a result than this does not mean the gateway.
_MOST_BYTES = 1024 * 1024
_MOST_MEMBERS = 100_000

# Changes the members of `_meta`; what it returns is not looked at.
Edit = Callable[[dict[str, Raw]], object]


class Stored(Protocol):
    """A JSON object that is too large for memory."""

    @property
    def size(self) -> int:
        """How many bytes it has."""

    @property
    def first(self) -> bytes:
        """Its first byte."""

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, in pieces of bounded size."""

    def close(self) -> None:
        """Give its disk space back."""


@runtime_checkable
class Overwritable(Protocol):
    """A stored value whose bytes can be written over."""

    def overwrite(self, start: int, data: bytes) -> None:
        """Write over bytes of the value from `start` of it on; its size stays the same."""


def edited(result: bytes, edit: Edit) -> bytes:
    """The result after the edit; one that is no object is left as it is."""
    if b"_meta" not in result and b"\\u" not in result:
        # Nearly always: it has none, so nothing has to be looked for.
        made = _made(b"{}", edit)
        return _with(result, made) if made else result
    try:
        span = member_spans((result,)).get("_meta")
    except NotAnObject:
        return result
    if span is None:
        made = _made(b"{}", edit)
        return _with(result, made) if made else result
    start, end = span
    made = _made(result[start:end], edit)
    return result if made is None else result[:start] + made + result[end:]


def _made(meta: bytes, edit: Edit) -> bytes | None:
    """The new `_meta`; None when it is as it was."""
    try:
        members = decode_object(meta)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        members = {}
    before = dict(members)
    edit(members)
    return None if members == before else encode_object(members)


def _with(result: bytes, made: bytes) -> bytes:
    """At the end, because the start of a result is looked at by others."""
    body = result.rstrip()
    if body[:1].strip() != b"{" or body[-1:] != b"}":
        return result
    body = body[:-1].rstrip()
    return body + (b"" if body.endswith(b"{") else b",") + b'"_meta":' + made + b"}"


def member_spans(pieces: Iterable[bytes]) -> dict[str, tuple[int, int]]:
    """Where the value of each member stands; raises NotAnObject."""
    skimmer = Skimmer(_MOST_MEMBERS)
    for piece in pieces:
        skimmer.feed(piece)
    return skimmer.finish()


def edited_on_disk(result: Stored, edit: Edit) -> Stored:
    """The same of a result on disk. Reads all of it, so it is nothing for the event loop."""
    try:
        spans = member_spans(result.chunks())
    except NotAnObject:
        return result
    start, end = spans.get("_meta", (1, 1))
    if end - start > _MOST_BYTES or result.first != b"{":
        return result
    made = _made(part_of(result, start, end) or b"{}", edit)
    if made is None:
        return result
    if "_meta" not in spans:
        # Behind the opening brace.
        made = b'"_meta":' + made + (b"," if spans else b"")
    return with_part(result, start, end, made)


def with_part(stored: Stored, start: int, end: int, part: bytes) -> "Stored":
    """The value with one part of it replaced: in its place where it fits, with white space behind it."""
    if isinstance(stored, Overwritable) and 0 < len(part) <= end - start:
        stored.overwrite(start, part.ljust(end - start))
        return stored
    return Spliced(stored, start, end, part)


def part_of(stored: Stored, start: int, end: int) -> bytes:
    """The bytes from `start` to before `end`."""
    return b"".join(_part(stored, start, end))


def _part(stored: Stored, start: int, end: int) -> Iterator[bytes]:
    """The bytes from `start` to before `end`."""
    at = 0
    for chunk in stored.chunks():
        if at >= end:
            return
        yield chunk[max(0, start - at) : max(0, end - at)]
        at += len(chunk)


class Spliced:
    """A value on disk of which one part is read as something else."""

    def __init__(self, stored: Stored, start: int, end: int, part: bytes) -> None:
        self._stored = stored
        self._start = start
        self._end = end
        self._part = part

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._stored.size - (self._end - self._start) + len(self._part)

    @property
    def first(self) -> bytes:
        """Its first byte."""
        return self._stored.first

    def chunks(self) -> Iterator[bytes]:
        """Its bytes in order; no piece is empty."""
        at = 0
        for chunk in self._stored.chunks():
            end = at + len(chunk)
            if at < self._start:
                yield chunk[: self._start - at]
            if at < self._start <= end:
                yield self._part
            if end > self._end:
                yield chunk[max(0, self._end - at) :]
            at = end

    def close(self) -> None:
        """Give the disk space back."""
        self._stored.close()
