"""Edits the `_meta` of a message in place and removes the keys reserved for the gateway; every other byte
stays.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from msgspec import DecodeError, Raw

from headgate.protocol.json_scan import JsonObjectScanner, NotJsonObject
from headgate.protocol.jsonrpc import decode_object, encode_object
from headgate.protocol.protocol_version import CONNECTION_KEYS

# A larger `_meta` is not edited.
_MOST_EDITED_BYTES = 1024 * 1024
_MOST_MEMBERS = 100_000

# Changes the members of `_meta`; its return value is ignored.
EditMeta = Callable[[dict[str, Raw]], object]


class StoredJson(Protocol):
    """A JSON object that is too large for memory."""

    @property
    def size(self) -> int:
        """Its number of bytes."""

    @property
    def first(self) -> bytes:
        """Its first byte."""

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, in pieces of bounded size."""

    def close(self) -> None:
        """Free its disk space."""


@runtime_checkable
class OverwritableJson(Protocol):
    """A stored value whose bytes can be overwritten."""

    def overwrite(self, start: int, data: bytes) -> None:
        """Overwrite bytes of the value from its `start` on; its size stays the same."""


def with_edited_meta(result: bytes, edit: EditMeta) -> bytes:
    """The result after the edit; one that is no object stays as it is."""
    span = None
    # Nearly always it has no `_meta`.
    if b"_meta" in result or b"\\u" in result:
        try:
            span = member_spans((result,)).get("_meta")
        except NotJsonObject:
            return result
    start, end = span or (0, 0)
    made = _edited_meta(result[start:end] or b"{}", edit)
    if made is None:
        return result
    return result[:start] + made + result[end:] if span else _with_meta_appended(result, made)


def _edited_meta(meta: bytes, edit: EditMeta) -> bytes | None:
    """The new `_meta`; None if it is unchanged."""
    try:
        members = decode_object(meta)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        members = {}
    before = dict(members)
    edit(members)
    return None if members == before else encode_object(members)


def _with_meta_appended(result: bytes, made: bytes) -> bytes:
    """Appended, because other checks read the start of a result."""
    body = result.rstrip()
    if body[:1].strip() != b"{" or body[-1:] != b"}":
        return result
    body = body[:-1].rstrip()
    return body + (b"" if body.endswith(b"{") else b",") + b'"_meta":' + made + b"}"


def member_spans(pieces: Iterable[bytes]) -> dict[str, tuple[int, int]]:
    """The span of the value of each member; raises NotJsonObject."""
    scanner = JsonObjectScanner(_MOST_MEMBERS)
    for piece in pieces:
        scanner.feed(piece)
    return scanner.finish()


def with_edited_meta_on_disk(result: StoredJson, edit: EditMeta) -> StoredJson:
    """The same of a result on disk. Reads all of it, so it must not run on the event loop."""
    try:
        spans = member_spans(result.chunks())
    except NotJsonObject:
        return result
    start, end = spans.get("_meta", (1, 1))
    if end - start > _MOST_EDITED_BYTES or result.first != b"{":
        return result
    made = _edited_meta(part_of(result, start, end) or b"{}", edit)
    if made is None:
        return result
    if "_meta" not in spans:
        # After the opening brace.
        made = b'"_meta":' + made + (b"," if spans else b"")
    return with_part(result, start, end, made)


def with_part(stored: StoredJson, start: int, end: int, part: bytes) -> "StoredJson":
    """The value with one part replaced: in place where it fits, padded with white space."""
    if isinstance(stored, OverwritableJson) and 0 < len(part) <= end - start:
        stored.overwrite(start, part.ljust(end - start))
        return stored
    return SplicedJson(stored, start, end, part)


def part_of(stored: StoredJson, start: int, end: int) -> bytes:
    parts, at = [], 0
    for chunk in stored.chunks():
        if at >= end:
            break
        parts.append(chunk[max(0, start - at) : max(0, end - at)])
        at += len(chunk)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class SplicedJson:
    """A value on disk with one part replaced as it is read."""

    _stored: StoredJson
    _start: int
    _end: int
    _part: bytes

    @property
    def size(self) -> int:
        return self._stored.size - (self._end - self._start) + len(self._part)

    @property
    def first(self) -> bytes:
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
        self._stored.close()


RESERVED_PREFIX: Final = "io.headgate/"
# Without the slash, which may be escaped with a backslash.
_RESERVED_BYTES: Final = RESERVED_PREFIX.rstrip("/").encode()
# Patterns with a literal beginning: for these the search is faster than `in`.
_META: Final = re.compile(rb"_meta")
_MARK: Final = re.compile(rb"io\.(?:headgate|modelcontextprotocol)")
# Letters, dot, slash and underscore as escapes: no writer of JSON needs to escape these.
_ESCAPED: Final = re.compile(rb"\\u00(?:2[eEfF]|5[fF]|[67])")
# A larger `_meta` is not parsed; if it may contain such a key, all of it is removed.
_MOST_META_BYTES: Final = 1024 * 1024

IsUnwantedKey = Callable[[str], bool]


class UnreadableMeta(ValueError):
    """A message that may contain a reserved key and cannot be parsed to remove it."""


def may_be_reserved(text: bytes) -> bool:
    """Whether a `_meta` of the text may contain a reserved key; runs for every result."""
    # Most texts have neither character, and the search for a single byte is nearly free.
    if b"_" in text and _META.search(text) is not None and _RESERVED_BYTES in text:
        return True
    return b"\\" in text and _ESCAPED.search(text) is not None


def may_be_marked(text: bytes) -> bool:
    """Whether a part of a large text may contain a reserved key or a key of the connection."""
    if b"." in text and _MARK.search(text) is not None:
        return True
    return b"\\" in text and _ESCAPED.search(text) is not None


def is_reserved(key: str) -> bool:
    return key.startswith(RESERVED_PREFIX)


def is_reserved_or_connection_key(key: str) -> bool:
    """Whether the key is reserved, or one that a stateless server adds to every result."""
    return key.startswith(RESERVED_PREFIX) or key in CONNECTION_KEYS


def without_reserved(message: bytes) -> bytes:
    """Params, a result or a definition without reserved keys in its `_meta`; the same bytes if it has none.

    Raises UnreadableMeta if it may have them and cannot be parsed.
    """
    if not may_be_reserved(message):
        return message
    try:
        span = member_spans((message,)).get("_meta")
    except NotJsonObject:
        return _rebuilt(message)
    if span is None:
        return message
    start, end = span
    kept = _meta_without(message[start:end], is_reserved)
    return message if kept is None else message[:start] + kept + message[end:]


def without_reserved_in_error(error: bytes) -> bytes:
    """An error object without reserved keys in the `_meta` of its data; raises UnreadableMeta."""
    if not may_be_reserved(error):
        return error
    members = _decoded(error)
    data = members.get("data")
    if data is None or bytes(data)[:1] != b"{":
        return error
    return encode_object(members | {"data": Raw(without_reserved(bytes(data)))})


def without_reserved_on_disk(result: StoredJson, unwanted: IsUnwantedKey) -> StoredJson:
    """The same on disk: not for the event loop, as it reads all; raises UnreadableMeta or OSError."""
    try:
        span = member_spans(result.chunks()).get("_meta")
    except NotJsonObject as error:
        raise UnreadableMeta(str(error)) from error
    if span is None:
        return result
    start, end = span
    if end - start > _MOST_META_BYTES:
        return with_part(result, start, end, b"{}")
    kept = _meta_without(part_of(result, start, end), unwanted)
    return result if kept is None else with_part(result, start, end, kept)


def _meta_without(meta: bytes, unwanted: IsUnwantedKey) -> bytes | None:
    """The `_meta` without unwanted keys; None if it has none."""
    try:
        members = _decoded(meta)
    except UnreadableMeta:
        return b"{}" if may_be_marked(meta) else None
    kept = {key: value for key, value in members.items() if not unwanted(key)}
    return None if len(kept) == len(members) else encode_object(kept)


def _rebuilt(message: bytes) -> bytes:
    """Of a repeated member, the last one counts."""
    members = _decoded(message)
    if "_meta" in members:
        kept = _meta_without(bytes(members["_meta"]), is_reserved)
        members["_meta"] = members["_meta"] if kept is None else Raw(kept)
    return encode_object(members)


def _decoded(text: bytes) -> dict[str, Raw]:
    try:
        return decode_object(text)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableMeta(str(error) or "it is nested too deep") from error
