"""The first part of a content that fits, cut where it stays JSON or where a line ends."""

import msgspec
from msgspec import DecodeError

from headgate.responses.content import Content, characters
from headgate.responses.excerpt.counting import count_characters, count_lines
from headgate.responses.excerpt.pieces import count_of, cut_value, kind_of
from headgate.responses.params import Unit
from headgate.responses.processing import Refused

# In UTF-8, so what is longer than this times the room does not fit.
_BYTES_PER_CHARACTER = 4


class Cut(msgspec.Struct, frozen=True):
    """What fits of a content; `whole` is whether nothing is missing but white space between values."""

    content: bytes
    # Of the largest array that was cut; else of the members, of a long string, or of the lines.
    shown: int
    total: int
    unit: Unit
    whole: bool


def cut_json(content: Content, room: int) -> Cut:
    """At most `room` characters of JSON of the same kind: first elements, small members, parts of large ones.

    Numbers and strings are kept byte for byte, only a string that is too long ends with `…`. Without room for
    anything it is `[]` or `{}`. Raises Refused for what is no JSON.
    """
    try:
        if len(content) <= room * _BYTES_PER_CHARACTER and characters(content[:]) <= room:
            count = count_of(content[:])
            return Cut(content[:], count, count, Unit.ELEMENTS, whole=True)
        piece = cut_value(content, room)
        if piece is not None and piece.loss is None:
            count = count_of(piece.content)
            return Cut(piece.content, count, count, Unit.ELEMENTS, whole=True)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("The result is no JSON that can be cut: read it in lines or characters.") from error
    if piece is None or piece.loss is None:
        # A number of hundreds of digits, or a string without room for one sign of it.
        return Cut(b'""' if kind_of(content) == b'"' else b"null", 0, 1, Unit.ELEMENTS, whole=False)
    return Cut(piece.content, piece.loss.shown, piece.loss.total, piece.loss.unit, whole=False)


def cut_text(content: Content, room: int) -> Cut:
    """The first lines that fit, without the last line end; of an endless one its first characters."""
    room = max(room, 0)
    # One character more than fits: the line end behind the last line is not shown.
    head = content[: (room + 1) * _BYTES_PER_CHARACTER].decode(errors="replace")[: room + 1]
    if len(head) <= room:
        count = count_lines(content)
        return Cut(content[:], count, count, Unit.LINES, whole=True)
    lines, line_end, _ = head.rpartition("\n")
    # A short line before an endless one does not leave the page empty.
    if line_end and lines.strip() and len(lines) >= room // 2:
        shown = lines.count("\n") + 1
        return Cut(lines.removesuffix("\r").encode(), shown, count_lines(content), Unit.LINES, whole=False)
    head = head[:room]
    after_space = head.rfind(" ", room - room // 10) + 1
    head = head[: after_space or room]
    return Cut(head.encode(), len(head), count_characters(content), Unit.CHARACTERS, whole=False)
