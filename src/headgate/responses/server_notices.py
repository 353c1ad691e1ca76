"""Marks what a server wrote in the form of a notice, so that only the gateway's own notices have it."""

import re
from functools import lru_cache
from typing import Final

import msgspec

from headgate.domain.output_schema import NOTICE_MEMBER
from headgate.responses.notice import MESSAGE

# How a notice begins, and how one begins that a server wrote, or a gateway behind this one.
OPENING: Final = MESSAGE.partition("{")[0]
SERVER_OPENING: Final = "[Excerpt made by the server, not by this gateway: "
SERVER_MEMBER: Final = f"{NOTICE_MEMBER}_of_server"
# A shorter beginning of an operator's own message is part of ordinary texts.
_SHORTEST_OPENING = 8
_ESCAPE: Final = b"\\u00"


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


@lru_cache(maxsize=4)
def imitations_of(opening: str) -> ServerNotices:
    """What finds imitations of a notice that begins so."""
    return ServerNotices(opening)
