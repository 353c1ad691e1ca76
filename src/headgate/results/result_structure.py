"""The structure of a tool result: content blocks, their texts, structuredContent and all other members."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import DecodeError, Raw, ValidationError

from headgate.protocol.json_scan import JsonObjectScanner, array_elements
from headgate.results.content import (
    Content,
    Scratch,
    count_characters,
    decode_elements,
    decode_members,
    is_json,
    join_windows,
    needless_escape_characters,
    replace_invalid_unicode,
    string_windows,
    windows,
)
from headgate.results.pipeline import ProcessingError

# A longer text is decoded and stored in pieces.
_LARGE_TEXT = 4 * 1024 * 1024
_WINDOW = 1024 * 1024
_WHITE_SPACE = re.compile(rb"\s")
_UNREADABLE = "the result cannot be read as a result of the protocol"


class _ResourceFields(msgspec.Struct):
    text: Raw = Raw(b"")


class _BlockFields(msgspec.Struct):
    type: str = ""
    text: Raw = Raw(b"")
    resource: Raw = Raw(b"")


_block = msgspec.json.Decoder(_BlockFields)
_resource = msgspec.json.Decoder(_ResourceFields)


class ContentBlock(msgspec.Struct, frozen=True):
    """One content block, unmodified; `text` is the JSON string in it that a model reads."""

    raw: Raw
    type: str
    text: Raw | None = None

    def with_text(self, text: bytes) -> bytes:
        """The block with another text, and every other member unchanged."""
        members: dict[str, Any] = decode_members(self.raw)
        holder = members
        if self.type == "resource":
            holder = members["resource"] = decode_members(members["resource"])
        holder["text"] = text.decode(errors="replace")
        return msgspec.json.encode(members)


class ResultStructure(msgspec.Struct, frozen=True):
    """The parts of a result."""

    members: dict[str, Raw]
    blocks: list[ContentBlock]
    structured: Raw | None

    @property
    def complete(self) -> bool:
        """Whether it is a final result, not an input request of the upstream."""
        return bytes(self.members.get("resultType", b'"complete"')) == b'"complete"'

    @property
    def failed(self) -> bool:
        """Whether the tool reports a failure."""
        return bytes(self.members.get("isError", b"false")) == b"true"


def parse_structure(result: Content | memoryview) -> ResultStructure:
    """The parts of a result, as views of its bytes; raises ProcessingError when it is none."""
    try:
        members = top_level_members(result)
        content = members.get("content", Raw(b"[]"))
        blocks: list[Raw] = []
        if bytes(memoryview(content)[:1]) == b"[":
            try:
                blocks = decode_elements(content)
            except RecursionError:
                blocks = [Raw(block) for block in array_elements(bytes(content))]
        parsed = [_parse_block(raw) for raw in blocks]
    except ValueError as error:
        # Invalid Unicode is replaced, and the rest is read.
        readable = replace_invalid_unicode(bytes(result))
        if readable != result:
            return parse_structure(readable)
        raise ProcessingError(f"{_UNREADABLE}: {error}") from error
    structured = members.get("structuredContent")
    return ResultStructure(members, parsed, None if structured in (None, Raw(b"null")) else structured)


def top_level_members(result: Content | memoryview | Raw) -> dict[str, Raw]:
    """The members of an object, however deep they nest; raises ValueError."""
    try:
        return decode_members(result)
    except RecursionError:
        # Nested deeper than the parser allows: only the outermost level is scanned.
        scanner = JsonObjectScanner()
        data = bytes(result)
        scanner.feed(data)
        return {key: Raw(data[start:end]) for key, (start, end) in scanner.finish().items()}


def _parse_block(raw: Raw) -> ContentBlock:
    try:
        block = _block.decode(raw)
    except RecursionError:
        block = _skim_block(raw)
    except ValidationError:
        return ContentBlock(raw, "")
    text = block.text if block.type == "text" else Raw(b"")
    if block.type == "resource":
        with suppress(RecursionError, DecodeError):
            text = _resource.decode(block.resource).text
    return ContentBlock(raw, block.type, text if bytes(memoryview(text)[:1]) == b'"' else None)


def _skim_block(raw: Raw) -> _BlockFields:
    """A block that is nested deeper than the parser allows."""
    try:
        members = top_level_members(raw)
        kind = msgspec.json.decode(members.get("type", b'""'), type=str)
    except ValueError:
        return _BlockFields()
    return _BlockFields(kind, members.get("text", Raw(b"")), members.get("resource", Raw(b"")))


def parse_envelope(result: bytes) -> ResultStructure:
    """The result, parsed only as far as needed to see whether it is complete and successful."""
    try:
        return ResultStructure(top_level_members(result), [], None)
    except ValueError:
        return ResultStructure({}, [], None)


def visible_size(result: bytes) -> int:
    """The characters that a model reads: clients show the texts or `structuredContent`, the larger counts."""
    try:
        structure = parse_structure(result)
        texts = sum(len(decode_string(block.text)) for block in structure.blocks if block.text is not None)
        return max(texts, 0 if structure.structured is None else compact_size(structure.structured))
    except (ProcessingError, UnicodeDecodeError):
        # A result that cannot be parsed counts with all of its bytes.
        return len(result)


def compact_size(structured: Raw) -> int:
    """The characters of `structuredContent` as compact JSON without needless escapes."""
    compact = bytes(structured)
    # JSON without white space in its first megabyte is not indented.
    if _WHITE_SPACE.search(compact, 0, _WINDOW):
        # Nested too deeply to be formatted, it counts as it is written.
        with suppress(DecodeError, RecursionError):
            compact = msgspec.json.format(compact, indent=-1)
    # In larger JSON escapes count as they are written: scanning them would take seconds.
    spare = needless_escape_characters(compact) if len(compact) <= _LARGE_TEXT else 0
    return count_characters(compact) - spare


def decode_string(literal: Raw) -> str:
    """The text of a JSON string; invalid Unicode is replaced."""
    try:
        return msgspec.json.decode(literal, type=str)
    except (DecodeError, UnicodeDecodeError):
        text = json.loads(bytes(literal).decode(errors="replace"), strict=False)
        return str(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def decode_text(literal: Raw, scratch: Scratch) -> Content:
    """The UTF-8 text of a JSON string of any length."""
    if len(memoryview(literal)) <= _LARGE_TEXT:
        return decode_string(literal).encode()
    escaped = string_windows(memoryview(literal)[1:-1])
    return scratch.store(decode_string(Raw(b'"%b"' % window)).encode() for window in escaped)


class ResultDocument(msgspec.Struct, frozen=True):
    """All texts of a result as one content, which is searched, explored, read and queried."""

    content: Content
    json: bool


def build_document(
    structure: ResultStructure, texts: Mapping[int, Content], scratch: Scratch
) -> ResultDocument:
    """The texts of a result as one: several JSON values as an array, other texts concatenated.

    Without a text, or with one that is only a summary, `structuredContent` is the document.
    """
    if structure.structured is not None and exceeds_texts(structure.structured, texts):
        content = scratch.store(windows(structure.structured))
        return ResultDocument(content, is_json(content))
    if len(texts) < 2:
        only = next(iter(texts.values()), b"")
        return ResultDocument(only, is_json(only))
    if all(map(is_json, texts.values())):
        return ResultDocument(scratch.store(join_windows(texts.values())), json=True)
    return ResultDocument(scratch.store(join_windows(texts.values(), b"", b"\n", b"")), json=False)


def exceeds_texts(structured: Raw, texts: Mapping[int, Content]) -> bool:
    """Whether `structuredContent` cannot be entirely contained in the texts, which mostly repeat it."""
    return len(memoryview(structured)) > 2 * sum(map(len, texts.values()))
