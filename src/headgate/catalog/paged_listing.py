"""A listing as prepared pages of bounded size, its fingerprint, and how long clients may cache it."""

import base64
import hashlib
from collections.abc import Iterable, Sequence

import msgspec


class CacheHint(msgspec.Struct, frozen=True):
    """A server's cache hint for its reply; without one the reply must not be cached."""

    ttl_ms: int = 0
    # Whether it may be served to other clients.
    public: bool = False


NO_HINT = CacheHint()
# Of a server that has no items of a kind, so that it does not shorten the time of other servers.
NOTHING_TO_KEEP = CacheHint(24 * 3600 * 1000, public=True)


def strictest(hints: Iterable[CacheHint]) -> CacheHint:
    """The hint for a reply combined from several; NO_HINT without any."""
    known = [hint for hint in hints if hint is not NOTHING_TO_KEEP]
    if not known:
        return NO_HINT
    return CacheHint(min(hint.ttl_ms for hint in known), all(hint.public for hint in known))


# SDK clients refuse an event over 1 MiB; a page stays well below.
PAGE_BYTES = 256 * 1024
# A URI may be longer than a cursor should be.
_LONGEST_NAME = 200
# With no more items, fingerprinting takes negligible time.
_FEW = 200


class InvalidCursor(ValueError):
    """A cursor that this listing did not issue, or whose position is gone."""


class ListingFingerprint(msgspec.Struct, frozen=True):
    """The digests of a listing that tell whether another one is equal, and where they differ."""

    digest: str
    # Of each item, by name.
    items: dict[str, bytes]
    size: int


class PagedListing:
    """Every page of one listing; a cursor names the last item before it, so it survives other changes."""

    def __init__(self, member: str, items: Sequence[tuple[str, bytes]], page_bytes: int = PAGE_BYTES) -> None:
        """`items` are public names and definitions, in order; `member` is their place in the result."""
        self._head = b'"' + member.encode() + b'":['
        self._items = items
        self._page_bytes = page_bytes
        self._pages: dict[str | None, bytes] = {}
        # Built only for a cursor of an earlier listing, which is rare.
        self._index: dict[str, int] | None = None
        # Computed on first use.
        self._fingerprint: ListingFingerprint | None = None
        self._pages[None], end = self._encode(0)
        while end < len(items):
            cursor = _cursor(items[end - 1][0])
            self._pages[cursor], end = self._encode(end)

    @property
    def items(self) -> Sequence[tuple[str, bytes]]:
        return self._items

    @property
    def is_fingerprinted(self) -> bool:
        """Whether the fingerprint takes no time."""
        return self._fingerprint is not None or len(self._items) <= _FEW

    @property
    def fingerprint(self) -> ListingFingerprint:
        """The fingerprint; thousands of items take some milliseconds, once."""
        if self._fingerprint is None:
            digests = {name: hashlib.blake2b(text, digest_size=16).digest() for name, text in self._items}
            whole = hashlib.blake2b(b"".join(digests.values()), digest_size=16).hexdigest()
            size = sum(len(text) for _, text in self._items)
            self._fingerprint = ListingFingerprint(whole, digests, size)
        return self._fingerprint

    @property
    def digest(self) -> str:
        """The digest of all that clients see; equal for the same bytes in the same order."""
        return self.fingerprint.digest

    def page(self, cursor: str | None) -> bytes:
        """The members of one result; raises InvalidCursor."""
        prepared = self._pages.get(cursor)
        if prepared is not None:
            return prepared
        if self._index is None:
            self._index = {_cursor(name): position for position, (name, _) in enumerate(self._items)}
        position = self._index.get(cursor or "")
        if position is None:
            raise InvalidCursor("the cursor is unknown, or what it names is gone: list again from the start")
        return self._encode(position + 1)[0]

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


def _cursor(name: str) -> str:
    encoded = name.encode()
    if len(encoded) > _LONGEST_NAME:
        encoded = b"#" + hashlib.sha256(encoded).digest()
    return base64.urlsafe_b64encode(encoded).decode()
