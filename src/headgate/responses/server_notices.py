"""Marks what a server wrote in the form of a notice, so that only the gateway's own notices have it."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from headgate.domain.payload import Spooled
from headgate.responses.notice import MESSAGE
from headgate.schema.notice_compatibility import NOTICE_MEMBER

# How a notice begins, and how one begins that a server wrote, or a gateway behind this one.
OPENING: Final = MESSAGE.partition("{")[0]
SERVER_OPENING: Final = "[Excerpt made by the server, not by this gateway: "
SERVER_MEMBER: Final = f"{NOTICE_MEMBER}_of_server"
# A shorter beginning of an operator's own message is part of ordinary texts.
_SHORTEST_OPENING = 8
_ESCAPE: Final = b"\\u00"
_ESCAPE_BYTES: Final = 6
# Of a visible character of ASCII, which no writer of JSON has to escape but for two.
_ASCII_ESCAPE: Final = re.compile(rb"\\u00[2-7]")
# Behind the name of a member: backslashes, and the quotation mark.
_LOOKAHEAD_BYTES: Final = 8


def _json(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]


def _spelled(text: str) -> bytes:
    """A pattern for the text in JSON, each of whose characters may be escaped."""
    return b"".join(
        rb"(?:%b|\\u(?i:%04x))" % (re.escape(_json(one)), ord(one))
        if one.isascii()
        else re.escape(_json(one))
        for one in text
    )


_SERVER_OPENING: Final = _json(SERVER_OPENING)
_SERVER_MEMBER: Final = SERVER_MEMBER.encode()


class ServerNotices:
    """Finds imitations in the bytes of a result, without parsing it."""

    def __init__(self, message: str = MESSAGE) -> None:
        """`message` is the notice of this gateway, with its places."""
        opening = message.partition("{")[0]
        if len(opening) < _SHORTEST_OPENING:
            opening = OPENING
        self._opening = _json(opening)
        self._member = NOTICE_MEMBER.encode()
        self._key = re.compile(rb'(?<=")%b(?=\\{0,7}")' % re.escape(self._member))
        # Other escapes are consumed, so that an escaped backslash before `u005b` is not taken for a bracket.
        self._escaped_opening = re.compile(rb"\\[^u]|(%b)" % _spelled(opening))
        # Both at once, for a result that is read in pieces.
        self._either = re.compile(
            rb'(?P<opening>%b)|(?<=")(?P<key>%b)(?=\\{0,7}")|(?:\\[^u"])+'
            % (_spelled(opening), _spelled(NOTICE_MEMBER))
        )
        self._longest = _ESCAPE_BYTES * max(len(opening), len(NOTICE_MEMBER)) + _LOOKAHEAD_BYTES
        self._escaped_key = re.compile(rb'\\[^u"]|(?<=")(%b)(?=\\{0,7}")' % _spelled(NOTICE_MEMBER))

    def marked(self, result: bytes) -> bytes:
        """The result with its imitations marked; the same object where it has none."""
        if _ESCAPE not in result and self._member not in result and self._opening not in result:
            # Nearly always, and asked of every result.
            return result
        result = self.marked_texts(result)
        if self._member in result:
            result = self._key.sub(_SERVER_MEMBER, result)
        if _ESCAPE in result:
            result = self._escaped_key.sub(lambda match: _SERVER_MEMBER if match[1] else match[0], result)
        return result

    def marked_on_disk(self, result: Spooled) -> Spooled:
        """The same of a result on disk; reads all of it, so it is nothing for the event loop."""
        size, changed = 0, False
        for piece, is_changed in self._pieces(result.chunks()):
            size += len(piece)
            changed = changed or is_changed
        return _MarkedOnDisk(result, self, size) if changed else result

    def marked_pieces(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces of a result with its imitations marked, also where one is split between two pieces."""
        return (piece for piece, _ in self._pieces(chunks) if piece)

    def _pieces(self, chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
        """Each piece, and whether something was marked in it."""
        text, done = b"", 0
        for chunk in chunks:
            # The byte before is seen by the pattern.
            text, done = text[max(done - 1, 0) :] + chunk, min(done, 1)
            # What begins before the limit ends in the text.
            limit = len(text) - self._longest
            if limit > done:
                piece, done, changed = self._piece(text, done, limit)
                yield piece, changed
        piece, done, changed = self._piece(text, done, len(text))
        yield piece + text[done:], changed

    def _piece(self, text: bytes, start: int, limit: int) -> tuple[bytes, int, bool]:
        """What lies between the two, with what begins there; where it ends; whether it is changed."""
        if self._opening in text or self._member in text or _ASCII_ESCAPE.search(text) is not None:
            return self._marked_piece(text, start, limit)
        piece = text[start:limit]
        # Not between a backslash and what it escapes.
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = piece[:-1]
        return piece, start + len(piece), False

    def _marked_piece(self, text: bytes, start: int, limit: int) -> tuple[bytes, int, bool]:
        parts, copied, end = list[bytes](), start, start
        for match in self._either.finditer(text, start):
            if match.start() >= limit:
                break
            end = match.end()
            if match.lastgroup is not None:
                mark = _SERVER_OPENING if match.lastgroup == "opening" else _SERVER_MEMBER
                parts += text[copied : match.start()], mark
                copied = end
        end = max(end, limit)
        return b"".join((*parts, text[copied:end])), end, bool(parts)

    def marked_texts(self, content: bytes) -> bytes:
        """A piece of JSON in which no text begins as a notice does; members keep their names."""
        if self._opening in content:
            content = content.replace(self._opening, _SERVER_OPENING)
        # Every character can be written as an escape, which few results have.
        if _ESCAPE in content:
            content = self._escaped_opening.sub(
                lambda match: _SERVER_OPENING if match[1] else match[0], content
            )
        return content


class _MarkedOnDisk:
    """A result on disk whose imitations are marked when it is read."""

    def __init__(self, stored: Spooled, notices: ServerNotices, size: int) -> None:
        self._stored = stored
        self._notices = notices
        self.size = size

    @property
    def first(self) -> bytes:
        """Its first byte."""
        return self._stored.first

    def chunks(self) -> Iterator[bytes]:
        """Its bytes in order."""
        return self._notices.marked_pieces(self._stored.chunks())

    def close(self) -> None:
        """Give the disk space back."""
        self._stored.close()


@lru_cache(maxsize=4)
def imitations_of(opening: str) -> ServerNotices:
    """What finds imitations of a notice that begins so."""
    return ServerNotices(opening)
