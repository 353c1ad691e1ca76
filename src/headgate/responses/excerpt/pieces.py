"""JSON values cut to a room: arrays lose their last elements, objects share the room among their members."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import DecodeError, Raw

from headgate.responses.content import Content, characters, clipped, first_sign
from headgate.responses.escapes import whole_escapes
from headgate.responses.excerpt.counting import count_characters
from headgate.responses.params import Unit

# Deeper parts are left out: each level is one more scan of what is below it.
_DEEPEST = 20
_BYTES_PER_CHARACTER = 4
# Nothing is shorter than this member with its comma: `"":1,`.
_SHORTEST_MEMBER = 5
# So many large members share the room, however little each gets ...
_FEW_MEMBERS = 32
# ... and more than that only if each gets so many characters, because nobody can read a hundred stumps.
_READABLE = 64
_ELLIPSIS = "…".encode()

_elements = msgspec.json.Decoder(list[Raw])
_members = msgspec.json.Decoder(dict[str, Raw])
_value = msgspec.json.Decoder(Raw)


class Loss(NamedTuple):
    """What was cut, and how much of it is left; of several losses that of the largest array tells most."""

    of_array: bool
    # In bytes, of the value that was cut.
    size: int
    shown: int
    total: int
    unit: Unit


class Piece(NamedTuple):
    """What fits of a value; without a loss it is all of it."""

    content: bytes
    loss: Loss | None


def kind_of(value: Content | Raw) -> bytes:
    """The sign that a value begins with: `[`, `{`, a quote, or that of a number or a word."""
    # White space is only around the outermost value.
    return bytes(memoryview(value)[:1]) if isinstance(value, Raw) else first_sign(value)


def count_of(value: bytes) -> int:
    """How many elements or members there are; any other value counts as one. Raises as msgspec does."""
    match kind_of(value):
        case b"[":
            return len(_elements.decode(value))
        case b"{":
            return len(_members.decode(value))
    _value.decode(value)
    return 1


def cut_value(value: Content | Raw, room: int, depth: int = 0) -> Piece | None:
    """What fits of a value, None where that is nothing. The outermost array or object is always there.

    Raises as msgspec does if the value is no JSON, or too deep for it.
    """
    if depth and (room < 2 or depth > _DEEPEST):
        return None
    data = fitting(value, room)
    if data is not None:
        return Piece(data, None)
    try:
        return _cut(value, room, depth)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        # What cannot be opened is left out, but the outermost value is no JSON then.
        if depth:
            return None
        raise


def _cut(value: Content | Raw, room: int, depth: int) -> Piece | None:
    match kind_of(value):
        case b"[":
            return _cut_array(value, room, depth)
        case b"{":
            return _cut_object(value, room, depth)
        case b'"':
            return _cut_string(value, room)
    _value.decode(value)
    return None


def fitting(value: Content | Raw, room: int) -> bytes | None:
    """The value without line ends between its parts, if it fits."""
    with memoryview(value) as view:
        if len(view) > room * _BYTES_PER_CHARACTER:
            return None
        data = bytes(view)
    if b"\n" in data:
        # In JSON a line end is never part of a value, and indentation would take a third of the room.
        try:
            data = msgspec.json.format(data, indent=-1)
        except (DecodeError, RecursionError):
            return None
    return data if characters(data) <= room else None


def _cut_array(value: Content | Raw, room: int, depth: int) -> Piece:
    elements = _elements.decode(value)
    kept: list[bytes] = []
    left = room - 2
    for element in elements:
        data = fitting(element, left)
        if data is None:
            break
        kept.append(data)
        left -= characters(data) + 1
    if len(kept) == len(elements):
        return Piece(joined(b"[", kept, b"]"), None)
    first = None if kept else cut_value(elements[0], left, depth + 1)
    if first is not None:
        kept.append(first.content)
        if len(elements) == 1:
            return Piece(joined(b"[", kept, b"]"), first.loss)
    return Piece(joined(b"[", kept, b"]"), loss_of(value, len(kept), len(elements), of_array=True))


def _cut_object(value: Content | Raw, room: int, depth: int) -> Piece:
    members = _members.decode(value)
    pieces: dict[bytes, Piece] = {}
    if len(members) <= room // _SHORTEST_MEMBER:
        pieces = _shared(members, room - 2, depth)
    pieces = pieces or _first_members(members, room - 2, depth)
    kept = joined(b"{", (name + piece.content for name, piece in pieces.items()), b"}")
    losses = [piece.loss for piece in pieces.values() if piece.loss is not None]
    return Piece(kept, most_telling(value, losses, len(pieces), len(members)))


def most_telling(value: Content | Raw, losses: Sequence[Loss], shown: int, total: int) -> Loss | None:
    """What an object has lost, of which so many members are shown: the largest array tells most."""
    if not losses and shown == total:
        return None
    arrays = [loss for loss in losses if loss.of_array]
    if arrays:
        return max(arrays, key=lambda loss: loss.size)
    if len(losses) == 1 and shown == total:
        return losses[0]
    return loss_of(value, shown, total, of_array=False)


def _shared(members: Mapping[str, Raw], room: int, depth: int) -> dict[bytes, Piece]:
    """Small members whole and a fair share for each large one; nothing where shares would be too small."""
    names = {key: name_of(key) for key in members}
    left = room + 1 - sum(characters(name) + 1 for name in names.values())
    if left <= 0:
        return {}
    sizes = {key: size_of(value, left) for key, value in members.items()}
    pieces: dict[str, Piece | None] = {}
    for rank, key in enumerate(sorted(members, key=sizes.__getitem__)):
        waiting = len(members) - rank
        share = left // waiting
        if sizes[key] > share and waiting > _FEW_MEMBERS and share < _READABLE:
            return {}
        piece = cut_value(members[key], share, depth + 1) if share else None
        pieces[key] = piece
        left -= characters(piece.content) if piece else -characters(names[key]) - 1
    return {names[key]: piece for key in members if (piece := pieces[key]) is not None}


def _first_members(members: Mapping[str, Raw], room: int, depth: int) -> dict[bytes, Piece]:
    """The first members as long as they fit; if the first one is too large, it gets half of the room."""
    pieces: dict[bytes, Piece] = {}
    left = room
    for key, value in members.items():
        name = name_of(key)
        rest = left - characters(name)
        data = fitting(value, rest)
        if data is None and pieces:
            break
        piece = Piece(data, None) if data is not None else cut_value(value, rest // 2, depth + 1)
        if piece is not None:
            pieces[name] = piece
            left = rest - characters(piece.content) - 1
    return pieces


def _cut_string(value: Content | Raw, room: int) -> Piece | None:
    # Two quotes and the ellipsis.
    length = room - 3
    if length < 1:
        return None
    text = memoryview(_value.decode(value))[1:-1]
    head = clipped(bytes(text[: length * _BYTES_PER_CHARACTER]), length)
    kept = head[: whole_escapes(head)]
    total = count_characters(value) - 2
    loss = Loss(False, len(text), characters(kept), total, Unit.CHARACTERS)
    return Piece(b'"' + kept + _ELLIPSIS + b'"', loss)


def name_of(key: str) -> bytes:
    return msgspec.json.encode(key) + b":"


def size_of(value: Raw, room: int) -> int:
    """Its characters if it may fit, its bytes if it cannot."""
    data = fitting(value, room)
    return len(memoryview(value)) if data is None else characters(data)


def joined(opening: bytes, parts: Iterable[bytes], closing: bytes) -> bytes:
    return opening + b",".join(parts) + closing


def loss_of(value: Content | Raw, shown: int, total: int, *, of_array: bool) -> Loss:
    """The loss of elements or members."""
    return Loss(of_array, len(memoryview(value)), shown, total, Unit.ELEMENTS)
