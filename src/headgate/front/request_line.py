"""Checks the request line of each request as it stands in the bytes of a connection.

The parser takes `HTTP/2.0`, `RTSP/1.0`, a line without a version and several spaces, and reports none of it.
"""

import re

from headgate.front.guard import Refused

# Empty lines before it are allowed by RFC 9112.
_LINE = re.compile(rb"[\r\n]*+[!-~]++ [!-~]++ HTTP/1\.[01]\r\n")
_SOME_LINE = re.compile(rb"[\r\n]*+([^\n]++)\n")
_VERSION = re.compile(rb"[A-Z]+/\d+(\.\d+)?")
_END = b"\r\n\r\n"


class RequestLines:
    """Follows where each request begins, whether it comes in pieces or behind another one."""

    __slots__ = ("_head", "at", "data")

    def __init__(self) -> None:
        # The bytes that are being parsed, and where in them the request begins or goes on: set and moved by
        # the connection itself, because every request comes by here.
        self.data = b""
        self.at = 0
        # What came of the head before it.
        self._head = b""

    def end_head(self) -> None:
        """The parser has found the end of a head; raises Refused for its request line."""
        if self._head:
            self.data, self._head = self._head + self.data[self.at :], b""
            self.at = 0
        line = _LINE.match(self.data, self.at)
        if line is None:
            raise _refusal(self.data[self.at :])
        end = self.data.find(_END, line.end() - 2)
        if end < 0:
            raise Refused(400, "the request is malformed")
        self.at = end + len(_END)

    def keep_rest(self) -> None:
        """All was parsed and a head is incomplete; raises Refused if its request line is already wrong."""
        rest = self.data[self.at :]
        self._head += rest
        # Heads may come byte by byte, and only the end of a line is worth a look.
        if b"\n" in rest and _SOME_LINE.match(self._head) is not None and _LINE.match(self._head) is None:
            raise _refusal(self._head)


def _refusal(head: bytes) -> Refused:
    found = _SOME_LINE.match(head)
    words = found[1].split() if found is not None else []
    if len(words) == 3 and _VERSION.fullmatch(words[2]) and words[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        return Refused(505, "this gateway speaks HTTP/1.1 and HTTP/1.0")
    return Refused(400, "the request line must be a method, a path and HTTP/1.1, with one space between them")
