"""The structure of a tool result: content blocks, their texts, structuredContent and all other members."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import msgspec
from msgspec import UNSET, DecodeError, Raw, UnsetType, ValidationError

from headgate.protocol.json_scan import JsonObjectScanner, array_elements
from headgate.results.content import (
    Content,
    Scratch,
    count_characters,
    end_of_whole_escapes,
    is_json,
    needless_escape_characters,
    replace_invalid_unicode,
)
from headgate.results.pipeline import ProcessingError

# A text that is longer as it stands in the message is read and kept piece by piece.
_LARGE_TEXT = 4 * 1024 * 1024
_WINDOW = 1024 * 1024
_WHITE_SPACE = re.compile(rb"\s")
# What follows no backslash and is one begins an escape.
_FIRST_BACKSLASH = re.compile(rb"[^\\](?=\\)", re.DOTALL)
# So far before the end of a piece is looked for an escape that may be cut through.
_NEAR = 64
_UNREADABLE = "the result cannot be read as a result of the protocol"

_members = msgspec.json.Decoder(dict[str, Raw])
_elements = msgspec.json.Decoder(list[Raw])


class _ResourceFields(msgspec.Struct):
    text: Raw | UnsetType = UNSET


class _BlockFields(msgspec.Struct):
    type: str = ""
    text: Raw | UnsetType = UNSET
    resource: Raw | UnsetType = UNSET


_block = msgspec.json.Decoder(_BlockFields)
_resource = msgspec.json.Decoder(_ResourceFields)


class ContentBlock(msgspec.Struct, frozen=True):
    """One block of content as it came; `text` is the JSON string in it that a model reads."""

    raw: Raw
    type: str
    text: Raw | None = None

    def with_text(self, text: bytes) -> bytes:
        """The block with another text, and every other member as it came."""
        members = _members.decode(self.raw)
        if self.type == "resource":
            inner = _members.decode(members["resource"])
            members["resource"] = Raw(msgspec.json.encode(inner | {"text": text.decode(errors="replace")}))
            return msgspec.json.encode(members)
        return msgspec.json.encode(members | {"text": text.decode(errors="replace")})


class ResultStructure(msgspec.Struct, frozen=True):
    """A result in its parts."""

    members: dict[str, Raw]
    blocks: list[ContentBlock]
    structured: Raw | None

    @property
    def complete(self) -> bool:
        """Whether it is an answer, and not a question of the upstream."""
        return bytes(self.members.get("resultType", b'"complete"')) == b'"complete"'

    @property
    def failed(self) -> bool:
        """Whether the tool says that it failed."""
        return bytes(self.members.get("isError", b"false")) == b"true"


def parse_structure(result: Content | memoryview) -> ResultStructure:
    """The parts of a result, which stay views of its bytes; raises Refused when it has none."""
    try:
        members = top_level_members(result)
        blocks = [_parse_block(raw) for raw in _content(members.get("content", Raw(b"[]")))]
    except ValueError as error:
        # What is no Unicode in it is shown as such, and the rest is read.
        readable = replace_invalid_unicode(bytes(result))
        if readable != result:
            return parse_structure(readable)
        raise ProcessingError(f"{_UNREADABLE}: {error}") from error
    structured = members.get("structuredContent")
    return ResultStructure(members, blocks, None if structured in (None, Raw(b"null")) else structured)


def top_level_members(result: Content | memoryview | Raw) -> dict[str, Raw]:
    """The members of an object, however deep they are nested; raises ValueError."""
    try:
        return _members.decode(result)
    except RecursionError:
        # Nested deeper than a parser goes: looked at from the outside.
        scanner = JsonObjectScanner()
        data = bytes(result)
        scanner.feed(data)
        return {key: Raw(data[start:end]) for key, (start, end) in scanner.finish().items()}


def _content(raw: Raw) -> list[Raw]:
    if bytes(memoryview(raw)[:1]) != b"[":
        return []
    try:
        return _elements.decode(raw)
    except RecursionError:
        return [Raw(block) for block in array_elements(bytes(raw))]


def _parse_block(raw: Raw) -> ContentBlock:
    try:
        block = _block.decode(raw)
    except RecursionError:
        block = _skim_block(raw)
    except ValidationError:
        return ContentBlock(raw, "")
    if block.type == "text" and _is_string(block.text):
        return ContentBlock(raw, "text", block.text)  # type: ignore[arg-type]
    if block.type == "resource" and block.resource is not UNSET:
        text = _resource_text(block.resource)
        if _is_string(text):
            return ContentBlock(raw, "resource", text)  # type: ignore[arg-type]
    return ContentBlock(raw, block.type)


def _skim_block(raw: Raw) -> _BlockFields:
    """A block with something in it that is nested deeper than a parser goes."""
    try:
        members = top_level_members(raw)
        kind = msgspec.json.decode(members.get("type", b'""'), type=str)
    except ValueError:
        return _BlockFields()
    return _BlockFields(kind, members.get("text", UNSET), members.get("resource", UNSET))


def _resource_text(resource: Raw | UnsetType) -> Raw | UnsetType:
    try:
        return _resource.decode(resource).text  # type: ignore[arg-type]
    except (RecursionError, ValidationError):
        return UNSET


def _is_string(value: Raw | UnsetType) -> bool:
    return value is not UNSET and bytes(memoryview(value)[:1]) == b'"'


def parse_envelope(result: bytes) -> ResultStructure:
    """A result that is not opened further than to know whether it is an answer, and a success."""
    try:
        return ResultStructure(top_level_members(result), [], None)
    except ValueError:
        return ResultStructure({}, [], None)


def visible_size(result: bytes) -> int:
    """How many characters a model gets to read.

    A client shows the texts or `structuredContent`, which mostly say the same: the larger of them counts.
    """
    try:
        structure = parse_structure(result)
        texts = sum(len(decode_string(block.text)) for block in structure.blocks if block.text is not None)
        return max(texts, 0 if structure.structured is None else compact_size(structure.structured))
    except (ProcessingError, UnicodeDecodeError):
        # What nobody can read is as long as it is.
        return len(result)


def compact_size(structured: Raw) -> int:
    """How many characters `structuredContent` has as compact JSON, in which nothing is escaped needlessly."""
    compact = bytes(structured)
    # What has no white space in its first megabyte has none that indents it.
    if _WHITE_SPACE.search(compact, 0, _WINDOW):
        # What is nested too deep for that counts as it was written.
        with suppress(DecodeError, RecursionError):
            compact = msgspec.json.format(compact, indent=-1)
    # In a larger one escapes count as they were written: to look at each would take seconds.
    spare = needless_escape_characters(compact) if len(compact) <= _LARGE_TEXT else 0
    return count_characters(compact) - spare


def decode_string(literal: Raw) -> str:
    """A JSON string as text; what is no Unicode in it is shown as such."""
    try:
        return msgspec.json.decode(literal, type=str)
    except (DecodeError, UnicodeDecodeError):
        text = json.loads(bytes(literal).decode(errors="replace"), strict=False)
        return str(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def decode_text(literal: Raw, scratch: Scratch) -> Content:
    """A JSON string as the UTF-8 that it stands for, however long it is."""
    if len(memoryview(literal)) <= _LARGE_TEXT:
        return decode_string(literal).encode()
    return scratch.store(_unescaped(memoryview(literal)[1:-1]))


def _unescaped(inner: memoryview) -> Iterator[bytes]:
    start = 0
    while start < len(inner):
        end = _boundary(inner, start, min(start + _WINDOW, len(inner)))
        yield decode_string(Raw(b'"' + bytes(inner[start:end]) + b'"')).encode()
        start = end


def _boundary(inner: memoryview, start: int, end: int) -> int:
    """Where a piece can end without cutting through a character or an escape."""
    if end == len(inner):
        return end
    near = max(start, end - _NEAR)
    tail = bytes(inner[near:end])
    if b"\\" not in tail:
        return _whole_character(inner, start, end)
    # From the beginning of an escape on all can be told apart.
    anchor = _FIRST_BACKSLASH.search(tail)
    if anchor is None:
        near, tail = start, bytes(inner[start:end])
    taken = end_of_whole_escapes(tail, anchor.end() if anchor is not None else 0)
    return _whole_character(inner, start, near + taken) if taken else end


def _whole_character(inner: memoryview, start: int, end: int) -> int:
    while end - start > 1 and inner[end] & 0xC0 == 0x80:
        end -= 1
    return end


class ResultDocument(msgspec.Struct, frozen=True):
    """The text of a result as one content, which is what is searched, explored, read and queried."""

    content: Content
    json: bool


def build_document(
    structure: ResultStructure, texts: Mapping[int, Content], scratch: Scratch
) -> ResultDocument:
    """The texts of a result as one: several JSON values as an array, other texts one after the other.

    Where there is no text, or one that only sums it up, what stands in structure is the document.
    """
    if structure.structured is not None and exceeds_texts(structure.structured, texts):
        structured = memoryview(structure.structured)
        pieces = (bytes(structured[at : at + _WINDOW]) for at in range(0, len(structured), _WINDOW))
        content = scratch.store(pieces)
        return ResultDocument(content, is_json(content))
    if not texts:
        return ResultDocument(b"", json=False)
    first, *others = texts.values()
    if not others:
        return ResultDocument(first, is_json(first))
    if all(map(is_json, texts.values())):
        return ResultDocument(scratch.store(_joined(texts.values(), b"[", b",", b"]")), json=True)
    return ResultDocument(scratch.store(_joined(texts.values(), b"", b"\n", b"")), json=False)


def exceeds_texts(structured: Raw, texts: Mapping[int, Content]) -> bool:
    """Whether what stands in structure cannot all be in the texts, which mostly repeat it."""
    return len(memoryview(structured)) > 2 * sum(map(len, texts.values()))


def _joined(texts: Iterable[Content], opening: bytes, between: bytes, closing: bytes) -> Iterator[bytes]:
    yield opening
    for number, text in enumerate(texts):
        if number:
            yield between
        for start in range(0, len(text), _WINDOW):
            yield text[start : start + _WINDOW]
    yield closing
