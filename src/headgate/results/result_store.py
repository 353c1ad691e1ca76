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
        """The offset in the file at which its `size` bytes begin."""

    def fileno(self) -> int:
        """The descriptor of the file, until it is closed."""


StoredContent = bytes | FileContent

# 96 bits.
_ID_BYTES = 12


def new_cache_id() -> str:
    """An id that cannot be guessed."""
    return secrets.token_hex(_ID_BYTES)


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """A stored result as of the last access; times are those of the store's clock."""

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
    """How much a store keeps; the newest result stays until the next one comes, however large it is."""

    # Bounds the whole store when agents are not isolated.
    max_entries: int = 50
    ttl_seconds: float = 300.0
    isolated: bool = True
    # The next three apply when agents are isolated.
    entries_per_agent: int = 20
    memory_per_agent: int = 100 * 1024 * 1024
    # At least as many as there can be sessions, so that opening sessions alone evicts no results.
    agents: int = 10_000
    # All contents together, including those on disk.
    max_bytes: int = 1024 * 1024 * 1024
    # What all agents together keep in memory, including arguments; the rest goes to disk.
    max_memory: int = 256 * 1024 * 1024
    # Many systems allow a process 1,024 descriptors, and connections need theirs.
    max_files: int = 256


class ResultStoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """Current contents and counters of a store."""

    entries: int
    # The most entries that all agents together can have.
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
    """Stores results for the agents that made them; the id of another agent is an unknown id.

    A content on disk is returned as a file of the reader's own: it stays readable when the entry is evicted,
    and the reader closes it; `open_stored` does so.
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
        """The id, which is new unless the caller has made it with `new_cache_id`.

        The store owns the content from here on, also when this fails. Raises OSError when a spooled content
        that is in no file cannot be written to one.
        """

    async def get_entry(self, agent: str, id: str) -> StoredResult | None:
        """The entry with its content, or None when there is no such entry."""


@asynccontextmanager
async def open_stored(store: ResultStore, agent: str, id: str) -> AsyncIterator[StoredResult | None]:
    """An entry whose content stays readable while this is open, even when the entry is evicted."""
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
    """The entry with the largest product of idle seconds and size; the first of equals.

    The entries are in the order of their last access, and none is larger than `largest`.
    """
    found, most = None, -1.0
    for entry in entries:
        # The clock may have been set back.
        idle = max(0.0, now - entry.last_accessed_at)
        if idle * largest < most:
            # The following entries were accessed later still.
            break
        if idle * size(entry) > most:
            found, most = entry, idle * size(entry)
    return found


class StoreUsage(msgspec.Struct):
    """How much one agent or all agents have stored."""

    contents: int = 0
    memory: int = 0
    # The part of `memory` whose content is in memory too. The arguments of a result on disk do not count:
    # otherwise a limit of 0 would evict every result but the newest for its arguments.
    resident: int = 0
    files: int = 0
    disk: int = 0

    def add(self, entry: StoredResult, sign: int = 1) -> None:
        """Add an entry, or with -1 subtract it."""
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
    """The entries of one agent, the last accessed at the end."""

    def __init__(self) -> None:
        self.entries: OrderedDict[str, StoredResult] = OrderedDict()
        self.usage = StoreUsage()
        # No entry has ever been larger, including arguments.
        self.largest = 0


class _LimitedResource(NamedTuple):
    """A limited resource: its total usage, which entries use it, and how much each uses."""

    usage: Callable[[StoreUsage], int]
    applies_to: Callable[[StoredResult], bool] | None
    size: Callable[[StoredResult], int]


_CONTENTS = _LimitedResource(attrgetter("contents"), None, attrgetter("size_bytes"))
_MEMORY = _LimitedResource(attrgetter("memory"), lambda entry: _memory(entry) > 0, _memory)
_RESIDENT = _LimitedResource(attrgetter("resident"), lambda entry: not _in_file(entry), _memory)
_FILES = _LimitedResource(attrgetter("files"), _in_file, attrgetter("size_bytes"))


class EvictionIndex:
    """The entries of all agents. It selects what to evict; the caller removes it."""

    def __init__(self, limits: ResultStoreLimits) -> None:
        self._limits = limits
        # Agents that were idle longest first; agents without entries are absent.
        self._by_agent: OrderedDict[str, _AgentEntries] = OrderedDict()
        # By time to live, of which there are few: entries with the same one expire in the order in which they
        # came.
        self._deadlines: dict[float, OrderedDict[EntryKey, float]] = {}
        self._ttl_seconds: dict[EntryKey, float] = {}
        # Never evicted until the next one comes.
        self._newest: EntryKey = ("", "")
        self._entries_each = limits.entries_per_agent if limits.isolated else limits.max_entries
        # 0 keeps everything on disk, also where agents share one store.
        bounded = limits.isolated or not limits.memory_per_agent
        self._memory_each = limits.memory_per_agent if bounded else limits.max_memory
        self.usage = StoreUsage()
        self.entries = 0

    @property
    def agents(self) -> int:
        return len(self._by_agent)

    @property
    def max_entries(self) -> int:
        """The most entries that there can be."""
        return self._entries_each * (self._limits.agents if self._limits.isolated else 1)

    def fits_in_memory(self, agent: str, size: int) -> bool:
        """Whether so many more bytes stay within the memory limits of the agent and of all agents."""
        agent_entries = self._by_agent.get(agent)
        own = agent_entries.usage.resident if agent_entries else 0
        return own + size <= self._memory_each and self.usage.memory + size <= self._limits.max_memory

    def add(self, agent: str, entry: StoredResult, ttl_seconds: float) -> None:
        """Add the entry as the newest."""
        agent_entries = self._by_agent.setdefault(agent, _AgentEntries())
        self._by_agent.move_to_end(agent)
        agent_entries.entries[entry.id] = entry
        agent_entries.usage.add(entry)
        agent_entries.largest = max(agent_entries.largest, entry.size_bytes + len(entry.arguments))
        self.usage.add(entry)
        self.entries += 1
        self._newest = key = (agent, entry.id)
        self._deadlines.setdefault(ttl_seconds, OrderedDict())[key] = entry.expires_at
        self._ttl_seconds[key] = ttl_seconds

    def touch(self, agent: str, id: str, now: float) -> StoredResult | None:
        """The entry after this access; None when there is none or it has expired."""
        agent_entries = self._by_agent.get(agent)
        entry = agent_entries.entries.get(id) if agent_entries else None
        if agent_entries is None or entry is None or not now < entry.expires_at:
            return None
        used = msgspec.structs.replace(entry, last_accessed_at=now, access_count=entry.access_count + 1)
        # To the end, in order of access: the clock alone may not distinguish two accesses.
        agent_entries.entries[id] = used
        agent_entries.entries.move_to_end(id)
        self._by_agent.move_to_end(agent)
        return used

    def remove(self, agent: str, id: str) -> StoredResult | None:
        """Remove and return the entry; the caller owns its content."""
        agent_entries = self._by_agent.get(agent)
        entry = agent_entries.entries.pop(id, None) if agent_entries else None
        if agent_entries is None or entry is None:
            return None
        agent_entries.usage.add(entry, -1)
        self.usage.add(entry, -1)
        self.entries -= 1
        ttl_seconds = self._ttl_seconds.pop((agent, id))
        del self._deadlines[ttl_seconds][agent, id]
        if not self._deadlines[ttl_seconds]:
            del self._deadlines[ttl_seconds]
        if not agent_entries.entries:
            del self._by_agent[agent]
        return entry

    def keys_of(self, agent: str | None) -> list[EntryKey]:
        """The keys of the entries of an agent, or with None of all."""
        chosen = self._by_agent if agent is None else {agent} & self._by_agent.keys()
        return [(owner, id) for owner in chosen for id in self._by_agent[owner].entries]

    def next_expired(self, now: float) -> EntryKey | None:
        for queue in self._deadlines.values():
            key, expires_at = next(iter(queue.items()))
            if not now < expires_at:
                return key
        return None

    def keys_to_evict(self, agent: str, now: float) -> Iterator[EntryKey]:
        """The entries to evict after this agent has added one; the caller removes each before the next."""
        while (limited := self._limit_exceeded_by(agent)) and (key := self._victim(agent, limited, now)):
            yield key
        while len(self._by_agent) > self._limits.agents:
            key = self._victim(next(iter(self._by_agent)), _CONTENTS, now)
            if key is None:
                break
            yield key
        yield from self._over_total_limit(_MEMORY, self._limits.max_memory, now)
        yield from self._over_total_limit(_FILES, self._limits.max_files, now)
        yield from self._over_total_limit(_CONTENTS, self._limits.max_bytes, now)

    def _limit_exceeded_by(self, agent: str) -> _LimitedResource | None:
        agent_entries = self._by_agent.get(agent)
        if agent_entries is None:
            return None
        if len(agent_entries.entries) > self._entries_each:
            return _CONTENTS
        return _RESIDENT if agent_entries.usage.resident > self._memory_each else None

    def _over_total_limit(self, limited: _LimitedResource, most: int, now: float) -> Iterator[EntryKey]:
        """Evict from the agent with the highest usage: no agent loses a result to one that stores more."""
        if limited.usage(self.usage) <= most:
            return
        # Of agents with equal usage, the one that was idle longest.
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
                usage = limited.usage(self._by_agent[agent].usage) if agent in self._by_agent else 0
                heappush(fullest, (-usage, idle, agent))

    def _victim(self, agent: str, limited: _LimitedResource, now: float) -> EntryKey | None:
        agent_entries, newest = self._by_agent.get(agent), self._newest[1]
        if agent_entries is None:
            return None
        entries = filter(limited.applies_to, agent_entries.entries.values())
        others = (entry for entry in entries if entry.id != newest)
        entry = select_victim(others, now, limited.size, agent_entries.largest)
        return (agent, entry.id) if entry else None
