"""How many chunks a second are taken in, with vectors and without, in both stores."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from bench.knowledge.latency import POSTGRES, SQLITE
from bench.knowledge.server import running
from bench.knowledge.set_ingestion import take_in
from bench.knowledge.sets import MANUAL, read
from headgate.embedding.embedder_factory import OfflineModel
from headgate.embedding.threaded_embedder import PassageEmbedder
from headgate.knowledge.composition import open_postgres_store as open_postgres
from headgate.knowledge.extraction.extractor import RuleBasedExtractor
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.stores.sqlite.store import open_sqlite_store as open_file

# Every so many-th page of the manual; vectors take longer, and are made of fewer.
_EVERY: Final = {False: 2, True: 24}


class Ingested(msgspec.Struct, frozen=True, kw_only=True):
    """One ingestion of Markdown files: read, cut, searched for names, stored, and perhaps embedded."""

    store: str
    vectors: bool
    files: int
    chunks: int
    seconds: float

    @property
    def chunks_per_second(self) -> float:
        """All of it together."""
        return self.chunks / self.seconds


def ingested(*, quick: bool) -> list[Ingested]:
    """Both stores, both ways; a quick run has SQLite alone."""
    with running() as url:
        stores = (SQLITE,) if quick else (SQLITE, POSTGRES)
        return [
            asyncio.run(_ingested(store, url, with_vectors=with_vectors))
            for store in stores
            for with_vectors in (False, True)
        ]


async def _ingested(name: str, url: str, *, with_vectors: bool) -> Ingested:
    print(f"bench: knowledge, ingestion into {name}", file=sys.stderr, flush=True)
    embedder = PassageEmbedder(partial(OfflineModel().embedder, passages=True)) if with_vectors else None
    if embedder is not None:
        await embedder.load()
    documents = read(MANUAL).documents[:: _EVERY[with_vectors]]
    async with _opened(name, url) as store:
        summary = await take_in(store, documents, embedder, RuleBasedExtractor())
        await store.remove_sources(list(await store.source_digests()))
    if embedder is not None:
        await embedder.close()
    return Ingested(
        store=name,
        vectors=with_vectors,
        files=summary.added,
        chunks=summary.chunks_added,
        seconds=summary.seconds,
    )


@asynccontextmanager
async def _opened(name: str, url: str) -> AsyncIterator[KnowledgeStore]:
    if name == POSTGRES:
        async with open_postgres(url) as store:
            yield store
        return
    with tempfile.TemporaryDirectory(prefix="bench-knowledge-") as directory:
        async with open_file(Path(directory) / "knowledge.db") as store:
            yield store
