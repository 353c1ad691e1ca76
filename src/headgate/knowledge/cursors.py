"""The opaque texts that say where the next page begins: short, and tied to what they were given for."""

import re
from array import array
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from headgate.domain.call import Caller
from headgate.domain.errors import InvalidQuestion

# The first byte of every cursor; the second is how many there are.
_MARK: Final = 0xB7
_MARK_BYTES: Final = 2
_TOOLS: Final = ("semantic_search", "find_vendor_info", "list_sources", "neighbours")
_CHARACTERS: Final = re.compile(r"[A-Za-z0-9_-]+")
_PRINT_BYTES: Final = 3
# Agents pay for every byte with every page. One of each argument tells which of them is another now; where
# that is the same by chance, as in one of 256 cases, those of all arguments together are not.
_PART_BYTES: Final = 1
_WHOLE_BYTES: Final = 2
_CHECK_BYTES: Final = 3
_SEVEN_BITS: Final = 0x7F
_MORE: Final = 0x80
_START_AGAIN: Final = "leave it out to start again"


class Cursor(NamedTuple):
    """Where to go on: in which list, of which state of the store, and from which places of it."""

    revision: int
    print: bytes
    places: tuple[int, ...]


def print_of(lists: Sequence[Sequence[int]]) -> bytes:
    """A few bytes by which lists of ids are told apart."""
    written = blake2b(digest_size=_PRINT_BYTES)
    for ids in lists:
        written.update(array("q", (len(ids), *ids)).tobytes())
    return written.digest()


def write_cursor(cursor: Cursor, tool: str, caller: Caller, bound: Mapping[str, object]) -> str:
    """The text of a cursor that works for this caller, tool and these arguments."""
    tied = _tied(caller, bound)
    parts = b"".join(_digest(value, _PART_BYTES) for value in tied.values())
    numbers = b"".join(map(_number, (cursor.revision, *cursor.places)))
    body = bytes([_TOOLS.index(tool)]) + parts + _digest(tied, _WHOLE_BYTES) + cursor.print + numbers
    marked = bytes([_MARK, _MARK_BYTES + len(body) + _CHECK_BYTES]) + body
    return _text(marked + _check(marked))


def read_cursor(text: str, tool: str, caller: Caller, bound: Mapping[str, object]) -> Cursor:
    """Where it points to; raises InvalidQuestion that says which part of it is wrong."""
    body = _body(text)
    given_for = _TOOLS[body[0]] if body[0] < len(_TOOLS) else "another tool"
    if given_for != tool:
        raise _refusal(f"cursor belongs to {given_for}, not to {tool}")
    rest, tied = body[1:], _tied(caller, bound)
    for name, value in tied.items():
        if rest[:_PART_BYTES] != _digest(value, _PART_BYTES):
            raise _refusal(f"cursor belongs to another {name}")
        rest = rest[_PART_BYTES:]
    if rest[:_WHOLE_BYTES] != _digest(tied, _WHOLE_BYTES):
        raise _refusal("cursor belongs to other arguments")
    rest = rest[_WHOLE_BYTES:]
    revision, *places = _numbers(rest[_PRINT_BYTES:])
    return Cursor(revision, rest[:_PRINT_BYTES], tuple(places))


def _body(text: str) -> bytes:
    """What stands between mark and check."""
    if not _CHARACTERS.fullmatch(text):
        raise _refusal("cursor is not one that this server gave: it has characters that none of them has")
    # A part of four characters may lack some, but never three.
    whole = text[:-1] if len(text) % 4 == 1 else text
    raw = urlsafe_b64decode(whole + "=" * (-len(whole) % 4))
    if len(raw) < _MARK_BYTES or raw[0] != _MARK:
        raise _refusal("cursor is not one that this server gave")
    if len(raw) < raw[1]:
        raise _refusal("cursor is cut off: its end is not there")
    checked = raw[-_CHECK_BYTES:] == _check(raw[:-_CHECK_BYTES]) and _text(raw) == text
    if not checked or len(raw) <= _MARK_BYTES + _CHECK_BYTES:
        raise _refusal("cursor is damaged: it is not as it was given")
    return raw[_MARK_BYTES:-_CHECK_BYTES]


def _refusal(problem: str) -> InvalidQuestion:
    return InvalidQuestion(
        f"{problem}; {_START_AGAIN}",
        hint=f"send the cursor as it was given, with the arguments it was given for, or {_START_AGAIN}",
    )


def _tied(caller: Caller, bound: Mapping[str, object]) -> dict[str, object]:
    return {"caller": (caller.tenant, caller.principal), **bound}


def _digest(value: object, size: int) -> bytes:
    # What was sent may hold half a character.
    return blake2b(repr(value).encode("utf-8", "replace"), digest_size=size).digest()


def _check(marked: bytes) -> bytes:
    # Against damage, and the same after a restart, so that paging goes on. It need not keep anybody out: a
    # cursor leads to nothing that its caller could not ask for without it.
    return blake2b(marked, digest_size=_CHECK_BYTES, person=b"headgate cursor").digest()


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _number(value: int) -> bytes:
    """Seven bits to a byte, the lowest first, the last byte without its highest bit."""
    written = bytearray()
    while value > _SEVEN_BITS:
        written.append(value & _SEVEN_BITS | _MORE)
        value >>= 7
    written.append(value)
    return bytes(written)


def _numbers(raw: bytes) -> list[int]:
    found, value, shift = [], 0, 0
    for byte in raw:
        value |= (byte & _SEVEN_BITS) << shift
        shift += 7
        if not byte & _MORE:
            found.append(value)
            value, shift = 0, 0
    return found
