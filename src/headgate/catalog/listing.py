"""tools/list from prepared bytes: pages of bounded size whose order and bytes do not change between calls."""

import base64
import binascii
from collections.abc import Sequence

# SDK clients refuse an event over 1 MiB; a page stays well below.
PAGE_BYTES = 256 * 1024


class InvalidCursor(ValueError):
    """A cursor that this listing never gave, or whose place is gone."""


class Listing:
    """Every page of one listing; a cursor names the last tool before it, so it survives changes elsewhere."""

    def __init__(self, tools: Sequence[tuple[str, bytes]], page_bytes: int = PAGE_BYTES) -> None:
        """`tools` are public names and definitions, in order."""
        self._tools = tools
        self._page_bytes = page_bytes
        self._pages: dict[str | None, bytes] = {}
        self._index = {name: position for position, (name, _) in enumerate(tools)}
        self._prepare(None, 0)

    def page(self, cursor: str | None) -> bytes:
        """The members of one tools/list result; raises InvalidCursor."""
        prepared = self._pages.get(cursor)
        if prepared is not None:
            return prepared
        return self._encode(self._after(cursor or ""))[0]

    def _prepare(self, cursor: str | None, start: int) -> None:
        while True:
            self._pages[cursor], end = self._encode(start)
            if end >= len(self._tools):
                return
            cursor, start = _cursor(self._tools[end - 1][0]), end

    def _encode(self, start: int) -> tuple[bytes, int]:
        end, size = start, 0
        while end < len(self._tools) and (end == start or size < self._page_bytes):
            size += len(self._tools[end][1]) + 1
            if size > self._page_bytes and end > start:
                break
            end += 1
        tools = b",".join(definition for _, definition in self._tools[start:end])
        more = b""
        if end < len(self._tools):
            more = b',"nextCursor":"' + _cursor(self._tools[end - 1][0]).encode() + b'"'
        return b'"tools":[' + tools + b"]" + more, end

    def _after(self, cursor: str) -> int:
        try:
            name = base64.urlsafe_b64decode(cursor.encode()).decode()
            return self._index[name] + 1
        except (KeyError, ValueError, binascii.Error) as error:
            raise InvalidCursor(
                "the cursor is unknown, or the tool it names is gone: list again from the start"
            ) from error


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()
