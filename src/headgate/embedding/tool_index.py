"""The vector index of a changing catalog: embeds tools in the background, with backoff after failures."""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, Protocol

from headgate.catalog.search.tool_document import ToolDocument, ToolKey
from headgate.domain.errors import EmbedderUnavailable, HeadgateError
from headgate.embedding.embedder import Embedder, tool_texts
from headgate.embedding.threaded_embedder import TextsOfTool, ThreadedEmbedder
from headgate.embedding.vector_index import BYTES_PER_NUMBER, Allowed, DimensionMismatch, VectorIndex

FIRST_BACKOFF_SECONDS: Final = 1.0
# The longest wait until a repaired endpoint is used again.
LONGEST_BACKOFF_SECONDS: Final = 300.0
# A change of so many tools takes long enough to be logged.
LARGE_BATCH: Final = 100
# Unused vectors, kept for a server that comes back; 3 MB with the offline model.
MOST_UNUSED_VECTORS: Final = 2_000
# At a start servers come one after the other: what is spare is only known when all is quiet.
RETENTION_SECONDS: Final = 600.0
# Vectors per step on the event loop, which takes well under a millisecond.
READ_VECTORS: Final = 64

log = logging.getLogger("headgate.embedding")


class EmbedderBackoff:
    """The rest that follows a failure; several failures at once are one."""

    def __init__(
        self, first_seconds: float = FIRST_BACKOFF_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first = first_seconds
        self._clock = clock
        self._next = first_seconds
        self._until = 0.0

    @property
    def remaining_seconds(self) -> float:
        """How long it lasts from now on; 0 when it is over."""
        return max(0.0, self._until - self._clock())

    @property
    def is_first_failure(self) -> bool:
        """Whether nothing has failed since something last went well."""
        return self._next == self._first

    def begin(self, asked_seconds: float | None = None) -> float:
        """Back off, for as long as the embedder asked for if it did; returns the seconds left."""
        if not self.remaining_seconds:
            pause_seconds = max(self._next, asked_seconds or 0.0)
            self._until = self._clock() + min(pause_seconds, LONGEST_BACKOFF_SECONDS)
            self._next = min(2 * self._next, LONGEST_BACKOFF_SECONDS)
        return self.remaining_seconds

    def reset(self) -> None:
        self._next = self._first
        self._until = 0.0


class ToolVectorStore(Protocol):
    """Keeps vectors by model and hash of the text, longer than the process lives."""

    async def vectors(self, model: str) -> dict[str, bytes]:
        """Every vector of a model by the hash of its text."""

    def store_vectors(self, model: str, vectors: dict[str, bytes]) -> "asyncio.Future[None]":
        """Remember vectors of a model."""

    def delete_vectors(self, model: str, digests: Collection[str]) -> "asyncio.Future[None]":
        """Mark these as unused."""


@asynccontextmanager
async def open_tool_index(
    make_embedder: Callable[[], Embedder],
    store: ToolVectorStore,
    *,
    first_rest_seconds: float = FIRST_BACKOFF_SECONDS,
    settled_seconds: float = RETENTION_SECONDS,
    spare_vectors: int = MOST_UNUSED_VECTORS,
) -> AsyncIterator["ToolVectorIndex"]:
    """Compare tools by meaning until the end of the block; nothing is loaded before it is needed."""
    meanings = ToolVectorIndex(store, EmbedderBackoff(first_rest_seconds), spare_vectors, settled_seconds)
    following = asyncio.get_running_loop().create_task(meanings.run(make_embedder), name="vectors")
    try:
        yield meanings
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@dataclass(slots=True)
class _LoadedEmbedder:
    """The embedder in memory, the vectors that are compared, and whose they are."""

    embedder: Embedder
    offloop: ThreadedEmbedder
    index: VectorIndex | None = None
    # The hash of the text of each tool that has its vector in the index.
    placed: dict[ToolKey, str] = field(default_factory=dict)
    # The hashes in the store; None until they are read.
    stored: dict[str, None] | None = None


class ToolVectorIndex:
    """The tools of every server by what they mean, as far as their vectors are there."""

    def __init__(
        self, store: ToolVectorStore, rest: EmbedderBackoff, spare_vectors: int, settled_seconds: float
    ) -> None:
        """`spare_vectors` unused ones are kept when they are pruned, after so many seconds of quiet."""
        self._store = store
        self._backoff = rest
        self._spare_vectors = spare_vectors
        self._settled_seconds = settled_seconds
        self._tools: dict[str, dict[ToolKey, ToolDocument]] = {}
        self._changed = asyncio.Event()
        self._loaded: _LoadedEmbedder | None = None
        self._failed = False
        # Of work that takes long: when it began, and how many vectors were made since.
        self._began: float | None = None
        self._made = 0

    # Called by the catalog.

    def put(self, server: str, documents: Sequence[ToolDocument]) -> None:
        """These are the server's tools from now on; their vectors follow in the background."""
        before = self._tools.get(server, {})
        now = {document.key: document for document in documents}
        self._tools[server] = now
        # A changed tool has no vector until the new one is made.
        self._drop([key for key, document in before.items() if not _same(document, now.get(key))])
        self._changed.set()

    def remove(self, server: str) -> None:
        """The server is gone with all its tools."""
        self._drop(list(self._tools.pop(server, {})))
        self._changed.set()

    async def cosines(
        self, query: str, limit: int, *, allowed: Allowed | None, also: Collection[ToolKey]
    ) -> Mapping[ToolKey, float] | None:
        """The nearest tools, and those of `also`; None while there are no vectors, or none can be had."""
        loaded = self._loaded
        if loaded is None:
            self._changed.set()
            return None
        if self._failed or not loaded.placed or self.is_backing_off:
            return None
        try:
            question = await loaded.offloop.embed_query(query)
        except EmbedderUnavailable as away:
            self._back_off(away)
            return None
        except Exception as error:  # noqa: BLE001 - logged there; a search goes on with words whatever it is
            self._give_up(error)
            return None
        self._recover()
        if loaded.index is None or not loaded.placed:
            return None
        try:
            return loaded.index.search(question, limit, allowed=allowed, also=also)
        except DimensionMismatch:
            # The endpoint has another model under the old name.
            self._start_over(loaded)
            return None

    def progress(self) -> tuple[int, int]:
        """How many tools have their vector, of how many."""
        done = len(self._loaded.placed) if self._loaded else 0
        return done, sum(map(len, self._tools.values()))

    @property
    def is_backing_off(self) -> bool:
        """Whether the embedder is left alone for now, because it was away."""
        return self._backoff.remaining_seconds > 0

    def _drop(self, keys: Collection[ToolKey]) -> None:
        if (loaded := self._loaded) is None:
            return
        gone = [key for key in keys if loaded.placed.pop(key, None) is not None]
        if loaded.index is not None:
            loaded.index.remove(gone)

    # The work beside.

    async def run(self, make_embedder: Callable[[], Embedder]) -> None:
        """Make the vectors that are missing, whenever some are; ends with the block that opened it."""
        await self._changed.wait()
        try:
            embedder = await _off_loop(make_embedder)
            async with ThreadedEmbedder(embedder) as offloop:
                self._loaded = loaded = _LoadedEmbedder(embedder, offloop)
                while True:
                    self._changed.clear()
                    if await self._catch_up(loaded):
                        await self._wait_and_prune(loaded)
        except Exception as error:  # noqa: BLE001 - logged there; the gateway outlives its embedder
            self._give_up(error)

    async def _catch_up(self, loaded: _LoadedEmbedder) -> bool:
        """Whether every tool has its vector now; if not, the embedder failed and the backoff is over."""
        every = [document for server in sorted(self._tools) for document in self._tools[server].values()]
        missing = [document for document in every if document.key not in loaded.placed]
        try:
            if missing:
                texts = await _texts_of(missing)
                await self._place_stored(loaded, missing, texts)
                await self._place_made(
                    loaded, [one for one in missing if one.key not in loaded.placed], texts
                )
        except EmbedderUnavailable as away:
            await asyncio.sleep(self._back_off(away))
            return False
        except DimensionMismatch:
            self._start_over(loaded)
            return False
        self._recover()
        return True

    async def _place_stored(
        self,
        loaded: _LoadedEmbedder,
        documents: Sequence[ToolDocument],
        texts: Mapping[ToolKey, "_ToolTexts"],
    ) -> None:
        if loaded.stored is not None and not any(texts[one.key].hash in loaded.stored for one in documents):
            return
        kept = await self._store.vectors(loaded.offloop.fingerprint)
        # A vector that is cut short is no vector; it is made anew.
        length = loaded.embedder.dimensions * BYTES_PER_NUMBER or max(map(len, kept.values()), default=0)
        kept = {digest: vector for digest, vector in kept.items() if vector and len(vector) == length}
        loaded.stored = dict.fromkeys(kept)
        for batch in _batches(documents, READ_VECTORS):
            found = {one.key: kept[texts[one.key].hash] for one in batch if texts[one.key].hash in kept}
            self._place(loaded, batch, found, texts)
            await asyncio.sleep(0)

    async def _place_made(
        self,
        loaded: _LoadedEmbedder,
        documents: Sequence[ToolDocument],
        texts: Mapping[ToolKey, "_ToolTexts"],
    ) -> None:
        """Make the vectors of these, until the tools change: then it is seen anew what is missing."""
        if len(documents) >= LARGE_BATCH and self._began is None:
            self._made, self._began = 0, time.monotonic()
            log.info("making vectors", extra={"tools": len(documents), "model": loaded.embedder.name})
        waiting = iter(documents)
        made_texts = loaded.offloop.embed_tools([texts[one.key].texts for one in documents])
        async with aclosing(made_texts) as batches:
            async for vectors in batches:
                batch = list(islice(waiting, len(vectors)))
                made = {one.key: vector for one, vector in zip(batch, vectors, strict=True)}
                self._place(loaded, batch, made, texts)
                vectors_by_hash = {texts[key].hash: vector for key, vector in made.items()}
                if loaded.stored is not None:
                    loaded.stored |= dict.fromkeys(vectors_by_hash)
                # A stop in between does not undo what was made.
                await asyncio.shield(self._store.store_vectors(loaded.offloop.fingerprint, vectors_by_hash))
                self._made += len(made)
                self._recover()
                if self._changed.is_set():
                    return
        if self._began is not None:
            seconds = round(time.monotonic() - self._began, 1)
            log.info("vectors made", extra={"tools": self._made, "seconds": seconds})
        self._began = None

    def _place(
        self,
        loaded: _LoadedEmbedder,
        documents: Sequence[ToolDocument],
        vectors: Mapping[ToolKey, bytes],
        texts: Mapping[ToolKey, "_ToolTexts"],
    ) -> None:
        """Compare the vectors of the tools whose texts have not changed since the request.

        Raises DimensionMismatch where they are of another model.
        """
        placed = {
            one.key: vectors[one.key]
            for one in documents
            if one.key in vectors and _same(one, self._tools.get(one.key[0], {}).get(one.key))
        }
        if not placed:
            return
        if loaded.index is None:
            loaded.index = VectorIndex(len(next(iter(placed.values()))) // BYTES_PER_NUMBER)
        loaded.index.put(placed)
        loaded.placed |= {key: texts[key].hash for key in placed}

    async def _wait_and_prune(self, loaded: _LoadedEmbedder) -> None:
        """Wait for the next change; after a long pause, prune unused vectors."""
        try:
            async with asyncio.timeout(self._settled_seconds):
                await self._changed.wait()
        except TimeoutError:
            used = set(loaded.placed.values())
            unused = [digest for digest in loaded.stored or () if digest not in used]
            gone = unused[: max(0, len(unused) - self._spare_vectors)]
            if gone and loaded.stored:
                for digest in gone:
                    del loaded.stored[digest]
                await asyncio.shield(self._store.delete_vectors(loaded.offloop.fingerprint, gone))
                log.info("vectors forgotten", extra={"vectors": len(gone)})
            await self._changed.wait()

    # When it does not go well.

    def _back_off(self, away: EmbedderUnavailable) -> float:
        """Leave the embedder alone for a while, which grows; returns how long."""
        first = self._backoff.is_first_failure
        seconds = self._backoff.begin(away.retry_after_seconds)
        if first:
            log.warning("search goes on with words alone", extra={"reason": str(away), "seconds": seconds})
        return seconds

    def _recover(self) -> None:
        if not self._backoff.is_first_failure:
            log.info("the embedder answers again")
        self._backoff.reset()

    def _give_up(self, error: Exception) -> None:
        if self._failed:
            return
        self._failed = True
        if isinstance(error, HeadgateError):
            log.warning("search by words alone", extra={"reason": error.message, "hint": error.hint})
        else:
            log.error("search by words alone: the embedder failed", exc_info=error)

    def _start_over(self, loaded: _LoadedEmbedder) -> None:
        """The vectors stored under this model's name are of another model."""
        log.warning("vectors of another model; all are made anew", extra={"model": loaded.embedder.name})
        loaded.index = None
        loaded.placed.clear()
        loaded.stored = {}
        self._changed.set()


class _ToolTexts(NamedTuple):
    texts: TextsOfTool
    hash: str


async def _texts_of(documents: Sequence[ToolDocument]) -> dict[ToolKey, _ToolTexts]:
    found: dict[ToolKey, _ToolTexts] = {}
    for batch in _batches(documents, READ_VECTORS):
        for document in batch:
            texts = tool_texts(document.key[0], document.name, document.description)
            joined = "\0".join(texts).encode("utf-8", "surrogatepass")
            found[document.key] = _ToolTexts(texts, hashlib.sha256(joined).hexdigest())
        await asyncio.sleep(0)
    return found


def _batches(documents: Sequence[ToolDocument], size: int) -> Iterator[Sequence[ToolDocument]]:
    for start in range(0, len(documents), size):
        yield documents[start : start + size]


def _same(one: ToolDocument, other: ToolDocument | None) -> bool:
    """Whether both have the same vector."""
    return other is not None and (one.name, one.description) == (other.name, other.description)


async def _off_loop(make_embedder: Callable[[], Embedder]) -> Embedder:
    """Loading takes a second, or minutes where a model is downloaded first."""
    with_threads = ThreadPoolExecutor(1, "load-embedder")
    try:
        return await asyncio.get_running_loop().run_in_executor(with_threads, make_embedder)
    finally:
        with_threads.shutdown(wait=False, cancel_futures=True)
