"""A stored result that is being worked on: its parts and its texts, each made once."""

import re
from functools import cached_property

import msgspec
from msgspec import DecodeError, Raw

from headgate.responses.anatomy import Anatomy, Document, dissect, document, says_more, text_of
from headgate.responses.content import Content, Scratch, first_sign, is_json
from headgate.responses.escapes import mended
from headgate.responses.processing import Refused
from headgate.responses.tables import expanded
from headgate.responses.tokens import tokens_of

_WINDOW = 4 * 1024 * 1024
# A list that came as one block for each element is looked at as one; a few texts are looked at one by one.
MANY = 8
_INDENTED = re.compile(rb"[,:\[{]\s")
_members = msgspec.json.Decoder(dict[str, Raw])
_TABLE = b'{"columns":['
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Opened:
    """A result and what was made of it so far."""

    def __init__(self, result: Content | memoryview, scratch: Scratch) -> None:
        """Raises Refused when it is no result of the protocol."""
        self.anatomy: Anatomy = dissect(result)
        self.scratch = scratch

    @cached_property
    def texts(self) -> dict[int, Content]:
        """The texts by the index of their block."""
        return {
            index: _readable(text_of(block.text, self.scratch))
            for index, block in enumerate(self.anatomy.blocks)
            if block.text is not None
        }

    @cached_property
    def tight(self) -> dict[int, Content]:
        """The texts, JSON without the white space that indents it: what is searched is what is shown.

        One that says in tables what stands in structure is that: objects can be asked for by their keys.
        """
        texts = {index: _tight(text) if self.json[index] else text for index, text in self.texts.items()}
        structured = self.anatomy.structured
        if structured is None or len(texts) != 1:
            return texts
        return {index: _unfolded(text, structured) for index, text in texts.items()}

    @cached_property
    def document(self) -> Document:
        """All of the text as one."""
        return document(self.anatomy, self.tight, self.scratch)

    @cached_property
    def as_written(self) -> Content:
        """The same with every sign of it, for whoever reads line by line or sign by sign."""
        return document(self.anatomy, self.texts, self.scratch).content

    @cached_property
    def is_summed_up(self) -> bool:
        """Whether the texts say less than what stands in structure, which then is what is looked at."""
        structured = self.anatomy.structured
        # As written or as looked at: neither indentation nor tables make a summary of a text.
        longer = {index: max(text, self.tight[index], key=len) for index, text in self.texts.items()}
        return structured is not None and says_more(structured, longer)

    @cached_property
    def is_one(self) -> bool:
        """Whether the texts are looked at as one: very many, or several values that make an array."""
        several = len(self.texts) > 1
        return len(self.texts) > MANY or (several and all(self.json.values())) or self.is_summed_up

    @cached_property
    def sizes(self) -> dict[int, int]:
        """How many characters each text has."""
        return {index: length(text) for index, text in self.texts.items()}

    @cached_property
    def structured_size(self) -> int:
        """How many characters stand in structure beside the texts."""
        structured = self.anatomy.structured
        return 0 if structured is None else _length(memoryview(structured))

    @property
    def size(self) -> int:
        """How many characters a model would get to read."""
        return sum(self.sizes.values()) + self.structured_size

    @cached_property
    def tokens(self) -> int:
        """About how many tokens that are."""
        structured = self.anatomy.structured
        beside = tokens_of(memoryview(structured)) if structured is not None else 0
        return sum(map(tokens_of, self.texts.values())) + beside

    @cached_property
    def json(self) -> dict[int, bool]:
        """Which texts are JSON."""
        return {index: is_json(text) for index, text in self.texts.items()}


def _unfolded(text: Content, structured: Raw) -> Content:
    """What stands in structure, where the text says that or a part of it in tables; otherwise the text."""
    if not isinstance(text, bytes) or _TABLE not in text:
        return text
    objects = bytes(structured)
    try:
        same = _members.decode(expanded(text)).items() <= _members.decode(objects).items()
    except (Refused, ValueError, RecursionError):
        return text
    return objects if same else text


def _readable(text: Content) -> Content:
    """The text; JSON that no parser takes, for a mark before it or half a character in it, without that."""
    if not isinstance(text, bytes) or len(text) > _WINDOW:
        return text
    plain = text.removeprefix(_BYTE_ORDER_MARK)
    if first_sign(plain) not in (b"{", b"[") or b"\\u" not in plain or is_json(plain):
        return plain
    whole = mended(plain)
    return whole if is_json(whole) else text


def _tight(json: Content) -> Content:
    if not isinstance(json, bytes) or not _INDENTED.search(json, 0, _WINDOW):
        return json
    try:
        return msgspec.json.format(json, indent=-1)
    except (DecodeError, RecursionError):
        # Nested as deep as a parser just goes, and this one begins some steps further down.
        return json


def length(content: Content) -> int:
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
