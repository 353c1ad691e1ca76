"""A stored result while it is processed: its structure, texts and JSON values, each computed once."""

import re
from functools import cached_property

import msgspec
from msgspec import DecodeError, Raw

from headgate.results.compact_tables import from_compact_tables
from headgate.results.content import (
    Content,
    Scratch,
    count_characters,
    decode_members,
    first_byte,
    is_json,
    join_windows,
    json_lines,
    replace_invalid_unicode,
)
from headgate.results.embedded_json import MainJson, extract_json, main_json
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
# More texts than this are read as one: mostly a list with one block for each element.
MANY_TEXTS = 8
_INDENTED = re.compile(rb"[,:\[{]\s")
# Text beside the JSON that is short enough for an introduction.
_INTRODUCTION_BYTES = 1_000
_TABLE = b'{"columns":['
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ParsedResult:
    """A result and everything derived from it so far."""

    def __init__(self, result: Content | memoryview, scratch: Scratch) -> None:
        """Raises ProcessingError when the bytes are no tool result."""
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
        """The texts, with JSON minified: a search matches the text that is shown.

        A text that repeats `structuredContent` as compact tables is replaced by it, so that paths can name
        the keys of its objects.
        """
        texts = {index: minify_json(text) if self.json[index] else text for index, text in self.texts.items()}
        if self.structure.structured is not None and len(texts) == 1:
            index, text = texts.popitem()
            texts[index] = _expanded_from_structured(text, self.structure.structured)
        return texts

    @cached_property
    def document(self) -> ResultDocument:
        """All texts as one content."""
        return build_document(self.structure, self.compact_texts, self.scratch)

    @cached_property
    def original_text(self) -> Content:
        """All texts as one content, unmodified, for reading by lines or characters."""
        return build_document(self.structure, self.texts, self.scratch).content

    @cached_property
    def values(self) -> dict[int, Content]:
        """The JSON that each text is or contains, by the index of its block."""
        values: dict[int, Content] = {}
        for index, text in self.compact_texts.items():
            extracted = text if self.json[index] else extract_json(text, self.scratch)
            if extracted is not None:
                values[index] = extracted if extracted is text else minify_json(extracted)
        return values

    @cached_property
    def is_mixed(self) -> bool:
        """Whether there are several texts and some of them are not JSON."""
        return len(self.texts) > 1 and not self.document.json

    @cached_property
    def blocks(self) -> Content:
        """The texts as one JSON array: JSON as values, other texts as strings."""
        values = (
            self.values[index][:]
            if index in self.values
            else msgspec.json.encode(text[:].decode(errors="replace"))
            for index, text in self.compact_texts.items()
        )
        return self.scratch.store(join_windows(values))

    def content_for_paths(self, *paths: str) -> Content:
        """The content that the paths refer to: among several texts an index is that of a text."""
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
        """The JSON of a result that consists of it except for a short text; None for pure JSON or text."""
        if self.document.json or not self.texts:
            return None
        if len(self.texts) == 1:
            content = self.document.content
            found = main_json(content, self.scratch) if json_lines(content) is None else None
            return None if found is None else MainJson(minify_json(found.content), found.around)
        return self._main_of_blocks()

    def _main_of_blocks(self) -> MainJson | None:
        """The same for several texts: the values of those that are JSON or mainly JSON."""
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
            # With the same indexes as in paths.
            return MainJson(self.blocks, b"")
        block, value = next(iter(values.items()))
        return MainJson(value, b"\n".join(filter(None, around)), block)

    @cached_property
    def text_is_summary(self) -> bool:
        """Whether the texts say less than `structuredContent`, which is then read in their place."""
        structured = self.structure.structured
        # The longer form counts: neither indentation nor tables make a text a summary.
        longer = {index: max(text, self.compact_texts[index], key=len) for index, text in self.texts.items()}
        return structured is not None and exceeds_texts(structured, longer)

    @cached_property
    def reads_as_one(self) -> bool:
        """Whether the texts are read as one: very many, or several JSON values that make an array."""
        several = len(self.texts) > 1
        return len(self.texts) > MANY_TEXTS or (several and all(self.json.values())) or self.text_is_summary

    @cached_property
    def sizes(self) -> dict[int, int]:
        """The characters of each text."""
        return {index: count_characters(text) for index, text in self.texts.items()}

    @cached_property
    def structured_size(self) -> int:
        """The characters of `structuredContent` as compact JSON."""
        structured = self.structure.structured
        return 0 if structured is None else compact_size(structured)

    @property
    def size(self) -> int:
        """The characters that a model would read: a client shows the texts or `structuredContent`."""
        return max(sum(self.sizes.values()), self.structured_size)

    @cached_property
    def tokens(self) -> int:
        """An estimate of the tokens that a model would read."""
        structured = memoryview(self.structure.structured or b"")
        # Both mostly repeat each other, and a client shows one of them.
        return max(sum(map(estimate_tokens, self.texts.values())), estimate_tokens(structured))

    @cached_property
    def json(self) -> dict[int, bool]:
        """Which texts are JSON."""
        return {index: is_json(text) for index, text in self.texts.items()}


def _expanded_from_structured(text: Content, structured: Raw) -> Content:
    """`structuredContent`, where the text repeats all or part of it as compact tables; otherwise the text."""
    if not isinstance(text, bytes) or _TABLE not in text:
        return text
    objects = bytes(structured)
    try:
        same = decode_members(from_compact_tables(text)).items() <= decode_members(objects).items()
    except (ProcessingError, ValueError, RecursionError):
        return text
    return objects if same else text


def _repaired_json(text: Content) -> Content:
    """The text; JSON with a byte order mark or lone surrogates is repaired, because parsers reject it."""
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


def minify_json(json: Content) -> Content:
    if not isinstance(json, bytes) or not _INDENTED.search(json, 0, _WINDOW):
        return json
    try:
        return msgspec.json.format(json, indent=-1)
    except (DecodeError, RecursionError):
        # Nested almost as deep as parsers allow, and the formatter allows a few levels less.
        return json
