"""Truncates JSON values and texts to a number of characters, and divides that number among several texts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import DecodeError, Raw

from headgate.results.content import (
    MAX_CHARACTER_BYTES,
    Content,
    character_count,
    count_characters,
    count_lines,
    decode_elements,
    decode_members,
    decode_raw,
    end_of_whole_escapes,
    first_byte,
    first_characters,
    fits,
)
from headgate.results.jobs import PageUnit
from headgate.results.pipeline import ProcessingError


def fair_shares(sizes: Sequence[int], room: int) -> list[int]:
    """The share of each size: small ones all that they need, large ones equal parts of the rest."""
    given = [0] * len(sizes)
    left = room
    for waiting, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        given[index] = min(sizes[index], left // (len(sizes) - waiting))
        left -= given[index]
    return given


# Deeper parts are omitted: each level is one more scan of everything below it.
_DEEPEST = 20
# The shortest member with its comma is `"":1,`.
_SHORTEST_MEMBER = 5
# So many large members share the room, however little each gets ...
_FEW_MEMBERS = 32
# ... and more of them only if each gets so many characters: a hundred stumps are unreadable.
_READABLE = 64
_ELLIPSIS = "…".encode()


class TruncationLoss(NamedTuple):
    """What was omitted, and how much is left; of several losses that of the largest array says most."""

    of_array: bool
    # In bytes, of the truncated value.
    size: int
    shown: int
    total: int
    unit: PageUnit


class TruncatedValue(NamedTuple):
    """The part of a value that fits; without a loss it is the whole value."""

    content: bytes
    loss: TruncationLoss | None


def leading_byte(value: Content | Raw) -> bytes:
    """The first byte of a value: `[`, `{`, a quote, or that of a number or literal."""
    # Only the outermost value has white space around it.
    return bytes(memoryview(value)[:1]) if isinstance(value, Raw) else first_byte(value)


def element_count(value: bytes) -> int:
    """The number of elements or members; 1 for a scalar. Raises as msgspec does."""
    match leading_byte(value):
        case b"[":
            return len(decode_elements(value))
        case b"{":
            return len(decode_members(value))
    decode_raw(value)
    return 1


def truncate_value(value: Content | Raw, room: int, depth: int = 0) -> TruncatedValue | None:
    """The part of a value that fits, None for nothing. The outermost array or object is always kept.

    Raises as msgspec does if the value is no JSON, or too deep for it.
    """
    if depth and (room < 2 or depth > _DEEPEST):
        return None
    data = minified_if_fits(value, room)
    if data is not None:
        return TruncatedValue(data, None)
    try:
        match leading_byte(value):
            case b"[":
                return _truncate_array(value, room, depth)
            case b"{":
                return _truncate_object(value, room, depth)
            case b'"':
                return _truncate_string(value, room)
        decode_raw(value)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        # A part that cannot be parsed is omitted; an outermost value like that is no JSON.
        if not depth:
            raise
    return None


def minified_if_fits(value: Content | Raw, room: int) -> bytes | None:
    """The value without line ends between its parts, if it fits."""
    with memoryview(value) as view:
        if len(view) > room * MAX_CHARACTER_BYTES:
            return None
        data = bytes(view)
    if b"\n" in data:
        # A line end is never part of a JSON value, and indentation would take a third of the room.
        try:
            data = msgspec.json.format(data, indent=-1)
        except (DecodeError, RecursionError):
            return None
    return data if character_count(data) <= room else None


def _truncate_array(value: Content | Raw, room: int, depth: int) -> TruncatedValue:
    elements = decode_elements(value)
    kept: list[bytes] = []
    left = room - 2
    for element in elements:
        data = minified_if_fits(element, left)
        if data is None:
            break
        kept.append(data)
        left -= character_count(data) + 1
    first = truncate_value(elements[0], left, depth + 1) if elements and not kept else None
    if first is not None:
        kept.append(first.content)
    loss = None if first is None else first.loss
    if len(kept) < len(elements):
        loss = element_loss(value, len(kept), len(elements), of_array=True)
    return TruncatedValue(join_parts(b"[", kept, b"]"), loss)


def _truncate_object(value: Content | Raw, room: int, depth: int) -> TruncatedValue:
    members = decode_members(value)
    pieces: dict[bytes, TruncatedValue] = {}
    if len(members) <= room // _SHORTEST_MEMBER:
        pieces = _share_room(members, room - 2, depth)
    pieces = pieces or _first_members(members, room - 2, depth)
    kept = join_parts(b"{", (name + piece.content for name, piece in pieces.items()), b"}")
    losses = [piece.loss for piece in pieces.values() if piece.loss is not None]
    return TruncatedValue(kept, main_loss(value, losses, len(pieces), len(members)))


def main_loss(
    value: Content | Raw, losses: Sequence[TruncationLoss], shown: int, total: int
) -> TruncationLoss | None:
    """The loss of an object with so many members shown; that of the largest array says most."""
    arrays = [loss for loss in losses if loss.of_array]
    if arrays:
        return max(arrays, key=lambda loss: loss.size)
    if len(losses) < 2 and shown == total:
        return losses[0] if losses else None
    return element_loss(value, shown, total, of_array=False)


def _share_room(members: Mapping[str, Raw], room: int, depth: int) -> dict[bytes, TruncatedValue]:
    """Small members whole and a fair share for each large one; nothing where the shares are too small."""
    names = {key: encoded_key(key) for key in members}
    left = room + 1 - sum(character_count(name) + 1 for name in names.values())
    if left <= 0:
        return {}
    sizes = {key: size_within(value, left) for key, value in members.items()}
    pieces: dict[str, TruncatedValue | None] = {}
    for rank, key in enumerate(sorted(members, key=sizes.__getitem__)):
        waiting = len(members) - rank
        share = left // waiting
        if sizes[key] > share and waiting > _FEW_MEMBERS and share < _READABLE:
            return {}
        piece = truncate_value(members[key], share, depth + 1) if share else None
        pieces[key] = piece
        left -= character_count(piece.content) if piece else -character_count(names[key]) - 1
    return {names[key]: piece for key in members if (piece := pieces[key]) is not None}


def _first_members(members: Mapping[str, Raw], room: int, depth: int) -> dict[bytes, TruncatedValue]:
    """The first members that fit; the first one gets half of the room if it is too large."""
    pieces: dict[bytes, TruncatedValue] = {}
    left = room
    for key, value in members.items():
        name = encoded_key(key)
        rest = left - character_count(name)
        data = minified_if_fits(value, rest)
        if data is None and pieces:
            break
        piece = (
            TruncatedValue(data, None) if data is not None else truncate_value(value, rest // 2, depth + 1)
        )
        if piece is not None:
            pieces[name] = piece
            left = rest - character_count(piece.content) - 1
    return pieces


def _truncate_string(value: Content | Raw, room: int) -> TruncatedValue | None:
    # Two quotes and the ellipsis.
    length = room - 3
    if length < 1:
        return None
    text = memoryview(decode_raw(value))[1:-1]
    head = first_characters(bytes(text[: length * MAX_CHARACTER_BYTES]), length)
    kept = head[: end_of_whole_escapes(head)]
    total = count_characters(value) - 2
    loss = TruncationLoss(False, len(text), character_count(kept), total, PageUnit.CHARACTERS)
    return TruncatedValue(b'"' + kept + _ELLIPSIS + b'"', loss)


def encoded_key(key: str) -> bytes:
    return msgspec.json.encode(key) + b":"


def size_within(value: Raw, room: int) -> int:
    """Its characters if it may fit, its bytes if it cannot."""
    data = minified_if_fits(value, room)
    return len(memoryview(value)) if data is None else character_count(data)


def join_parts(opening: bytes, parts: Iterable[bytes], closing: bytes) -> bytes:
    return opening + b",".join(parts) + closing


def element_loss(value: Content | Raw, shown: int, total: int, *, of_array: bool) -> TruncationLoss:
    return TruncationLoss(of_array, len(memoryview(value)), shown, total, PageUnit.ELEMENTS)


class TruncatedContent(msgspec.Struct, frozen=True):
    """The part of a content that fits; `whole` says whether only white space is missing."""

    content: bytes
    # Of the largest truncated array; else of the members, of a long string, or of the lines.
    shown: int
    total: int
    unit: PageUnit
    whole: bool


def whole_content(content: bytes, count: int = 1, unit: PageUnit = PageUnit.ELEMENTS) -> TruncatedContent:
    """A content of which nothing is missing."""
    return TruncatedContent(content, count, count, unit, whole=True)


def truncate_json(content: Content, room: int) -> TruncatedContent:
    """At most `room` characters of JSON of the same type: first elements, small members, parts of large ones.

    Numbers and strings are kept byte for byte; a string that is too long ends with `…`. Without room for
    anything it is `[]` or `{}`. Raises ProcessingError if the content is no JSON.
    """
    try:
        piece = TruncatedValue(content[:], None) if fits(content, room) else truncate_value(content, room)
        if piece is None:
            # A number of hundreds of digits, or a string without room for a single character.
            least = b'""' if leading_byte(content) == b'"' else b"null"
            return TruncatedContent(least, 0, 1, PageUnit.ELEMENTS, whole=False)
        if piece.loss is None:
            return whole_content(piece.content, element_count(piece.content))
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProcessingError(
            "The result is no JSON that can be cut: read it in lines or characters."
        ) from error
    return TruncatedContent(piece.content, piece.loss.shown, piece.loss.total, piece.loss.unit, whole=False)


def truncate_text(content: Content, room: int) -> TruncatedContent:
    """The first lines that fit, without the last line end; the first characters of an endless line."""
    room = max(room, 0)
    # One character more than fits: the line end behind the last line is not shown.
    head = content[: (room + 1) * MAX_CHARACTER_BYTES].decode(errors="replace")[: room + 1]
    if len(head) <= room:
        return whole_content(content[:], count_lines(content), PageUnit.LINES)
    lines, line_end, _ = head.rpartition("\n")
    # A short line before an endless one does not leave the page nearly empty.
    if line_end and lines.strip() and len(lines) >= room // 2:
        shown, text = lines.count("\n") + 1, lines.removesuffix("\r").encode()
        return TruncatedContent(text, shown, count_lines(content), PageUnit.LINES, whole=False)
    after_space = head.rfind(" ", room - room // 10, room) + 1
    head = head[: after_space or room]
    total = count_characters(content)
    return TruncatedContent(head.encode(), len(head), total, PageUnit.CHARACTERS, whole=False)


MARKER = " <truncated by smart mcp proxy> "

_TAIL = 50
# Below this the head would be shorter than the tail.
_SMALLEST = _TAIL + len(MARKER) + _TAIL


def head_tail_size(limit: int) -> int:
    """The number of characters of a truncated text."""
    return limit if limit >= _SMALLEST else max(limit, 0) + len(MARKER)


def head_tail(text: str, limit: int) -> str:
    """The first part, the marker and the last 50 characters, `limit` characters in all.

    A limit under 132 gives the first `limit` characters and the marker. A text within the limit, or one that
    would not become shorter, is unchanged.
    """
    limit = max(limit, 0)
    if len(text) <= head_tail_size(limit):
        return text
    if limit < _SMALLEST:
        return text[:limit] + MARKER
    return text[: limit - len(MARKER) - _TAIL] + MARKER + text[-_TAIL:]
