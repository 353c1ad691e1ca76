"""Says what is in a content, in few words: of JSON every branch with its path, of a text how it is made."""

import re
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.responses.anatomy import text_of
from headgate.responses.content import Content, InMemory, Scratch, characters, first_sign, is_json
from headgate.responses.embedded import MainJson, main_or_mentioned
from headgate.responses.params import Exploration
from headgate.responses.processing import ProcessorResult, done
from headgate.responses.processors.explore.branches import Branch, kind_of, spread
from headgate.responses.processors.explore.outline import outlined
from headgate.responses.processors.explore.prose import described_text
from headgate.responses.processors.lines import json_lines, texts_of, texts_of_string
from headgate.responses.processors.places import Place, place
from headgate.responses.tokens import tokens_of

# Texts that are described one by one.
_FEW_BLOCKS = 8
# What stands around the description of a text: its path, and the commas.
_OVERHEAD = 60
_HEAD = 200

_FENCE = re.compile(r"^[ \t]*(?:```|~~~).*\n?|^[ \t\r]*\n", re.MULTILINE)

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
            root = self._held_root(where, facts)
        if root is None:
            return done(content, _text(where, facts, params), {"type": "text"})
        made, depth = outlined(root, facts, params.max_depth, params.room)
        return done(content, made, {"type": "json", "depth": depth})

    def _held_root(self, where: Place, facts: dict[str, Any]) -> Branch | None:
        """The JSON of a text that has little else in it; of other texts, a word on the JSON in them."""
        text = _unquoted(where, self._scratch)
        facts["type"] = "string" if _is_string(where) else "text"
        main, mentioned = main_or_mentioned(text, self._scratch)
        if mentioned:
            first = f"{where.path}[0]" if mentioned > 1 else where.path or "$"
            facts["json_inside"] = f"paths open it, from {first} on"
        if main is None and _is_string(where) and is_json(text):
            main = MainJson(text, b"")
        return None if main is None else _held_branch(where, main, facts)


def _held_branch(where: Place, main: MainJson, facts: dict[str, Any]) -> Branch:
    value = Raw(memoryview(main.content))
    facts["holds"] = kind_of(value)
    head = _FENCE.sub("", main.around.decode(errors="replace")).strip()
    if head:
        facts["head"] = head[:_HEAD]
    return Branch(where.path, [value])


def _text(where: Place, facts: dict[str, Any], params: Exploration) -> bytes:
    texts = texts_of_string(where.value) if _is_string(where) else texts_of(where.value)
    facts["tokens"] = tokens_of(where.value)
    return described_text(texts, facts, params.max_depth, params.room)


def explored_blocks(
    blocks: Content, count: int, params: Exploration, scratch: Scratch
) -> tuple[list[bytes], dict[str, Any]]:
    """What each of several texts consists of, given as one array; of very many, what they have in common."""
    explorer = ExploreProcessor(scratch)
    if count > _FEW_BLOCKS:
        return _together(blocks, params, scratch)
    paths: dict[str, Any] = {}
    room = (params.room - _OVERHEAD) // count
    for index in range(count):
        part = msgspec.structs.replace(params, path=f"[{index}]", room=room - _OVERHEAD)
        facts = msgspec.json.decode(explorer.process(blocks, part).content[:], type=dict[str, Raw])
        below = msgspec.json.decode(facts.pop("paths", b"{}"), type=dict[str, Raw])
        path = msgspec.json.decode(facts.pop("path", Raw(b'""')), type=str) or part.path
        paths |= {path: facts} | below
    told = msgspec.json.encode({"type": "texts", "count": count, "tokens": tokens_of(blocks), "paths": paths})
    if characters(told) > params.room:
        return _together(blocks, params, scratch)
    return [told], {"explore": {"type": "json", "depth": params.max_depth}}


def _together(blocks: Content, params: Exploration, scratch: Scratch) -> tuple[list[bytes], dict[str, Any]]:
    made = ExploreProcessor(scratch).process(blocks, params)
    return [made.content[:]], {"explore": dict(made.metadata)}


def _lines_root(where: Place, facts: dict[str, Any]) -> Branch | None:
    """The objects of JSON Lines, whose fields are named as if there was one object."""
    lines = None if where.path else json_lines(where.value)
    if lines is None or len(lines) < 2:
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


def _is_string(where: Place) -> bool:
    return bool(where.path) and first_sign(where.value) == b'"'


def _unquoted(where: Place, scratch: Scratch | None) -> Content:
    """The text; of a string in JSON, what it stands for."""
    if not _is_string(where):
        return where.value
    return text_of(Raw(memoryview(where.value)), scratch or InMemory())
