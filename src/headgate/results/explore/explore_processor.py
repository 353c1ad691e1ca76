"""Describes the structure of a content: JSON by path, text by format."""

import re
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.results.content import Content, MemoryScratch, Scratch, character_count, first_byte, is_json
from headgate.results.embedded_json import MainJson, main_json_or_count
from headgate.results.explore.json_outline import OutlineBranch, json_type, outline_json, sample_values
from headgate.results.explore.text_outline import outline_text
from headgate.results.jobs import ExploreParams
from headgate.results.json_paths import PathTarget, resolve_path
from headgate.results.pipeline import ProcessorResult, processed
from headgate.results.result_structure import decode_text
from headgate.results.text_stream import json_lines, string_text_chunks, text_chunks
from headgate.results.token_estimate import estimate_tokens

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

    def process(self, content: Content, params: ExploreParams) -> ProcessorResult:
        """A JSON object that fits the room. Raises Refused when nothing is at the path."""
        where = resolve_path(content, params.path, self._scratch)
        facts: dict[str, Any] = {"path": where.path} if where.path else {}
        root = _lines_root(where, facts) or _json_root(where)
        if root is None:
            root = self._held_root(where, facts)
        if root is None:
            return processed(content, _describe_text(where, facts, params), {"type": "text"})
        made, depth = outline_json(root, facts, params.max_depth, params.room)
        return processed(content, made, {"type": "json", "depth": depth})

    def _held_root(self, where: PathTarget, facts: dict[str, Any]) -> OutlineBranch | None:
        """The JSON of a text that has little else in it; of other texts, a word on the JSON in them."""
        text = _unquoted(where, self._scratch)
        facts["type"] = "string" if _is_string(where) else "text"
        main, mentioned = main_json_or_count(text, self._scratch)
        if mentioned:
            first = f"{where.path}[0]" if mentioned > 1 else where.path or "$"
            facts["json_inside"] = f"paths open it, from {first} on"
        if main is None and _is_string(where) and is_json(text):
            main = MainJson(text, b"")
        return None if main is None else _embedded_branch(where, main, facts)


def _embedded_branch(where: PathTarget, main: MainJson, facts: dict[str, Any]) -> OutlineBranch:
    value = Raw(memoryview(main.content))
    facts["holds"] = json_type(value)
    head = _FENCE.sub("", main.around.decode(errors="replace")).strip()
    if head:
        facts["head"] = head[:_HEAD]
    return OutlineBranch(where.path, [value])


def _describe_text(where: PathTarget, facts: dict[str, Any], params: ExploreParams) -> bytes:
    texts = string_text_chunks(where.value) if _is_string(where) else text_chunks(where.value)
    facts["tokens"] = estimate_tokens(where.value)
    return outline_text(texts, facts, params.max_depth, params.room)


def explore_blocks(
    blocks: Content, count: int, params: ExploreParams, scratch: Scratch
) -> tuple[list[bytes], dict[str, Any]]:
    """What each of several texts consists of, given as one array; of very many, what they have in common."""
    explorer = ExploreProcessor(scratch)
    if count > _FEW_BLOCKS:
        return _explore_as_one(blocks, params, scratch)
    paths: dict[str, Any] = {}
    room = (params.room - _OVERHEAD) // count
    for index in range(count):
        part = msgspec.structs.replace(params, path=f"[{index}]", room=room - _OVERHEAD)
        facts = msgspec.json.decode(explorer.process(blocks, part).content[:], type=dict[str, Raw])
        below = msgspec.json.decode(facts.pop("paths", b"{}"), type=dict[str, Raw])
        path = msgspec.json.decode(facts.pop("path", Raw(b'""')), type=str) or part.path
        paths |= {path: facts} | below
    told = msgspec.json.encode(
        {"type": "texts", "count": count, "tokens": estimate_tokens(blocks), "paths": paths}
    )
    if character_count(told) > params.room:
        return _explore_as_one(blocks, params, scratch)
    return [told], {"explore": {"type": "json", "depth": params.max_depth}}


def _explore_as_one(
    blocks: Content, params: ExploreParams, scratch: Scratch
) -> tuple[list[bytes], dict[str, Any]]:
    made = ExploreProcessor(scratch).process(blocks, params)
    return [made.content[:]], {"explore": dict(made.metadata)}


def _lines_root(where: PathTarget, facts: dict[str, Any]) -> OutlineBranch | None:
    """The objects of JSON Lines, whose fields are named as if there was one object."""
    lines = None if where.path else json_lines(where.value)
    if lines is None or len(lines) < 2:
        return None
    looked_at = sample_values(lines)
    facts |= {"type": "json lines", "count": len(lines), "of": "object"}
    if len(looked_at) < len(lines):
        facts["looked_at"] = len(looked_at)
    return OutlineBranch("", looked_at, weight=len(lines) / len(looked_at))


def _json_root(where: PathTarget) -> OutlineBranch | None:
    """The value, if it is no text: neither plain, nor in a string, nor an object whose keys are no UTF-8."""
    sign = first_byte(where.value)
    if sign == b'"' or not (where.path or sign in (b"{", b"[")):
        return None
    try:
        value = _raw.decode(where.value)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    root = OutlineBranch(where.path, [value], element_path=where.element_path)
    return None if sign == b"{" and root.is_undecodable else root


def _is_string(where: PathTarget) -> bool:
    return bool(where.path) and first_byte(where.value) == b'"'


def _unquoted(where: PathTarget, scratch: Scratch | None) -> Content:
    """The text; of a string in JSON, what it stands for."""
    if not _is_string(where):
        return where.value
    return decode_text(Raw(memoryview(where.value)), scratch or MemoryScratch())
