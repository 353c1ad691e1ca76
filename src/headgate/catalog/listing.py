"""A listing from prepared bytes: pages of bounded size whose order and bytes do not change between calls."""

import base64
import hashlib
from collections.abc import Sequence

# SDK clients refuse an event over 1 MiB; a page stays well below.
PAGE_BYTES = 256 * 1024
# A URI may be longer than any cursor should be.
_LONGEST_NAME = 200


class InvalidCursor(ValueError):
    """A cursor that this listing never gave, or whose place is gone."""


class Listing:
    """Every page of one listing; a cursor names the last item before it, so it survives changes elsewhere."""

    def __init__(self, member: str, items: Sequence[tuple[str, bytes]], page_bytes: int = PAGE_BYTES) -> None:
        """`items` are public names and definitions, in order; `member` is where the result has them."""
        self._head = b'"' + member.encode() + b'":['
        self._items = items
        self._page_bytes = page_bytes
        self._pages: dict[str | None, bytes] = {}
        # Made when a cursor outlives the listing that gave it, which is rare.
        self._index: dict[str, int] | None = None
        self._prepare(None, 0)

    def page(self, cursor: str | None) -> bytes:
        """The members of one result; raises InvalidCursor."""
        prepared = self._pages.get(cursor)
        if prepared is not None:
            return prepared
        return self._encode(self._after(cursor or ""))[0]

    def _prepare(self, cursor: str | None, start: int) -> None:
        while True:
            self._pages[cursor], end = self._encode(start)
            if end >= len(self._items):
                return
            cursor, start = _cursor(self._items[end - 1][0]), end

    def _encode(self, start: int) -> tuple[bytes, int]:
        end, size = start, 0
        while end < len(self._items) and (end == start or size < self._page_bytes):
            size += len(self._items[end][1]) + 1
            if size > self._page_bytes and end > start:
                break
            end += 1
        items = b",".join(definition for _, definition in self._items[start:end])
        more = b""
        if end < len(self._items):
            more = b',"nextCursor":"' + _cursor(self._items[end - 1][0]).encode() + b'"'
        return self._head + items + b"]" + more, end

    def _after(self, cursor: str) -> int:
        if self._index is None:
            self._index = {_cursor(name): position for position, (name, _) in enumerate(self._items)}
        position = self._index.get(cursor)
        if position is None:
            raise InvalidCursor("the cursor is unknown, or what it names is gone: list again from the start")
        return position + 1


def _cursor(name: str) -> str:
    encoded = name.encode()
    if len(encoded) > _LONGEST_NAME:
        encoded = b"#" + hashlib.sha256(encoded).digest()
    return base64.urlsafe_b64encode(encoded).decode()
