"""Builds store, embedder and tools of the document server from the settings."""

import datetime
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from headgate.config.settings import Settings
from headgate.embedding.embedder_factory import OfflineModel, embedder_maker
from headgate.embedding.threaded_embedder import PassageEmbedder
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.search.hybrid_search import HybridSearch
from headgate.knowledge.search.query import ScoreBoosts
from headgate.knowledge.search.query_cache import QueryCache
from headgate.knowledge.server import KnowledgeTools
from headgate.knowledge.tools.token_budget import TokenBudget
from headgate.search.rank_fusion import FusionWeights, ReciprocalRankFusion
from headgate.search.token_counter import count_tokens

DATABASE_NAME = "knowledge.db"


class KnowledgeComponents(NamedTuple):
    """What is open: the store, what makes vectors if anything does, and the tools over both."""

    store: KnowledgeStore
    vectors: PassageEmbedder | None
    tools: KnowledgeTools
    # Whether nothing makes vectors because somebody wants it so.
    bm25_only: bool = False


@asynccontextmanager
async def open_knowledge(
    settings: Settings, offline: OfflineModel, budget: TokenBudget | None = None
) -> AsyncIterator[KnowledgeComponents]:
    """Everything about the documents for as long as the block lasts; raises ConfigError.

    Without a budget nobody is refused for his tokens: an operator at the command line is not.
    """
    async with AsyncExitStack() as stack:
        vectors = _vectors(settings, offline)
        if vectors is not None:
            stack.push_async_callback(vectors.close)
        store = await stack.enter_async_context(open_configured_store(settings))
        spent = budget or TokenBudget(None, clock=time.monotonic)
        tools = _tools(settings, store, vectors, spent)
        yield KnowledgeComponents(store, vectors, tools, bm25_only=_bm25_only(settings))


def budget_of(settings: Settings) -> TokenBudget:
    """What callers may spend, of which nothing is spent yet."""
    return TokenBudget(settings.knowledge.token_budget or None, clock=time.monotonic)


def open_configured_store(settings: Settings) -> AbstractAsyncContextManager[KnowledgeStore]:
    """The store alone; raises ConfigError for a PostgreSQL that cannot be used."""
    wanted = settings.knowledge
    if wanted.store is not None:
        from headgate.knowledge.stores.store_factory import open_postgres_store as open_postgres

        return open_postgres(
            wanted.store,
            replica_url=wanted.replica,
            fewest_connections=wanted.pool_min,
            most_connections=wanted.pool_max,
        )
    from headgate.knowledge.stores.sqlite.store import open_sqlite_store as open_file

    return open_file(settings.data_dir / DATABASE_NAME)


def _vectors(settings: Settings, offline: OfflineModel) -> PassageEmbedder | None:
    make = embedder_maker(
        _configured_embedder(settings),
        offline,
        hf_model=settings.hf_model,
        openai_base_url=settings.openai_base_url,
        openai_model=settings.openai_model,
        openai_api_key=settings.openai_api_key,
        passages=True,
    )
    return PassageEmbedder(make) if make is not None else None


def _configured_embedder(settings: Settings) -> str | None:
    """The embedder that somebody chose, for the documents or for everything."""
    return settings.knowledge.embedder or settings.embedder


def _bm25_only(settings: Settings) -> bool:
    return _configured_embedder(settings) == "BM25"


def _tools(
    settings: Settings, store: KnowledgeStore, vectors: PassageEmbedder | None, budget: TokenBudget
) -> KnowledgeTools:
    wanted = settings.knowledge
    search = HybridSearch(
        store,
        store,
        vectors,
        bm25_only=_bm25_only(settings),
        clock=time.monotonic,
        today=lambda: datetime.datetime.now(datetime.UTC).date(),
        fusion=ReciprocalRankFusion(
            k=wanted.k, weights=FusionWeights(wanted.weights.vector, wanted.weights.bm25)
        ),
        boosts=ScoreBoosts(
            vendor=wanted.boosts.vendor,
            doc_type=wanted.boosts.doc_type,
            recency=wanted.boosts.recency,
            entity=wanted.boosts.entity,
            topic=wanted.boosts.topic,
        ),
        cache=QueryCache(
            clock=time.monotonic, entries=wanted.cache_entries, ttl_seconds=wanted.cache_ttl_seconds
        ),
    )
    return KnowledgeTools(
        search,
        store,
        store,
        budget,
        count=count_tokens,
        clock=time.monotonic,
        wall_clock=time.time,
        request_id=lambda: uuid.uuid4().hex,
        boosted=wanted.boost,
    )
