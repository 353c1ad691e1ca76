"""The ResultStore protocol, its records and its limits."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

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
