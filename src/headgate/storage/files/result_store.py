"""Large results in memory and in unnamed temporary files of this process."""

import asyncio
import io
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from headgate.domain.payload import Payload, payload_size
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

log = logging.getLogger("headgate.storage")

_CHUNK_BYTES = 256 * 1024
# So many entries are dropped at once before others get their turn on the loop.
_DROPPED_AT_ONCE = 16
# Agents that are not told apart.
_SHARED_OWNER = ""


@asynccontextmanager
async def open_results(
    directory: Path, limits: ResultStoreLimits | None = None, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator["LocalResultStore"]:
    """A store that writes into `directory` what is too much for memory, and ends with everything in it."""
    results = LocalResultStore(directory, limits or ResultStoreLimits(), clock)
    try:
        yield results
    finally:
        await results.close()


class LocalResultStore:
    """The store of one process. Its owner calls `expire` now and then."""

    def __init__(self, directory: Path, limits: ResultStoreLimits, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._limits = limits
        self._clock = clock
        self._shelves = EvictionIndex(limits)
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
        """The id, which is a new one unless the caller has made it with `new_id`.

        The content belongs to the store from here on, also when this fails. Raises OSError when one that
        is on disk, but in no file, cannot be written to one.
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
        # Whoever gives an id twice means the second.
        self._remove_entry((owner, entry.id))
        self._shelves.add(owner, entry, seconds)
        if self._closed:
            await self.close()
        # First those whose time is over: then perhaps nobody else has to go.
        await self.expire()
        self._evicted += await self._drop(self._shelves.keys_to_evict(owner, now))
        return entry.id

    async def get(self, agent: str, id: str) -> StoredContent | None:
        """The content, or None when there is no such entry (any more). The reader closes it.

        Raises OSError when it is on disk and the process may open no more files.
        """
        entry = await self.get_entry(agent, id)
        return entry.content if entry else None

    async def get_entry(self, agent: str, id: str) -> StoredResult | None:
        """The content and what is known about it, or None; as `get`."""
        entry = self._shelves.touch(self._owner(agent), id, self._clock())
        if entry is None:
            self._misses += 1
            return None
        self._hits += 1
        if isinstance(entry.content, bytes):
            return entry
        return msgspec.structs.replace(entry, content=_duplicated(entry.content))

    async def remove(self, agent: str, id: str) -> bool:
        """Forget an entry; false when there is no such entry (any more)."""
        await self.expire()
        return await self._drop([(self._owner(agent), id)]) > 0

    async def clear(self, agent: str | None = None) -> int:
        """Forget all entries of an agent, or of all: so many. When agents are not told apart, always all."""
        await self.expire()
        return await self._drop(self._shelves.keys_of(None if agent is None else self._owner(agent)))

    async def size(self) -> int:
        """How many entries there are, of all agents together."""
        await self.expire()
        return self._shelves.entries

    async def stats(self) -> ResultStoreStats:
        """What it holds now, and what has become of the rest."""
        await self.expire()
        return self.held()

    def held(self) -> ResultStoreStats:
        """The same at once, and with what has expired since the last `expire`."""
        return ResultStoreStats(
            entries=self._shelves.entries,
            max_entries=self._shelves.max_entries,
            ttl_seconds=self._limits.ttl_seconds,
            total_cached_bytes=self._shelves.usage.contents,
            hits=self._hits,
            misses=self._misses,
            agents=self._shelves.agents,
            bytes_on_disk=self._shelves.usage.disk,
            evicted=self._evicted,
            expired=self._expired,
        )

    async def expire(self) -> int:
        """Forget every entry whose time is over: so many. Nobody gets one of them before that either."""
        expired = await self._drop(iter(lambda: self._shelves.next_expired(self._clock()), None))
        self._expired += expired
        return expired

    async def close(self) -> None:
        """Forget everything, now and from here on."""
        self._closed = True
        for key in self._shelves.keys_of(None):
            self._remove_entry(key)
        await self._close_removed_files()

    def _owner(self, agent: str) -> str:
        return agent if self._limits.isolated else _SHARED_OWNER

    async def _in_memory_or_on_disk(self, owner: str, content: Payload, arguments_size: int) -> StoredContent:
        if not isinstance(content, bytes):
            return content if isinstance(content, FileContent) else await self._write_to_disk(content)
        if self._shelves.fits_in_memory(owner, len(content) + arguments_size):
            return content
        try:
            return await self._write_to_disk(content)
        except OSError as error:
            # Then others leave the memory for it.
            log.warning(
                "result not written to disk", extra={"path": str(self._directory), "reason": str(error)}
            )
            return content

    async def _write_to_disk(self, content: Payload) -> FileContent:
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(None, _write, self._directory, content)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            # A thread cannot be stopped: what it still writes is nobody's.
            writing.add_done_callback(_close_written)
            raise

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
        entry = self._shelves.remove(*key)
        if entry is not None and not isinstance(entry.content, bytes):
            self._files_to_close.append(entry.content)
        return entry is not None

    async def _close_removed_files(self) -> None:
        """Close files in a thread: freeing the blocks of a large one takes milliseconds."""
        if self._files_to_close:
            leaving, self._files_to_close = self._files_to_close, []
            loop = asyncio.get_running_loop()
            await asyncio.shield(loop.run_in_executor(None, _close_all, leaving))


def _close_all(files: list[FileContent]) -> None:
    for file in files:
        try:
            file.close()
        except OSError as error:
            log.warning("result not closed", extra={"reason": str(error)})


class ResultFile:
    """A content in a file without a name."""

    def __init__(self, file: io.FileIO, start: int, size: int) -> None:
        self._file = file
        self.start = start
        self.size = size

    @property
    def first(self) -> bytes:
        """Its first byte."""
        return os.pread(self.fileno(), min(1, self.size), self.start)

    def fileno(self) -> int:
        """The descriptor of the file; raises ValueError when it is closed."""
        return self._file.fileno()

    def chunks(self) -> Iterator[bytes]:
        """Its bytes in order."""
        end = self.start + self.size
        for start in range(self.start, end, _CHUNK_BYTES):
            yield os.pread(self.fileno(), min(_CHUNK_BYTES, end - start), start)

    def close(self) -> None:
        """Give the disk space back, unless another reader has it open."""
        self._file.close()


def _duplicated(content: FileContent) -> ResultFile:
    # Another descriptor of the same file: it outlives the entry.
    return ResultFile(io.FileIO(os.dup(content.fileno()), "rb"), content.start, content.size)


def _write(directory: Path, content: Payload) -> ResultFile:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 (closed by its taker)
        try:
            for chunk in (content,) if isinstance(content, bytes) else content.chunks():
                _append(file, chunk)
        except BaseException:
            file.close()
            raise
        return ResultFile(file, 0, payload_size(content))
    finally:
        if not isinstance(content, bytes):
            content.close()


def _append(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file.fileno(), view) :]


def _close_written(writing: "asyncio.Future[ResultFile]") -> None:
    if not writing.cancelled() and writing.exception() is None:
        writing.result().close()
