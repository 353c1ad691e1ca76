"""A stored result while it is processed: its structure, texts and JSON values, each computed once."""

import re
from functools import cached_property

import msgspec
from msgspec import DecodeError, Raw

from headgate.results.compact_tables import from_compact_tables
from headgate.results.content import (
    Content,
    Scratch,
    first_byte,
    is_json,
    json_lines,
    replace_invalid_unicode,
)
from headgate.results.embedded_json import MainJson, extract_json, json_array, main_json
from headgate.results.json_paths import array_index, parse_path
from headgate.results.pipeline import ProcessingError
from headgate.results.result_structure import (
    ResultDocument,
    ResultStructure,
    build_document,
    compact_size,
    decode_text,
    exceeds_texts,
    parse_structure,
)
from headgate.results.token_estimate import estimate_tokens

_WINDOW = 4 * 1024 * 1024
# A list that came as one block for each element is looked at as one; a few texts are looked at one by one.
MANY_TEXTS = 8
_INDENTED = re.compile(rb"[,:\[{]\s")
_members = msgspec.json.Decoder(dict[str, Raw])
# Text beside the JSON that is short enough for an introduction.
_INTRODUCTION_BYTES = 1_000
_TABLE = b'{"columns":['
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ParsedResult:
    """A result and what was made of it so far."""

    def __init__(self, result: Content | memoryview, scratch: Scratch) -> None:
        """Raises Refused when it is no result of the protocol."""
        self.structure: ResultStructure = parse_structure(result)
        self.size_bytes = len(result)
        self.scratch = scratch

    @cached_property
    def texts(self) -> dict[int, Content]:
        """The texts by the index of their block."""
        return {
            index: _repaired_json(decode_text(block.text, self.scratch))
            for index, block in enumerate(self.structure.blocks)
            if block.text is not None
        }

    @cached_property
    def compact_texts(self) -> dict[int, Content]:
        """The texts, JSON without the white space that indents it: what is searched is what is shown.

        One that says in tables what stands in structure is that: objects can be asked for by their keys.
        """
        texts = {index: minify_json(text) if self.json[index] else text for index, text in self.texts.items()}
        structured = self.structure.structured
        if structured is None or len(texts) != 1:
            return texts
        return {index: _expanded_from_structured(text, structured) for index, text in texts.items()}

    @cached_property
    def document(self) -> ResultDocument:
        """All of the text as one."""
        return build_document(self.structure, self.compact_texts, self.scratch)

    @cached_property
    def original_text(self) -> Content:
        """The same with every sign of it, for whoever reads line by line or sign by sign."""
        return build_document(self.structure, self.texts, self.scratch).content

    @cached_property
    def values(self) -> dict[int, Content]:
        """The JSON that the texts are or hold, by the index of their block."""
        values: dict[int, Content] = {}
        for index, text in self.compact_texts.items():
            held = text if self.json[index] else extract_json(text, self.scratch)
            if held is not None:
                values[index] = held if held is text else minify_json(held)
        return values

    @cached_property
    def is_mixed(self) -> bool:
        """Whether there are several texts and some of them are not JSON."""
        return len(self.texts) > 1 and not self.document.json

    @cached_property
    def blocks(self) -> Content:
        """The texts as one JSON array: those that are or hold JSON as that, the others as strings."""
        texts = self.compact_texts.items()
        return self.scratch.store(
            json_array(
                self.values[index][:] if index in self.values else _json_string(text) for index, text in texts
            )
        )

    def content_for_paths(self, *paths: str) -> Content:
        """The content that the paths begin at: among several texts an index is the one of a text."""
        content = self.document.content
        if self.document.json or not self.texts:
            return content
        if len(self.texts) == 1:
            # The objects of JSON Lines have paths of their own.
            lines = json_lines(content)
            return next(iter(self.values.values()), content) if lines is None else content
        is_only = len(self.values) == 1 and not starts_with_index(*paths)
        return next(iter(self.values.values())) if is_only else self.blocks

    @cached_property
    def main(self) -> MainJson | None:
        """The JSON that the result is but for a short text around it; None where it is JSON, or text."""
        if self.document.json or not self.texts:
            return None
        if len(self.texts) == 1:
            content = self.document.content
            found = main_json(content, self.scratch) if json_lines(content) is None else None
            return None if found is None else MainJson(minify_json(found.content), found.around)
        return self._main_of_blocks()

    def _main_of_blocks(self) -> MainJson | None:
        """The same of several texts: the values of those that are JSON or mainly JSON."""
        values, around = dict[int, bytes](), list[bytes]()
        for index, text in self.compact_texts.items():
            found = None if self.json[index] else main_json(text, self.scratch)
            if self.json[index] or found is not None:
                values[index] = (found.content if found is not None else text)[:]
                around.append(b"" if found is None else found.around)
            else:
                around.append(text[:])
        if not values or sum(map(len, around)) > max(_INTRODUCTION_BYTES, sum(map(len, values.values()))):
            return None
        if len(values) > 1:
            # The same indexes as in paths.
            return MainJson(self.blocks, b"")
        block, value = next(iter(values.items()))
        return MainJson(value, b"\n".join(filter(None, around)), block)

    @cached_property
    def text_is_summary(self) -> bool:
        """Whether the texts say less than what stands in structure, which then is what is looked at."""
        structured = self.structure.structured
        # As written or as looked at: neither indentation nor tables make a summary of a text.
        longer = {index: max(text, self.compact_texts[index], key=len) for index, text in self.texts.items()}
        return structured is not None and exceeds_texts(structured, longer)

    @cached_property
    def reads_as_one(self) -> bool:
        """Whether the texts are looked at as one: very many, or several values that make an array."""
        several = len(self.texts) > 1
        return len(self.texts) > MANY_TEXTS or (several and all(self.json.values())) or self.text_is_summary

    @cached_property
    def sizes(self) -> dict[int, int]:
        """How many characters each text has."""
        return {index: content_length(text) for index, text in self.texts.items()}

    @cached_property
    def structured_size(self) -> int:
        """How many characters `structuredContent` has as compact JSON."""
        structured = self.structure.structured
        return 0 if structured is None else compact_size(structured)

    @property
    def size(self) -> int:
        """How many characters a model would get to read: a client shows the texts or `structuredContent`."""
        return max(sum(self.sizes.values()), self.structured_size)

    @cached_property
    def tokens(self) -> int:
        """About how many tokens that are."""
        structured = self.structure.structured
        beside = estimate_tokens(memoryview(structured)) if structured is not None else 0
        # Both mostly say the same, and a client shows one of them.
        return max(sum(map(estimate_tokens, self.texts.values())), beside)

    @cached_property
    def json(self) -> dict[int, bool]:
        """Which texts are JSON."""
        return {index: is_json(text) for index, text in self.texts.items()}


def _expanded_from_structured(text: Content, structured: Raw) -> Content:
    """What stands in structure, where the text says that or a part of it in tables; otherwise the text."""
    if not isinstance(text, bytes) or _TABLE not in text:
        return text
    objects = bytes(structured)
    try:
        same = _members.decode(from_compact_tables(text)).items() <= _members.decode(objects).items()
    except (ProcessingError, ValueError, RecursionError):
        return text
    return objects if same else text


def _repaired_json(text: Content) -> Content:
    """The text; JSON that no parser takes, for a mark before it or half a character in it, without that."""
    if not isinstance(text, bytes) or len(text) > _WINDOW:
        return text
    plain = text.removeprefix(_BYTE_ORDER_MARK)
    if first_byte(plain) not in (b"{", b"[") or b"\\u" not in plain or is_json(plain):
        return plain
    whole = replace_invalid_unicode(plain)
    return whole if is_json(whole) else text


def starts_with_index(*paths: str) -> bool:
    """Whether one of the paths begins with an index."""
    return any(steps and array_index(steps[0]) is not None for steps in map(parse_path, paths))


def _json_string(text: Content) -> bytes:
    return msgspec.json.encode(text[:].decode(errors="replace"))


def minify_json(json: Content) -> Content:
    """JSON without the white space that indents it."""
    if not isinstance(json, bytes) or not _INDENTED.search(json, 0, _WINDOW):
        return json
    try:
        return msgspec.json.format(json, indent=-1)
    except (DecodeError, RecursionError):
        # Nested as deep as a parser just goes, and this one begins some steps further down.
        return json


def content_length(content: Content) -> int:
    """How many characters the content has, without a copy of all of it."""
    return _length(memoryview(content))


def _length(view: memoryview) -> int:
    size = 0
    for start in range(0, len(view), _WINDOW):
        window = bytes(view[start : start + _WINDOW])
        # Every byte begins a character but those that go on with one.
        size += len(window) if window.isascii() else len(window) - len(window.translate(None, _STARTS))
    return size


_STARTS = bytes(byte for byte in range(256) if byte & 0xC0 != 0x80)
