"""Pages of a list that stays as it was when it was made: snapshots, and the cursors that point into them."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from headgate.domain.call import Caller
from headgate.domain.errors import InvalidQuestion
from headgate.knowledge.cursors import Cursor, print_of, read_cursor, write_cursor

T = TypeVar("T")
_About = TypeVar("_About")

MOST_SNAPSHOTS: Final = 1000
# Of all snapshots of a tool together: a list of ids may be long.
_MOST_IDS: Final = 2_000_000
TTL_SECONDS: Final = 3600.0
_MOST_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[T]):
    """Lists of ids that are paged side by side, and what else was known when they were made."""

    lists: tuple[tuple[int, ...], ...]
    # Of the store.
    revision: int
    about: T
    # How many ids there are in `about` besides.
    more: int = 0

    @property
    def print(self) -> bytes:
        """Differs from that of other lists."""
        return print_of(self.lists)


@dataclass(frozen=True, slots=True)
class Opened(Generic[T]):
    """A snapshot, and where in each of its lists the page begins."""

    snapshot: Snapshot[T]
    places: tuple[int, ...]
    # Whether it was there already.
    kept: bool


class Pager(Generic[T]):
    """The snapshots of one tool that somebody has a cursor into, each for whoever asked for it."""

    def __init__(self, tool: str, clock: Callable[[], float], revision: Callable[[], Awaitable[int]]) -> None:
        self._tool = tool
        self._clock = clock
        self._revision = revision
        self._kept: OrderedDict[_Key, tuple[float, Snapshot[T]]] = OrderedDict()
        self._ids = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def open(
        self,
        cursor: str | None,
        caller: Caller,
        bound: Mapping[str, object],
        make: Callable[[], Awaitable[Snapshot[T]]],
    ) -> Opened[T]:
        """The list from its beginning or from where the cursor points; made where it is not kept.

        `bound` is what a cursor belongs to: each argument that decides what is in the list, by its name.
        Raises InvalidQuestion for a cursor that belongs to something else, or whose list is gone for good.
        """
        if cursor is None:
            made = await make()
            return Opened(made, tuple(0 for _ in made.lists), kept=False)
        place = read_cursor(cursor, self._tool, caller, bound)
        kept = self._find(_key(caller, bound, place.revision, place.print))
        if kept is None:
            return Opened(await self._made_again(place, make), place.places, kept=False)
        return Opened(kept, place.places, kept=True)

    def cursor(
        self, snapshot: Snapshot[T], caller: Caller, bound: Mapping[str, object], places: Sequence[int]
    ) -> str:
        """What `open` takes to go on from these places; from now on the snapshot is kept."""
        # Made once: the list may be long.
        mark = snapshot.print
        self._keep(_key(caller, bound, snapshot.revision, mark), snapshot)
        return write_cursor(Cursor(snapshot.revision, mark, tuple(places)), self._tool, caller, bound)

    async def _made_again(self, place: Cursor, make: Callable[[], Awaitable[Snapshot[T]]]) -> Snapshot[T]:
        # Asked first, so that an old cursor costs no search.
        if await self._revision() == place.revision:
            made = await make()
            if (made.revision, made.print) == (place.revision, place.print):
                return made
        raise InvalidQuestion(
            "cursor has expired: the documents have changed since; search again without a cursor",
            hint="search again without a cursor",
        )

    def _find(self, key: "_Key") -> Snapshot[T] | None:
        self._forget_the_old()
        found = self._kept.pop(key, None)
        if found is None:
            return None
        # Who goes on reading has another hour.
        self._kept[key] = (self._clock(), found[1])
        return found[1]

    def _keep(self, key: "_Key", snapshot: Snapshot[T]) -> None:
        self._drop(key)
        self._kept[key] = (self._clock(), snapshot)
        self._ids += _size(snapshot)
        self._forget_the_old()
        while len(self._kept) > MOST_SNAPSHOTS or (self._ids > _MOST_IDS and len(self._kept) > 1):
            self._drop(next(iter(self._kept)))

    def _forget_the_old(self) -> None:
        oldest = self._clock() - TTL_SECONDS
        while self._kept and next(iter(self._kept.values()))[0] < oldest:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: "_Key") -> None:
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            self._ids -= _size(dropped[1])


_Key = tuple[str, str, str, int, bytes]


def _key(caller: Caller, bound: Mapping[str, object], revision: int, mark: bytes) -> _Key:
    return (caller.tenant, caller.principal, repr(sorted(bound.items())), revision, mark)


def _size(snapshot: Snapshot[_About]) -> int:
    return sum(map(len, snapshot.lists)) + snapshot.more


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of a list, with their ids, and where the next page begins."""

    items: tuple[tuple[int, T], ...]
    # None at the end.
    following: int | None
    # Where it begins again for those who read on in another mode.
    place: int


async def page_of(
    ids: Sequence[int], start: int, size: int, read: Callable[[Sequence[int]], Awaitable[Mapping[int, T]]]
) -> Page[T]:
    """The next so many that are still there; what was removed meanwhile is made up for by what follows."""
    items: list[tuple[int, T]] = []
    places: list[int] = []
    # One more than is shown, so that the last page is known as the last.
    here, step = start, size + 1
    while len(items) <= size and here < len(ids):
        batch = ids[here : here + step]
        there = await read(batch)
        for place, id in enumerate(batch, here):
            if id in there and len(items) <= size:
                items.append((id, there[id]))
                places.append(place)
        here += len(batch)
        # Of a long list nearly everything may be gone, which is not found out one by one.
        step = max(step, min(2 * step, _MOST_AT_ONCE))
    if len(items) <= size:
        return Page(tuple(items), None, len(ids))
    return Page(tuple(items[:size]), places[size], places[size])
