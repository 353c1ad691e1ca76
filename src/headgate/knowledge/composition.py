"""Builds store, embedder and tools of the document server from its options."""

import asyncio
import datetime
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from headgate.domain.errors import ConfigError
from headgate.embedding.embedder_factory import OfflineModel, embedder_maker
from headgate.embedding.threaded_embedder import PassageEmbedder
from headgate.knowledge.extraction.extractor import RuleBasedExtractor
from headgate.knowledge.interfaces import ExtractorFactory, KnowledgeStore
from headgate.knowledge.options import KnowledgeOptions
from headgate.knowledge.search.hybrid_search import HybridSearch
from headgate.knowledge.search.query_cache import QueryCache
from headgate.knowledge.tools.token_budget import TokenBudget
from headgate.knowledge.tools.tool_router import KnowledgeTools
from headgate.search.rank_fusion import FusionWeights, ReciprocalRankFusion


class KnowledgeComponents(NamedTuple):
    """The open store, the embedder if there is one, the tools over both, and the entity extractor."""

    store: KnowledgeStore
    vectors: PassageEmbedder | None
    tools: KnowledgeTools
    make_extractor: ExtractorFactory
    # Whether the configuration turns embeddings off, in contrast to an embedder that is not installed.
    bm25_only: bool = False


@asynccontextmanager
async def open_knowledge(
    options: KnowledgeOptions,
    offline: OfflineModel,
    budget: TokenBudget | None = None,
    *,
    make_extractor: ExtractorFactory = RuleBasedExtractor,
) -> AsyncIterator[KnowledgeComponents]:
    """All components for as long as the block lasts; raises ConfigError.

    Without a budget no call is refused for its tokens; the command line has none. `make_extractor` replaces
    the rules that find entities in texts.
    """
    async with AsyncExitStack() as stack:
        vectors = _open_embedder(options, offline)
        if vectors is not None:
            stack.push_async_callback(vectors.close)
        store = await stack.enter_async_context(open_configured_store(options))
        tools = _build_tools(options, store, vectors, budget or TokenBudget(None, clock=time.monotonic))
        yield KnowledgeComponents(store, vectors, tools, make_extractor, bm25_only=options.bm25_only)


def new_token_budget(options: KnowledgeOptions) -> TokenBudget:
    """The budget of all callers, of which nothing is spent yet."""
    return TokenBudget(options.token_budget or None, clock=time.monotonic)


def open_configured_store(options: KnowledgeOptions) -> AbstractAsyncContextManager[KnowledgeStore]:
    """The store alone; raises ConfigError for a PostgreSQL that cannot be used."""
    # Only the driver of the configured store is imported.
    if options.store_url is not None:
        return open_postgres_store(
            options.store_url,
            replica_url=options.replica_url,
            fewest_connections=options.pool_min,
            most_connections=options.pool_max,
        )
    return _open_sqlite_store(options.database_path)


@asynccontextmanager
async def _open_sqlite_store(path: Path) -> AsyncIterator[KnowledgeStore]:
    # In a thread, because the import reads the SQL of the store.
    open_store = await asyncio.to_thread(_import_sqlite_store)
    async with open_store(path) as store:
        yield store


def _import_sqlite_store() -> Callable[[Path], AbstractAsyncContextManager[KnowledgeStore]]:
    from headgate.knowledge.stores.sqlite.store import open_sqlite_store

    return open_sqlite_store


_OpenStore = Callable[
    [str, str | None, Callable[[], float], tuple[int, int]], AbstractAsyncContextManager[KnowledgeStore]
]


@asynccontextmanager
async def open_postgres_store(
    url: str,
    *,
    replica_url: str | None = None,
    fewest_connections: int = 2,
    most_connections: int = 10,
    now: Callable[[], float] = time.time,
) -> AsyncIterator[KnowledgeStore]:
    """The store in the database of `url`, while the block lasts; searches read the replica, if any.

    Missing tables are created. A server or a database that cannot be used is tried again with every use,
    which raises StoreUnavailable until it can. Raises ConfigError for a wrong URL and a missing driver.
    """
    # In a thread, because the import takes long.
    opened = await asyncio.to_thread(_import_store)
    async with opened(url, replica_url, now, (fewest_connections, most_connections)) as store:
        yield store


def _import_store() -> _OpenStore:
    try:
        from headgate.knowledge.stores.postgres.store import open_store_on
    except ImportError as error:
        raise ConfigError(
            "a store in PostgreSQL needs packages that are not installed",
            hint='pip install "headgate-mcp[postgres]"',
        ) from error
    return open_store_on


def _open_embedder(options: KnowledgeOptions, offline: OfflineModel) -> PassageEmbedder | None:
    make = embedder_maker(
        options.embedder,
        offline,
        hf_model=options.hf_model,
        openai_base_url=options.openai_base_url,
        openai_model=options.openai_model,
        openai_api_key=options.openai_api_key,
        passages=True,
    )
    return PassageEmbedder(make) if make is not None else None


def _build_tools(
    options: KnowledgeOptions, store: KnowledgeStore, vectors: PassageEmbedder | None, budget: TokenBudget
) -> KnowledgeTools:
    search = HybridSearch(
        store,
        store,
        vectors,
        bm25_only=options.bm25_only,
        clock=time.monotonic,
        today=lambda: datetime.datetime.now(datetime.UTC).date(),
        fusion=ReciprocalRankFusion(
            k=options.fusion_k, weights=FusionWeights(options.vector_weight, options.bm25_weight)
        ),
        boosts=options.boosts,
        cache=QueryCache(
            clock=time.monotonic, entries=options.cache_entries, ttl_seconds=options.cache_ttl_seconds
        ),
    )
    return KnowledgeTools(
        search,
        store,
        budget,
        clock=time.monotonic,
        wall_clock=time.time,
        request_id=lambda: uuid.uuid4().hex,
        boosted=options.boost,
    )
