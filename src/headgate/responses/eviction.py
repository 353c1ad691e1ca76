"""Which results stay: who holds how much, and what goes when its time is over or room is needed."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import NamedTuple

import msgspec

from headgate.responses.store import Entry, Limits

# An agent and an id.
Key = tuple[str, str]


def worst(
    entries: Iterable[Entry],
    now: float,
    size: Callable[[Entry], int] = attrgetter("size_bytes"),
    largest: float = math.inf,
) -> Entry | None:
    """The one with the largest idle seconds x size, of equals the first.

    The entries come in the order in which they were touched, and none is larger than `largest`.
    """
    found, most = None, -1.0
    for entry in entries:
        # A clock may have been set back.
        idle = max(0.0, now - entry.last_accessed_at)
        if idle * largest < most:
            # Those that follow were touched later still.
            break
        if idle * size(entry) > most:
            found, most = entry, idle * size(entry)
    return found


class Load(msgspec.Struct):
    """How much is held, by one agent or by all."""

    contents: int = 0
    memory: int = 0
    # Of `memory`, the entries whose content is there too. The arguments of a result on disk are not among
    # them: otherwise a limit of 0 would evict every result but the newest for its arguments.
    resident: int = 0
    files: int = 0
    disk: int = 0

    def add(self, entry: Entry, sign: int = 1) -> None:
        """Count an entry in, or with -1 out."""
        self.contents += sign * entry.size_bytes
        self.memory += sign * _memory(entry)
        if _in_file(entry):
            self.files += sign
            self.disk += sign * entry.size_bytes
        else:
            self.resident += sign * _memory(entry)


def _memory(entry: Entry) -> int:
    content = entry.content
    return len(entry.arguments) + (len(content) if isinstance(content, bytes) else 0)


def _in_file(entry: Entry) -> bool:
    return not isinstance(entry.content, bytes)


class _Shelf:
    """The entries of one agent, those touched last at the end."""

    def __init__(self) -> None:
        self.entries: OrderedDict[str, Entry] = OrderedDict()
        self.load = Load()
        # No entry has ever been larger, arguments included.
        self.largest = 0

    def add(self, entry: Entry) -> None:
        self.entries[entry.id] = entry
        self.load.add(entry)
        self.largest = max(self.largest, entry.size_bytes + len(entry.arguments))


class _Scarce(NamedTuple):
    """Something that there is only so much of: how much is held, which entries hold any, and their size."""

    held: Callable[[Load], int]
    holds: Callable[[Entry], bool] | None
    size: Callable[[Entry], int]


_CONTENTS = _Scarce(attrgetter("contents"), None, attrgetter("size_bytes"))
_MEMORY = _Scarce(attrgetter("memory"), lambda entry: _memory(entry) > 0, _memory)
_RESIDENT = _Scarce(attrgetter("resident"), lambda entry: not _in_file(entry), _memory)
_FILES = _Scarce(attrgetter("files"), _in_file, attrgetter("size_bytes"))


class Shelves:
    """The entries of all agents. It says what has to go; who asks removes it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # Agents that were idle longest first; one without entries is not there.
        self._shelves: OrderedDict[str, _Shelf] = OrderedDict()
        self._deadlines = _Deadlines()
        # It stays until the next one comes.
        self._newest: Key = ("", "")
        self._entries_each = limits.entries_per_agent if limits.isolated else limits.max_entries
        # 0 keeps everything on disk, also where agents share one store.
        bounded = limits.isolated or not limits.memory_per_agent
        self._memory_each = limits.memory_per_agent if bounded else limits.max_memory
        self.load = Load()
        self.entries = 0

    @property
    def agents(self) -> int:
        """How many have entries."""
        return len(self._shelves)

    @property
    def max_entries(self) -> int:
        """The most that there can be."""
        return self._entries_each * (self._limits.agents if self._limits.isolated else 1)

    def fits_in_memory(self, agent: str, size: int) -> bool:
        """Whether so many bytes more leave the agent, and all together, within their memory."""
        shelf = self._shelves.get(agent)
        own = shelf.load.resident if shelf else 0
        return own + size <= self._memory_each and self.load.memory + size <= self._limits.max_memory

    def add(self, agent: str, entry: Entry, ttl_seconds: float) -> None:
        """Put it up as the newest."""
        shelf = self._shelves.setdefault(agent, _Shelf())
        self._shelves.move_to_end(agent)
        shelf.add(entry)
        self.load.add(entry)
        self.entries += 1
        self._newest = (agent, entry.id)
        self._deadlines.add(self._newest, ttl_seconds, entry.expires_at)

    def use(self, agent: str, id: str, now: float) -> Entry | None:
        """The entry as it is after this access; None when there is none or its time is over."""
        shelf = self._shelves.get(agent)
        entry = shelf.entries.get(id) if shelf else None
        if shelf is None or entry is None or not now < entry.expires_at:
            return None
        used = msgspec.structs.replace(entry, last_accessed_at=now, access_count=entry.access_count + 1)
        # To the end, where those are that were touched last: a clock may stand still.
        shelf.entries[id] = used
        shelf.entries.move_to_end(id)
        self._shelves.move_to_end(agent)
        return used

    def remove(self, agent: str, id: str) -> Entry | None:
        """The entry, which is there no more; its content is the caller's."""
        shelf = self._shelves.get(agent)
        entry = shelf.entries.pop(id, None) if shelf else None
        if shelf is None or entry is None:
            return None
        shelf.load.add(entry, -1)
        self.load.add(entry, -1)
        self.entries -= 1
        self._deadlines.remove((agent, id))
        if not shelf.entries:
            del self._shelves[agent]
        return entry

    def keys_of(self, agent: str | None) -> list[Key]:
        """Those of the entries of an agent, or with None of all."""
        chosen = self._shelves if agent is None else {agent} & self._shelves.keys()
        return [(owner, id) for owner in chosen for id in self._shelves[owner].entries]

    def due(self, now: float) -> Key | None:
        """An entry whose time is over."""
        return self._deadlines.due(now)

    def surplus(self, agent: str, now: float) -> Iterator[Key]:
        """The entries that have to go after this agent has put one up.

        The caller removes each before it asks for the next.
        """
        yield from self._own_surplus(agent, now)
        while len(self._shelves) > self._limits.agents:
            key = self._worst(next(iter(self._shelves)), _CONTENTS, now)
            if key is None:
                break
            yield key
        yield from self._surplus_of_all(_MEMORY, self._limits.max_memory, now)
        yield from self._surplus_of_all(_FILES, self._limits.max_files, now)
        yield from self._surplus_of_all(_CONTENTS, self._limits.max_bytes, now)

    def _own_surplus(self, agent: str, now: float) -> Iterator[Key]:
        while shelf := self._shelves.get(agent):
            if len(shelf.entries) > self._entries_each:
                key = self._worst(agent, _CONTENTS, now)
            elif shelf.load.resident > self._memory_each:
                key = self._worst(agent, _RESIDENT, now)
            else:
                break
            if key is None:
                break
            yield key

    def _surplus_of_all(self, scarce: _Scarce, most: int, now: float) -> Iterator[Key]:
        """Who holds most gives first: nobody loses a result to one that keeps more than itself."""
        if scarce.held(self.load) <= most:
            return
        # Of those who hold as much, the one that was idle longest.
        fullest = [
            (-scarce.held(shelf.load), idle, agent)
            for idle, (agent, shelf) in enumerate(self._shelves.items())
        ]
        heapify(fullest)
        while fullest and scarce.held(self.load) > most:
            _, idle, agent = heappop(fullest)
            key = self._worst(agent, scarce, now)
            if key is not None:
                yield key
                held = scarce.held(self._shelves[agent].load) if agent in self._shelves else 0
                heappush(fullest, (-held, idle, agent))

    def _worst(self, agent: str, scarce: _Scarce, now: float) -> Key | None:
        shelf, newest = self._shelves.get(agent), self._newest[1]
        if shelf is None:
            return None
        others = (entry for entry in filter(scarce.holds, shelf.entries.values()) if entry.id != newest)
        entry = worst(others, now, scarce.size, shelf.largest)
        return (agent, entry.id) if entry else None


class _Deadlines:
    """When the time of each entry is over.

    Those with the same time to live end in the order in which they came, and there are few different ones.
    """

    def __init__(self) -> None:
        self._queues: dict[float, OrderedDict[Key, float]] = {}
        self._queue_of: dict[Key, float] = {}

    def add(self, key: Key, ttl_seconds: float, expires_at: float) -> None:
        self._queues.setdefault(ttl_seconds, OrderedDict())[key] = expires_at
        self._queue_of[key] = ttl_seconds

    def remove(self, key: Key) -> None:
        ttl_seconds = self._queue_of.pop(key)
        queue = self._queues[ttl_seconds]
        del queue[key]
        if not queue:
            del self._queues[ttl_seconds]

    def due(self, now: float) -> Key | None:
        for queue in self._queues.values():
            key, expires_at = next(iter(queue.items()))
            if not now < expires_at:
                return key
        return None
