"""The store of large results: entries, limits, the index that chooses what to evict, and the protocol."""

import asyncio
import math
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from headgate.domain.payload import Payload, SpooledPayload


@runtime_checkable
class FileContent(SpooledPayload, Protocol):
    """A content in an open file, which a worker process can map."""

    @property
    def start(self) -> int:
        """Where in the file it begins; it has `size` bytes from there on."""

    def fileno(self) -> int:
        """The descriptor of the file, until it is closed."""


StoredContent = bytes | FileContent

# 96 bits.
_ID_BYTES = 12


def new_cache_id() -> str:
    """One that nobody can guess."""
    return secrets.token_hex(_ID_BYTES)


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result that is kept, as it was when somebody asked for it; times are those of the store's clock."""

    id: str
    content: StoredContent
    tool_name: str
    # JSON, as it was sent.
    arguments: bytes
    created_at: float
    last_accessed_at: float
    access_count: int = 0
    # Of the content.
    size_bytes: int
    expires_at: float


class ResultStoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a store holds; the newest result stays until the next one comes, however large it is."""

    # Bounds the whole store when agents are not told apart.
    max_entries: int = 50
    ttl_seconds: float = 300.0
    isolated: bool = True
    # The next three bound it when they are.
    entries_per_agent: int = 20
    memory_per_agent: int = 100 * 1024 * 1024
    # No fewer than there can be sessions, so that opening sessions alone pushes nobody's results out.
    agents: int = 10_000
    # All contents together, those on disk included.
    max_bytes: int = 1024 * 1024 * 1024
    # What all agents together keep in memory, arguments included; the rest goes to disk.
    max_memory: int = 256 * 1024 * 1024
    # Many systems let a process have 1,024, and connections need theirs.
    max_files: int = 256


class ResultStoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a store holds, and what has become of what it held."""

    entries: int
    # The most that there can be, of all agents together.
    max_entries: int
    ttl_seconds: float
    total_cached_bytes: int
    hits: int
    misses: int
    agents: int
    bytes_on_disk: int
    evicted: int
    expired: int


class ResultStore(Protocol):
    """Keeps results for the agents that made them; an id of another agent is an unknown id.

    A content that is given out on disk is a file of the reader's own: it stays readable though the entry
    goes, and the reader closes it. `reading` does that.
    """

    async def put(
        self,
        agent: str,
        content: Payload,
        tool_name: str,
        arguments: bytes,
        ttl_seconds: float | None = None,
        *,
        id: str | None = None,
    ) -> str:
        """The id, which is a new one unless the caller has made it with `new_id`.

        The content belongs to the store from here on, also when this fails. Raises OSError when one that
        is on disk, but in no file, cannot be written to one.
        """

    async def get(self, agent: str, id: str) -> StoredContent | None:
        """The content, or None when there is no such entry (any more)."""

    async def get_entry(self, agent: str, id: str) -> StoredResult | None:
        """The content and what is known about it, or None when there is no such entry (any more)."""

    async def remove(self, agent: str, id: str) -> bool:
        """Forget an entry; false when there is no such entry (any more)."""

    async def clear(self, agent: str | None = None) -> int:
        """Forget all entries of an agent, or of all: so many. When agents are not told apart, always all."""

    async def size(self) -> int:
        """How many entries there are, of all agents together."""

    async def stats(self) -> ResultStoreStats:
        """What it holds now, and what has become of the rest."""


@asynccontextmanager
async def open_stored(store: ResultStore, agent: str, id: str) -> AsyncIterator[StoredResult | None]:
    """An entry whose content stays readable for as long as this is open, whatever becomes of the entry."""
    entry = await store.get_entry(agent, id)
    try:
        yield entry
    finally:
        if entry is not None and not isinstance(entry.content, bytes):
            # The last reader of a large file frees its blocks, which takes milliseconds.
            await asyncio.shield(asyncio.to_thread(entry.content.close))


# An agent and an id.
EntryKey = tuple[str, str]


def select_victim(
    entries: Iterable[StoredResult],
    now: float,
    size: Callable[[StoredResult], int] = attrgetter("size_bytes"),
    largest: float = math.inf,
) -> StoredResult | None:
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


class StoreUsage(msgspec.Struct):
    """How much is held, by one agent or by all."""

    contents: int = 0
    memory: int = 0
    # Of `memory`, the entries whose content is there too. The arguments of a result on disk are not among
    # them: otherwise a limit of 0 would evict every result but the newest for its arguments.
    resident: int = 0
    files: int = 0
    disk: int = 0

    def add(self, entry: StoredResult, sign: int = 1) -> None:
        """Count an entry in, or with -1 out."""
        self.contents += sign * entry.size_bytes
        self.memory += sign * _memory(entry)
        if _in_file(entry):
            self.files += sign
            self.disk += sign * entry.size_bytes
        else:
            self.resident += sign * _memory(entry)


def _memory(entry: StoredResult) -> int:
    content = entry.content
    return len(entry.arguments) + (len(content) if isinstance(content, bytes) else 0)


def _in_file(entry: StoredResult) -> bool:
    return not isinstance(entry.content, bytes)


class _AgentEntries:
    """The entries of one agent, those touched last at the end."""

    def __init__(self) -> None:
        self.entries: OrderedDict[str, StoredResult] = OrderedDict()
        self.usage = StoreUsage()
        # No entry has ever been larger, arguments included.
        self.largest = 0

    def add(self, entry: StoredResult) -> None:
        self.entries[entry.id] = entry
        self.usage.add(entry)
        self.largest = max(self.largest, entry.size_bytes + len(entry.arguments))


class _LimitedResource(NamedTuple):
    """Something that there is only so much of: how much is held, which entries hold any, and their size."""

    usage: Callable[[StoreUsage], int]
    applies_to: Callable[[StoredResult], bool] | None
    size: Callable[[StoredResult], int]


_CONTENTS = _LimitedResource(attrgetter("contents"), None, attrgetter("size_bytes"))
_MEMORY = _LimitedResource(attrgetter("memory"), lambda entry: _memory(entry) > 0, _memory)
_RESIDENT = _LimitedResource(attrgetter("resident"), lambda entry: not _in_file(entry), _memory)
_FILES = _LimitedResource(attrgetter("files"), _in_file, attrgetter("size_bytes"))


class EvictionIndex:
    """The entries of all agents. It says what has to go; who asks removes it."""

    def __init__(self, limits: ResultStoreLimits) -> None:
        self._limits = limits
        # Agents that were idle longest first; one without entries is not there.
        self._by_agent: OrderedDict[str, _AgentEntries] = OrderedDict()
        self._deadlines = _ExpiryQueues()
        # It stays until the next one comes.
        self._newest: EntryKey = ("", "")
        self._entries_each = limits.entries_per_agent if limits.isolated else limits.max_entries
        # 0 keeps everything on disk, also where agents share one store.
        bounded = limits.isolated or not limits.memory_per_agent
        self._memory_each = limits.memory_per_agent if bounded else limits.max_memory
        self.usage = StoreUsage()
        self.entries = 0

    @property
    def agents(self) -> int:
        """How many have entries."""
        return len(self._by_agent)

    @property
    def max_entries(self) -> int:
        """The most that there can be."""
        return self._entries_each * (self._limits.agents if self._limits.isolated else 1)

    def fits_in_memory(self, agent: str, size: int) -> bool:
        """Whether so many bytes more leave the agent, and all together, within their memory."""
        agent_entries = self._by_agent.get(agent)
        own = agent_entries.usage.resident if agent_entries else 0
        return own + size <= self._memory_each and self.usage.memory + size <= self._limits.max_memory

    def add(self, agent: str, entry: StoredResult, ttl_seconds: float) -> None:
        """Put it up as the newest."""
        agent_entries = self._by_agent.setdefault(agent, _AgentEntries())
        self._by_agent.move_to_end(agent)
        agent_entries.add(entry)
        self.usage.add(entry)
        self.entries += 1
        self._newest = (agent, entry.id)
        self._deadlines.add(self._newest, ttl_seconds, entry.expires_at)

    def touch(self, agent: str, id: str, now: float) -> StoredResult | None:
        """The entry as it is after this access; None when there is none or its time is over."""
        agent_entries = self._by_agent.get(agent)
        entry = agent_entries.entries.get(id) if agent_entries else None
        if agent_entries is None or entry is None or not now < entry.expires_at:
            return None
        used = msgspec.structs.replace(entry, last_accessed_at=now, access_count=entry.access_count + 1)
        # To the end, where those are that were touched last: a clock may stand still.
        agent_entries.entries[id] = used
        agent_entries.entries.move_to_end(id)
        self._by_agent.move_to_end(agent)
        return used

    def remove(self, agent: str, id: str) -> StoredResult | None:
        """The entry, which is there no more; its content is the caller's."""
        agent_entries = self._by_agent.get(agent)
        entry = agent_entries.entries.pop(id, None) if agent_entries else None
        if agent_entries is None or entry is None:
            return None
        agent_entries.usage.add(entry, -1)
        self.usage.add(entry, -1)
        self.entries -= 1
        self._deadlines.remove((agent, id))
        if not agent_entries.entries:
            del self._by_agent[agent]
        return entry

    def keys_of(self, agent: str | None) -> list[EntryKey]:
        """Those of the entries of an agent, or with None of all."""
        chosen = self._by_agent if agent is None else {agent} & self._by_agent.keys()
        return [(owner, id) for owner in chosen for id in self._by_agent[owner].entries]

    def next_expired(self, now: float) -> EntryKey | None:
        """An entry whose time is over."""
        return self._deadlines.next_expired(now)

    def keys_to_evict(self, agent: str, now: float) -> Iterator[EntryKey]:
        """The entries that have to go after this agent has put one up.

        The caller removes each before it asks for the next.
        """
        yield from self._over_agent_limits(agent, now)
        while len(self._by_agent) > self._limits.agents:
            key = self._victim(next(iter(self._by_agent)), _CONTENTS, now)
            if key is None:
                break
            yield key
        yield from self._over_total_limit(_MEMORY, self._limits.max_memory, now)
        yield from self._over_total_limit(_FILES, self._limits.max_files, now)
        yield from self._over_total_limit(_CONTENTS, self._limits.max_bytes, now)

    def _over_agent_limits(self, agent: str, now: float) -> Iterator[EntryKey]:
        while agent_entries := self._by_agent.get(agent):
            if len(agent_entries.entries) > self._entries_each:
                key = self._victim(agent, _CONTENTS, now)
            elif agent_entries.usage.resident > self._memory_each:
                key = self._victim(agent, _RESIDENT, now)
            else:
                break
            if key is None:
                break
            yield key

    def _over_total_limit(self, limited: _LimitedResource, most: int, now: float) -> Iterator[EntryKey]:
        """Who holds most gives first: nobody loses a result to one that keeps more than itself."""
        if limited.usage(self.usage) <= most:
            return
        # Of those who hold as much, the one that was idle longest.
        fullest = [
            (-limited.usage(agent_entries.usage), idle, agent)
            for idle, (agent, agent_entries) in enumerate(self._by_agent.items())
        ]
        heapify(fullest)
        while fullest and limited.usage(self.usage) > most:
            _, idle, agent = heappop(fullest)
            key = self._victim(agent, limited, now)
            if key is not None:
                yield key
                held = limited.usage(self._by_agent[agent].usage) if agent in self._by_agent else 0
                heappush(fullest, (-held, idle, agent))

    def _victim(self, agent: str, limited: _LimitedResource, now: float) -> EntryKey | None:
        agent_entries, newest = self._by_agent.get(agent), self._newest[1]
        if agent_entries is None:
            return None
        others = (
            entry
            for entry in filter(limited.applies_to, agent_entries.entries.values())
            if entry.id != newest
        )
        entry = select_victim(others, now, limited.size, agent_entries.largest)
        return (agent, entry.id) if entry else None


class _ExpiryQueues:
    """When the time of each entry is over.

    Those with the same time to live end in the order in which they came, and there are few different ones.
    """

    def __init__(self) -> None:
        self._queues: dict[float, OrderedDict[EntryKey, float]] = {}
        self._queue_of: dict[EntryKey, float] = {}

    def add(self, key: EntryKey, ttl_seconds: float, expires_at: float) -> None:
        self._queues.setdefault(ttl_seconds, OrderedDict())[key] = expires_at
        self._queue_of[key] = ttl_seconds

    def remove(self, key: EntryKey) -> None:
        ttl_seconds = self._queue_of.pop(key)
        queue = self._queues[ttl_seconds]
        del queue[key]
        if not queue:
            del self._queues[ttl_seconds]

    def next_expired(self, now: float) -> EntryKey | None:
        for queue in self._queues.values():
            key, expires_at = next(iter(queue.items()))
            if not now < expires_at:
                return key
        return None
