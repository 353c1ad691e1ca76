"""Finds the members of one large JSON object while its bytes stream by, without keeping or parsing them.

It knows strings, brackets and the punctuation of the outermost object. What stands inside a member is
carried, not judged; what matters is that no member can pretend to end before it does.
"""

import re
from itertools import accumulate

from msgspec import DecodeError
from msgspec.json import decode

_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(rb"[^\s,\]}\[{\":]*+")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
# An envelope has five; a peer that sends more than this is not speaking JSON-RPC.
_MOST_MEMBERS = 64
_LONGEST_KEY = 256


class NotAnObject(ValueError):
    """The bytes are not one JSON object."""


class Skimmer:
    """Feed it chunks of any size, then `finish`; `spans` maps each key to where its value stands."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[int, int]] = {}
        self._offset = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._key: bytearray | None = None
        self._name: str | None = None
        self._start = -1
        self._ended = False

    def feed(self, chunk: bytes) -> None:
        """Read on; raises NotAnObject as soon as it cannot become one."""
        at = 0
        while at < len(chunk):
            if self._in_string:
                at = self._string(chunk, at)
            elif self._depth >= 2:
                at = self._nested(chunk, at)
            else:
                at = self._outermost(chunk, at)
        self._offset += len(chunk)

    def finish(self) -> dict[str, tuple[int, int]]:
        """The members found; raises NotAnObject when the object has not ended."""
        if not self._ended:
            raise NotAnObject("the message ends in the middle")
        return self.spans

    def _string(self, chunk: bytes, at: int) -> int:
        """Read on inside a string."""
        start = at
        if self._escaped:
            self._escaped = False
            at += 1
        end = _end_of_text(chunk, at)
        if end < len(chunk) and chunk[end] == ord("\\"):
            # The escaped character is in the next chunk.
            self._escaped = True
            end += 1
        closed = end < len(chunk)
        if self._key is not None:
            self._key += chunk[start:end]
            if len(self._key) > _LONGEST_KEY:
                raise NotAnObject("a key is too long")
        if not closed:
            return end
        self._in_string = False
        if self._depth == 1:
            self._end_of_string(self._offset + end + 1)
        return end + 1

    def _end_of_string(self, end: int) -> None:
        if self._key is not None:
            try:
                self._name = str(decode(b'"' + bytes(self._key) + b'"'))
            except (DecodeError, UnicodeDecodeError) as error:
                raise NotAnObject("a key is malformed") from error
            self._key = None
        else:
            self._end_of_value(end)

    def _end_of_value(self, end: int) -> None:
        if self._name is None or self._name in self.spans or len(self.spans) >= _MOST_MEMBERS:
            raise NotAnObject("a member is there twice, or there are too many")
        self.spans[self._name] = (self._start, end)
        self._name, self._start = None, -1

    def _nested(self, chunk: bytes, at: int) -> int:
        """Read on inside a member; most chunks end in it and need no closer look."""
        bare, quote, tail = _STRINGS.sub(b"", chunk[at:]).partition(b'"')
        levels = list(
            accumulate(map(_STEP.__getitem__, bare.translate(None, _NOT_BRACKETS)), initial=self._depth)
        )
        if min(levels) < 2:
            return self._nested_by_token(chunk, at)
        self._depth = levels[-1]
        # A quote without its partner opens a string that goes on in the next chunk.
        self._in_string = bool(quote)
        return len(chunk) - len(tail)

    def _nested_by_token(self, chunk: bytes, at: int) -> int:
        for token in _TOKENS.finditer(chunk, at):
            text = token.group()
            if text[:1] == b'"':
                if len(text) == 1 or text[-1:] != b'"' or (token.end() == len(chunk) and _open(text)):
                    # It goes on in the next chunk: read it again from its first character.
                    self._in_string = True
                    return token.start() + 1
                continue
            self._depth += _STEP[text[0]]
            if self._depth == 1:
                self._end_of_value(self._offset + token.end())
                return token.end()
        return len(chunk)

    def _outermost(self, chunk: bytes, at: int) -> int:
        """Read on between the members of the outermost object."""
        space = _SPACE.match(chunk, at)
        at = space.end() if space else at
        if at == len(chunk):
            return at
        sign = chunk[at : at + 1]
        if self._ended or (self._depth == 0 and sign != b"{"):
            raise NotAnObject("something stands outside of the object")
        if self._depth == 0:
            self._depth = 1
        elif sign == b'"':
            self._in_string = True
            if self._start < 0 and self._name is None:
                self._key = bytearray()
            elif self._start < 0:
                self._start = self._offset + at
        elif sign in b"{[":
            self._start = self._offset + at
            self._depth = 2
        elif sign in b",}":
            self._end_of_scalar(self._offset + at)
            if sign == b"}":
                self._depth, self._ended = 0, True
        elif sign != b":":
            return self._scalar(chunk, at)
        return at + 1

    def _scalar(self, chunk: bytes, at: int) -> int:
        if self._start < 0:
            self._start = self._offset + at
        found = _SCALAR.match(chunk, at)
        end = found.end() if found else at
        if end == at:
            raise NotAnObject("a bracket is out of place")
        return end

    def _end_of_scalar(self, end: int) -> None:
        if self._name is not None and self._start >= 0:
            self._end_of_value(end)


def _end_of_text(chunk: bytes, at: int) -> int:
    """Where the text of a string ends: at its quote, at a lone backslash, or with the chunk."""
    quote = chunk.find(b'"', at)
    end = len(chunk) if quote < 0 else quote
    if chunk.find(b"\\", at, end) < 0:
        return end
    found = _IN_STRING.match(chunk, at)
    return found.end() if found else at


def _open(text: bytes) -> bool:
    """Whether a token that ends in a quote is still open, because the quote is escaped."""
    return _STRINGS.fullmatch(text) is None
