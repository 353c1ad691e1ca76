"""Finds the members of one large JSON object while its bytes stream by, without keeping or parsing them.

It knows strings, brackets and the punctuation of the outermost object. What stands inside a member is
carried, not judged; what matters is that no member can pretend to end before it does.
"""

import re

from msgspec import DecodeError, Raw
from msgspec.json import Decoder, decode

from headgate.wire.brackets import levels, mask_escapes, outside_strings, step

# On masked text, in which every quote begins or ends a string.
_TOKENS = re.compile(rb'"[^"]*"?|[\[\]{}]')
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(rb"[^\s,\]}\[{\":]*+")
# An envelope has five; a peer that sends more than this is not speaking JSON-RPC.
MOST_MEMBERS = 64
_LONGEST_KEY = 256
# Looked at in bulk; only the slice in which a member ends is looked at bracket by bracket.
_SLICE = 16 * 1024
# At the beginning of a member, which most often ends soon; doubled for as long as it goes on.
_FIRST_SLICE = 128


_skim = Decoder(Raw).decode


def _is_text(chunk: bytes) -> bool:
    """Whether all of it stands inside a string; said by the parser's own scan, ten times faster than ours."""
    if chunk[-1] == ord("\\"):
        return False
    try:
        _skim(b'"' + chunk + b'"')
    except DecodeError:
        return False
    return True


class NotAnObject(ValueError):
    """The bytes are not one JSON object."""


class Skimmer:
    """Feed it chunks of any size, then `finish`; `spans` maps each key to where its value stands."""

    def __init__(self, most_members: int = MOST_MEMBERS, *, unique: bool = True) -> None:
        """Without `unique`, a member may be there twice and a key be of any length."""
        self._most_members = most_members
        self._unique = unique
        self._members = 0
        self._slice = _FIRST_SLICE
        self.spans: dict[str, tuple[int, int]] = {}
        self._offset = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._key: bytearray | None = None
        self._name: str | None = None
        self._start = -1
        self._scalar_end = -1
        self._ended = False

    def feed(self, chunk: bytes) -> None:
        """Read on; raises NotAnObject as soon as it cannot become one."""
        if not chunk:
            return
        if self._in_string and not self._escaped and self._key is None and _is_text(chunk):
            # The usual case of a large result: one long string, and this is the middle of it.
            self._offset += len(chunk)
            return
        masked = mask_escapes(b"." + chunk[1:] if self._escaped else chunk)
        # The escaped character is in the next chunk.
        self._escaped = masked.endswith(b"\\")
        at = 0
        while at < len(chunk):
            if self._in_string:
                at = self._string(chunk, masked, at)
            elif self._depth >= 2:
                at = self._nested(masked, at)
            else:
                at = self._outermost(masked, at)
        self._offset += len(chunk)

    def finish(self) -> dict[str, tuple[int, int]]:
        """The members found; raises NotAnObject when the object has not ended."""
        if not self._ended:
            raise NotAnObject("the message ends in the middle")
        return self.spans

    def _string(self, chunk: bytes, masked: bytes, at: int) -> int:
        """Read on inside a string."""
        quote = masked.find(b'"', at)
        end = len(chunk) if quote < 0 else quote
        if self._key is not None:
            self._key += chunk[at:end]
            if len(self._key) > _LONGEST_KEY and self._unique:
                raise NotAnObject("a key is too long")
        if quote < 0:
            return end
        self._in_string = False
        if self._depth == 1:
            self._end_of_string(self._offset + end + 1)
        return end + 1

    def _end_of_string(self, end: int) -> None:
        if self._key is not None and not self._unique:
            # Only counted, so it need not be read.
            self._name, self._key = "", None
        elif self._key is not None:
            try:
                self._name = str(decode(b'"' + bytes(self._key) + b'"'))
            except (DecodeError, UnicodeDecodeError) as error:
                raise NotAnObject("a key is malformed") from error
            self._key = None
        else:
            self._end_of_value(end)

    def _end_of_value(self, end: int) -> None:
        if self._name is None or (self._unique and self._name in self.spans):
            raise NotAnObject("a member is there twice, or there are too many")
        self._members += 1
        if self._members > self._most_members:
            raise NotAnObject("a member is there twice, or there are too many")
        self.spans[self._name] = (self._start, end)
        self._name, self._start = None, -1

    def _nested(self, masked: bytes, at: int) -> int:
        """Read on inside a member; most chunks end in it and need no closer look."""
        end = min(at + self._slice, len(masked))
        bare, in_string = outside_strings(masked[at:end])
        seen = levels(bare, self._depth)
        if min(seen) < 2:
            return self._nested_by_token(masked, at, end)
        self._depth, self._in_string = seen[-1], in_string
        self._slice = min(2 * self._slice, _SLICE)
        return end

    def _nested_by_token(self, masked: bytes, at: int, end: int) -> int:
        """Read on to the end of the member, bracket by bracket."""
        for token in _TOKENS.finditer(masked, at, end):
            sign = masked[token.start()]
            if sign == ord('"'):
                self._in_string = token.end() - token.start() == 1 or masked[token.end() - 1] != ord('"')
                continue
            self._depth += step(sign)
            if self._depth == 1:
                self._end_of_value(self._offset + token.end())
                return token.end()
        return end

    def _outermost(self, masked: bytes, at: int) -> int:
        """Read on between the members of the outermost object."""
        space = _SPACE.match(masked, at)
        at = space.end() if space else at
        if at == len(masked):
            return at
        sign = masked[at : at + 1]
        if self._ended or (self._depth == 0 and sign != b"{"):
            raise NotAnObject("something stands outside of the object")
        if self._depth == 0:
            self._depth = 1
        elif sign in b'"{[' and self._start >= 0:
            raise NotAnObject("two values stand where one must")
        elif sign == b'"':
            self._in_string = True
            if self._start < 0 and self._name is None:
                self._key = bytearray()
            elif self._start < 0:
                self._start = self._offset + at
        elif sign in b"{[":
            self._start = self._offset + at
            self._depth = 2
            self._slice = _FIRST_SLICE
        elif sign in b",}":
            self._end_of_scalar()
            if sign == b"}":
                self._depth, self._ended = 0, True
        elif sign != b":":
            return self._scalar(masked, at)
        return at + 1

    def _scalar(self, masked: bytes, at: int) -> int:
        if self._start < 0:
            self._start = self._offset + at
        found = _SCALAR.match(masked, at)
        end = found.end() if found else at
        if end == at:
            raise NotAnObject("a bracket is out of place")
        self._scalar_end = self._offset + end
        return end

    def _end_of_scalar(self) -> None:
        if self._name is not None and self._start >= 0:
            self._end_of_value(self._scalar_end)
