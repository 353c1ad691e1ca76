"""Keys of `_meta` that only the gateway itself writes: what a server puts there is taken out.

A message is opened only if its bytes contain the beginning of such a key, spelled out or escaped.
"""

import re
from collections.abc import Callable
from typing import Final

from msgspec import DecodeError, Raw

from headgate.wire.envelope import decode_object, encode_object
from headgate.wire.eras import CONNECTION_KEYS
from headgate.wire.metas import Stored, member_spans, part_of, with_part
from headgate.wire.skim import NotAnObject

PREFIX: Final = "io.headgate/"
# Without the slash, which may be escaped with a backslash.
_SPELLED: Final = PREFIX.rstrip("/").encode()
# Patterns with a literal beginning: for these the search is faster than `in`.
_META: Final = re.compile(rb"_meta")
_MARK: Final = re.compile(rb"io\.(?:headgate|modelcontextprotocol)")
# Letters, dot, slash and underscore as escapes: no writer of JSON needs to escape these.
_ESCAPED: Final = re.compile(rb"\\u00(?:2[eEfF]|5[fF]|[67])")
# A `_meta` of more than this is not opened; if it may contain such a key, all of it is taken out.
_MOST_BYTES: Final = 1024 * 1024

Unwanted = Callable[[str], bool]


class UnreadableMeta(ValueError):
    """A message that may contain such a key and cannot be opened to take it out."""


def may_be_reserved(text: bytes) -> bool:
    """Whether a key of the gateway could stand in a `_meta` of the text; asked of every result."""
    # Most texts have neither sign, and to look for a single byte costs next to nothing.
    if b"_" in text and _META.search(text) is not None and _SPELLED in text:
        return True
    return b"\\" in text and _ESCAPED.search(text) is not None


def may_be_marked(text: bytes) -> bool:
    """Whether a part of a large text may contain one, or a key of the connection, which ends here too."""
    if b"." in text and _MARK.search(text) is not None:
        return True
    return b"\\" in text and _ESCAPED.search(text) is not None


def is_reserved(key: str) -> bool:
    """Whether only the gateway writes this key."""
    return key.startswith(PREFIX)


def is_reserved_or_of_the_connection(key: str) -> bool:
    """The same, and for what a stateless server says of itself with every result."""
    return key.startswith(PREFIX) or key in CONNECTION_KEYS


def without_reserved(message: bytes) -> bytes:
    """Params, a result or a definition without such keys in its `_meta`; the same bytes where it has none.

    Raises UnreadableMeta for one that may have them and cannot be opened.
    """
    if not may_be_reserved(message):
        return message
    try:
        span = member_spans((message,)).get("_meta")
    except NotAnObject:
        return _rebuilt(message)
    if span is None:
        return message
    start, end = span
    kept = _kept(message[start:end], is_reserved)
    return message if kept is None else message[:start] + kept + message[end:]


def without_reserved_in_error(error: bytes) -> bytes:
    """An error object without such keys in the `_meta` of its data; raises UnreadableMeta."""
    if not may_be_reserved(error):
        return error
    members = _opened(error)
    data = members.get("data")
    if data is None or bytes(data)[:1] != b"{":
        return error
    return encode_object(members | {"data": Raw(without_reserved(bytes(data)))})


def without_reserved_on_disk(result: Stored, unwanted: Unwanted) -> Stored:
    """The same of a result on disk. Reads all of it, so it is nothing for the event loop.

    Raises UnreadableMeta, and OSError.
    """
    try:
        span = member_spans(result.chunks()).get("_meta")
    except NotAnObject as error:
        raise UnreadableMeta(str(error)) from error
    if span is None:
        return result
    start, end = span
    if end - start > _MOST_BYTES:
        return with_part(result, start, end, b"{}")
    kept = _kept(part_of(result, start, end), unwanted)
    return result if kept is None else with_part(result, start, end, kept)


def _kept(meta: bytes, unwanted: Unwanted) -> bytes | None:
    """The `_meta` without such keys; None when it has none."""
    try:
        members = _opened(meta)
    except UnreadableMeta:
        return b"{}" if may_be_marked(meta) else None
    kept = {key: value for key, value in members.items() if not unwanted(key)}
    return None if len(kept) == len(members) else encode_object(kept)


def _rebuilt(message: bytes) -> bytes:
    """Of a message in which a member is there twice, the last one counts."""
    members = _opened(message)
    if "_meta" in members:
        kept = _kept(bytes(members["_meta"]), is_reserved)
        members["_meta"] = members["_meta"] if kept is None else Raw(kept)
    return encode_object(members)


def _opened(text: bytes) -> dict[str, Raw]:
    try:
        return decode_object(text)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableMeta(str(error) or "it is nested too deep") from error
