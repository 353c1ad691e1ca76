"""Large results in memory and in unnamed temporary files of this process."""

import asyncio
import io
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from headgate.domain.payload import Payload, payload_size
from headgate.event_loop import finish_uncancelled
from headgate.results.result_store import (
    EntryKey,
    EvictionIndex,
    FileContent,
    ResultStoreLimits,
    ResultStoreStats,
    StoredContent,
    StoredResult,
    new_cache_id,
)
from headgate.storage.files.payload_file import PayloadFile, payload_chunks, write_unnamed

log = logging.getLogger("headgate.storage")

# After so many removed entries other tasks run.
_DROPPED_AT_ONCE = 16
# The owner of all entries when agents are not isolated.
_SHARED_OWNER = ""


@asynccontextmanager
async def open_results(
    directory: Path, limits: ResultStoreLimits | None = None, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator["LocalResultStore"]:
    """A store that writes to `directory` what does not fit into memory, and is emptied after the block."""
    results = LocalResultStore(directory, limits or ResultStoreLimits(), clock)
    try:
        yield results
    finally:
        await results.close()


class LocalResultStore:
    """The store of one process; its owner calls `expire` periodically."""

    def __init__(self, directory: Path, limits: ResultStoreLimits, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._limits = limits
        self._clock = clock
        self._index = EvictionIndex(limits)
        self._files_to_close: list[FileContent] = []
        self._closed = False
        self._hits = self._misses = self._evicted = self._expired = 0

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
        """Store a result: its id, which is a new one unless the caller made it with `new_cache_id`.

        The store owns the content from here on, even when this fails. Raises OSError when content that is on
        disk, but not in a file of its own, cannot be copied to one.
        """
        owner = self._owner(agent)
        stored = await self._in_memory_or_on_disk(owner, content, len(arguments))
        now = self._clock()
        seconds = self._limits.ttl_seconds if ttl_seconds is None else ttl_seconds
        entry = StoredResult(
            id=id or new_cache_id(),
            content=stored,
            tool_name=tool_name,
            arguments=arguments,
            created_at=now,
            last_accessed_at=now,
            size_bytes=payload_size(stored),
            expires_at=now + seconds,
        )
        # A second entry of the same id replaces the first.
        self._remove_entry((owner, entry.id))
        self._index.add(owner, entry, seconds)
        if self._closed:
            await self.close()
        # Expired entries first: then perhaps no other has to be evicted.
        await self.expire()
        self._evicted += await self._drop(self._index.keys_to_evict(owner, now))
        return entry.id

    async def get(self, agent: str, id: str) -> StoredContent | None:
        """The content, which the reader closes, or None; raises OSError when no more files may be opened."""
        entry = await self.get_entry(agent, id)
        return entry.content if entry else None

    async def get_entry(self, agent: str, id: str) -> StoredResult | None:
        """The entry with its content, or None; as `get`."""
        entry = self._index.touch(self._owner(agent), id, self._clock())
        if entry is None:
            self._misses += 1
            return None
        self._hits += 1
        if isinstance(entry.content, bytes):
            return entry
        # Another descriptor of the same file: it outlives the entry.
        file, start = io.FileIO(os.dup(entry.content.fileno()), "rb"), entry.content.start
        return msgspec.structs.replace(entry, content=PayloadFile(file, start, entry.content.size))

    async def remove(self, agent: str, id: str) -> bool:
        """Remove an entry; False when there is no such entry (any more)."""
        await self.expire()
        return await self._drop([(self._owner(agent), id)]) > 0

    async def clear(self, agent: str | None = None) -> int:
        """Remove all entries of an agent, or of all: how many. Without isolation it is always all."""
        await self.expire()
        return await self._drop(self._index.keys_of(None if agent is None else self._owner(agent)))

    async def size(self) -> int:
        await self.expire()
        return self._index.entries

    async def stats(self) -> ResultStoreStats:
        """What the store holds, and how many entries were evicted or expired."""
        await self.expire()
        return self.current_stats()

    def current_stats(self) -> ResultStoreStats:
        """The same without removing what has expired since the last `expire`."""
        return ResultStoreStats(
            entries=self._index.entries,
            max_entries=self._index.max_entries,
            ttl_seconds=self._limits.ttl_seconds,
            total_cached_bytes=self._index.usage.contents,
            hits=self._hits,
            misses=self._misses,
            agents=self._index.agents,
            bytes_on_disk=self._index.usage.disk,
            evicted=self._evicted,
            expired=self._expired,
        )

    async def expire(self) -> int:
        """Remove expired entries: how many. Readers do not get them before that either."""
        expired = await self._drop(iter(lambda: self._index.next_expired(self._clock()), None))
        self._expired += expired
        return expired

    async def close(self) -> None:
        """Remove everything, and keep nothing from here on."""
        self._closed = True
        for key in self._index.keys_of(None):
            self._remove_entry(key)
        await self._close_removed_files()

    def _owner(self, agent: str) -> str:
        return agent if self._limits.isolated else _SHARED_OWNER

    async def _in_memory_or_on_disk(self, owner: str, content: Payload, arguments_size: int) -> StoredContent:
        if not isinstance(content, bytes):
            return content if isinstance(content, FileContent) else await self._write_to_disk(content)
        if self._index.fits_in_memory(owner, len(content) + arguments_size):
            return content
        try:
            return await self._write_to_disk(content)
        except OSError as error:
            # It stays in memory, and others are evicted for it.
            log.warning(
                "result not written to disk", extra={"path": str(self._directory), "reason": str(error)}
            )
            return content

    async def _write_to_disk(self, content: Payload) -> FileContent:
        writing = asyncio.get_running_loop().run_in_executor(None, _write, self._directory, content)
        return await finish_uncancelled(writing, PayloadFile.close)

    async def _drop(self, keys: Iterable[EntryKey]) -> int:
        dropped = 0
        try:
            for number, key in enumerate(keys, 1):
                dropped += self._remove_entry(key)
                if number % _DROPPED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        finally:
            await self._close_removed_files()
        return dropped

    def _remove_entry(self, key: EntryKey) -> bool:
        entry = self._index.remove(*key)
        if entry is not None and not isinstance(entry.content, bytes):
            self._files_to_close.append(entry.content)
        return entry is not None

    async def _close_removed_files(self) -> None:
        # In a thread: freeing the blocks of a large file takes milliseconds.
        if self._files_to_close:
            removed, self._files_to_close = self._files_to_close, []
            loop = asyncio.get_running_loop()
            await asyncio.shield(loop.run_in_executor(None, _close_all, removed))


def _close_all(files: list[FileContent]) -> None:
    for file in files:
        try:
            file.close()
        except OSError as error:
            log.warning("result not closed", extra={"reason": str(error)})


def _write(directory: Path, content: Payload) -> PayloadFile:
    try:
        return PayloadFile(write_unnamed(directory, payload_chunks(content)), 0, payload_size(content))
    finally:
        if not isinstance(content, bytes):
            content.close()
