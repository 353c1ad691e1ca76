"""Cursor pagination: opaque cursors bound to caller and arguments, and the snapshots they point into."""

import re
from array import array
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Final, Generic, NamedTuple, TypeVar

import msgspec

from headgate.domain.identity import Identity
from headgate.knowledge.errors import InvalidKnowledgeArgument

# The first byte of every cursor; the second is how many there are.
_VERSION_MARK: Final = 0xB8
_MARK_BYTES: Final = 2
_TOOLS: Final = ("semantic_search", "find_vendor_info", "list_sources", "neighbours")
_CHARACTERS: Final = re.compile(r"[A-Za-z0-9_-]+")
_PRINT_BYTES: Final = 3
# Agents pay for every byte with every page. One of each argument tells which of them is another now; where
# that is the same by chance, as in one of 256 cases, those of all arguments together are not.
_PART_BYTES: Final = 1
_WHOLE_BYTES: Final = 2
_CHECK_BYTES: Final = 3
_Place = Annotated[int, msgspec.Meta(ge=0)]
_START_AGAIN: Final = "leave it out to start again"


class SnapshotCursor(NamedTuple):
    """The position after a page: the list, the revision of the store, and the offsets."""

    revision: int
    fingerprint: bytes
    offsets: tuple[int, ...]


def fingerprint_lists(lists: Sequence[Sequence[int]]) -> bytes:
    """A short digest of a list of ids."""
    written = blake2b(digest_size=_PRINT_BYTES)
    for ids in lists:
        written.update(array("q", (len(ids), *ids)).tobytes())
    return written.digest()


def write_cursor(cursor: SnapshotCursor, tool: str, caller: Identity, bound: Mapping[str, object]) -> str:
    """The text of a cursor that works for this caller, tool and these arguments."""
    tied = _bound_values(caller, bound)
    parts = b"".join(_digest(value, _PART_BYTES) for value in tied.values())
    numbers = msgspec.msgpack.encode((cursor.revision, *cursor.offsets))
    body = bytes([_TOOLS.index(tool)]) + parts + _digest(tied, _WHOLE_BYTES) + cursor.fingerprint + numbers
    marked = bytes([_VERSION_MARK, _MARK_BYTES + len(body) + _CHECK_BYTES]) + body
    return _text(marked)


def read_cursor(text: str, tool: str, caller: Identity, bound: Mapping[str, object]) -> SnapshotCursor:
    """The position of a cursor; raises InvalidKnowledgeArgument that names the wrong part."""
    body = _body(text)
    given_for = _TOOLS[body[0]] if body[0] < len(_TOOLS) else "another tool"
    if given_for != tool:
        raise _refusal(f"cursor belongs to {given_for}, not to {tool}")
    rest, tied = body[1:], _bound_values(caller, bound)
    for name, value in tied.items():
        if rest[:_PART_BYTES] != _digest(value, _PART_BYTES):
            raise _refusal(f"cursor belongs to another {name}")
        rest = rest[_PART_BYTES:]
    if rest[:_WHOLE_BYTES] != _digest(tied, _WHOLE_BYTES):
        raise _refusal("cursor belongs to other arguments")
    rest = rest[_WHOLE_BYTES:]
    try:
        revision, *places = msgspec.msgpack.decode(rest[_PRINT_BYTES:], type=list[_Place])
    except (msgspec.MsgspecError, ValueError) as error:
        # Its maker knows how to make the checksum.
        raise _refusal("cursor is damaged: it has no place in the list") from error
    return SnapshotCursor(revision, rest[:_PRINT_BYTES], tuple(places))


def _body(text: str) -> bytes:
    """The content of a cursor between its prefix and its checksum."""
    if not _CHARACTERS.fullmatch(text):
        raise _refusal("cursor is not one that this server gave: it has characters that none of them has")
    # A part of four characters may lack some, but never three.
    whole = text[:-1] if len(text) % 4 == 1 else text
    raw = urlsafe_b64decode(whole + "=" * (-len(whole) % 4))
    if len(raw) < _MARK_BYTES or raw[0] != _VERSION_MARK:
        raise _refusal("cursor is not one that this server gave")
    if len(raw) < raw[1]:
        raise _refusal("cursor is cut off: its end is not there")
    if _text(raw[:-_CHECK_BYTES]) != text or len(raw) <= _MARK_BYTES + _CHECK_BYTES:
        raise _refusal("cursor is damaged: it is not as it was given")
    return raw[_MARK_BYTES:-_CHECK_BYTES]


def _refusal(problem: str) -> InvalidKnowledgeArgument:
    return InvalidKnowledgeArgument(
        f"{problem}; {_START_AGAIN}",
        hint=f"send the cursor as it was given, with the arguments it was given for, or {_START_AGAIN}",
    )


def _bound_values(caller: Identity, bound: Mapping[str, object]) -> dict[str, object]:
    return {"caller": (caller.tenant, caller.principal), **bound}


def _digest(value: object, size: int) -> bytes:
    # The argument may contain a lone surrogate.
    return blake2b(repr(value).encode("utf-8", "replace"), digest_size=size).digest()


def _text(marked: bytes) -> str:
    # The checksum is against damage, and the same after a restart, so that paging continues. It is no
    # protection: a cursor leads to nothing that its caller could not ask for without it.
    check = blake2b(marked, digest_size=_CHECK_BYTES, person=b"headgate cursor").digest()
    return urlsafe_b64encode(marked + check).rstrip(b"=").decode()


T = TypeVar("T")

MOST_SNAPSHOTS: Final = 1000
# Ids of all snapshots of a tool: a list may be long.
_MOST_IDS: Final = 2_000_000
TTL_SECONDS: Final = 3600.0
_MOST_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class PageSnapshot(Generic[T]):
    """Lists of ids that are paged side by side, and what else was known when they were made."""

    lists: tuple[tuple[int, ...], ...]
    # The revision of the store.
    revision: int
    about: T
    # How many ids there are in `about` besides.
    more: int = 0

    @property
    def size(self) -> int:
        return sum(map(len, self.lists)) + self.more


@dataclass(frozen=True, slots=True)
class OpenedSnapshot(Generic[T]):
    """A snapshot, and where in each of its lists the page begins."""

    snapshot: PageSnapshot[T]
    offsets: tuple[int, ...]
    # Whether it was there already.
    kept: bool


_Key = tuple[str, str, str, int, bytes]


class CursorPager(Generic[T]):
    """The snapshots of one tool with a valid cursor, each bound to its caller."""

    def __init__(self, tool: str, clock: Callable[[], float], revision: Callable[[], Awaitable[int]]) -> None:
        self._tool = tool
        self._clock = clock
        self._revision = revision
        self._kept: OrderedDict[_Key, tuple[float, PageSnapshot[T]]] = OrderedDict()
        self._ids = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def open(
        self,
        cursor: str | None,
        caller: Identity,
        bound: Mapping[str, object],
        make: Callable[[], Awaitable[PageSnapshot[T]]],
    ) -> OpenedSnapshot[T]:
        """The list from its beginning or from where the cursor points; made where it is not kept.

        `bound` is what a cursor belongs to: each argument that decides what is in the list, by its name.
        Raises InvalidKnowledgeArgument for a cursor of another call, or of an expired list.
        """
        if cursor is None:
            made = await make()
            return OpenedSnapshot(made, tuple(0 for _ in made.lists), kept=False)
        place = read_cursor(cursor, self._tool, caller, bound)
        self._evict_expired()
        key = _key(caller, bound, place.revision, place.fingerprint)
        if (found := self._kept.pop(key, None)) is not None:
            # Each page extends the lifetime by an hour.
            self._kept[key] = (self._clock(), found[1])
            return OpenedSnapshot(found[1], place.offsets, kept=True)
        # First, so that an expired cursor costs no search.
        if await self._revision() == place.revision:
            made = await make()
            if (made.revision, fingerprint_lists(made.lists)) == (place.revision, place.fingerprint):
                return OpenedSnapshot(made, place.offsets, kept=False)
        raise InvalidKnowledgeArgument(
            "cursor has expired: the documents have changed since; search again without a cursor",
            hint="search again without a cursor",
        )

    def cursor(
        self, snapshot: PageSnapshot[T], caller: Identity, bound: Mapping[str, object], places: Sequence[int]
    ) -> str:
        """The cursor of these offsets; the snapshot is stored from now on."""
        # Made once: the list may be long.
        mark = fingerprint_lists(snapshot.lists)
        key = _key(caller, bound, snapshot.revision, mark)
        self._drop(key)
        self._kept[key] = (self._clock(), snapshot)
        self._ids += snapshot.size
        self._evict_expired()
        while len(self._kept) > MOST_SNAPSHOTS or (self._ids > _MOST_IDS and len(self._kept) > 1):
            self._drop(next(iter(self._kept)))
        return write_cursor(SnapshotCursor(snapshot.revision, mark, tuple(places)), self._tool, caller, bound)

    def _evict_expired(self) -> None:
        oldest = self._clock() - TTL_SECONDS
        while self._kept and next(iter(self._kept.values()))[0] < oldest:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _Key) -> None:
        if (dropped := self._kept.pop(key, None)) is not None:
            self._ids -= dropped[1].size


def _key(caller: Identity, bound: Mapping[str, object], revision: int, mark: bytes) -> _Key:
    return (caller.tenant, caller.principal, repr(sorted(bound.items())), revision, mark)


@dataclass(frozen=True, slots=True)
class SnapshotPage(Generic[T]):
    """Some of a list, with their ids, and where the next page begins."""

    items: tuple[tuple[int, T], ...]
    # None at the end.
    following: int | None
    # The position for a caller that continues in another mode.
    place: int


async def page_of(
    ids: Sequence[int], start: int, size: int, read: Callable[[Sequence[int]], Awaitable[Mapping[int, T]]]
) -> SnapshotPage[T]:
    """The next so many that are still there; what was removed meanwhile is made up for by what follows."""
    items: list[tuple[int, T]] = []
    places: list[int] = []
    # One more than returned, so that the last page is known as the last.
    here, step = start, size + 1
    while len(items) <= size and here < len(ids):
        batch = ids[here : here + step]
        there = await read(batch)
        for place, id in enumerate(batch, here):
            if id in there and len(items) <= size:
                items.append((id, there[id]))
                places.append(place)
        here += len(batch)
        # Nearly all of a long list may be deleted, so ids are checked in batches.
        step = max(step, min(2 * step, _MOST_AT_ONCE))
    if len(items) <= size:
        return SnapshotPage(tuple(items), None, len(ids))
    return SnapshotPage(tuple(items[:size]), places[size], places[size])
