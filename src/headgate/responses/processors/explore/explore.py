"""Says what is in a content, in few words: of JSON every branch with its path, of a text how it is made."""

from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.responses.content import Content, Scratch, first_sign
from headgate.responses.params import Exploration
from headgate.responses.processing import ProcessorResult, done
from headgate.responses.processors.explore.branches import Branch, spread
from headgate.responses.processors.explore.outline import outlined
from headgate.responses.processors.explore.prose import described_text
from headgate.responses.processors.lines import json_lines, texts_of, texts_of_string
from headgate.responses.processors.places import Place, place
from headgate.responses.tokens import tokens_of

_raw = msgspec.json.Decoder(Raw)


class ExploreProcessor:
    """Says what a content is made of, or the part that a path leads to."""

    name = "explore"

    def __init__(self, scratch: Scratch | None = None) -> None:
        """`scratch` keeps the part that a path leads to."""
        self._scratch = scratch

    def process(self, content: Content, params: Exploration) -> ProcessorResult:
        """A JSON object that fits the room. Raises Refused when nothing is at the path."""
        where = place(content, params.path, self._scratch)
        facts: dict[str, Any] = {"path": where.path} if where.path else {}
        root = _lines_root(where, facts) or _json_root(where)
        if root is None:
            return done(content, _text(where, facts, params.room), {"type": "text"})
        made, depth = outlined(root, facts, params.max_depth, params.room)
        return done(content, made, {"type": "json", "depth": depth})


def _lines_root(where: Place, facts: dict[str, Any]) -> Branch | None:
    """The objects of JSON Lines, whose fields are named as if there was one object."""
    lines = None if where.path else json_lines(where.value)
    if lines is None:
        return None
    looked_at = spread(lines)
    facts |= {"type": "json lines", "count": len(lines), "of": "object"}
    if len(looked_at) < len(lines):
        facts["looked_at"] = len(looked_at)
    return Branch("", looked_at, weight=len(lines) / len(looked_at))


def _json_root(where: Place) -> Branch | None:
    """The value, if it is no text: neither plain, nor in a string, nor an object whose keys are no UTF-8."""
    sign = first_sign(where.value)
    if sign == b'"' or not (where.path or sign in (b"{", b"[")):
        return None
    try:
        value = _raw.decode(where.value)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    root = Branch(where.path, [value], element_path=where.element_path)
    return None if sign == b"{" and root.is_closed else root


def _text(where: Place, facts: dict[str, Any], room: int) -> bytes:
    is_string = where.path and first_sign(where.value) == b'"'
    texts = texts_of_string(where.value) if is_string else texts_of(where.value)
    facts |= {"type": "string" if is_string else "text", "tokens": tokens_of(where.value)}
    return described_text(texts, facts, room)
