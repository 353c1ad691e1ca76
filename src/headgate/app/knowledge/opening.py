"""Opens the store of the documents, and what searches and fills it."""

import datetime
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from headgate.config.settings import Settings
from headgate.embedding.choice import Offline, chosen
from headgate.embedding.passages import PassageEmbedder
from headgate.knowledge.budget import TokenBudget
from headgate.knowledge.cache import Cache
from headgate.knowledge.fusion import Fusion, Weights
from headgate.knowledge.query import Boosts
from headgate.knowledge.searching import Search
from headgate.knowledge.store import Store
from headgate.knowledge.tools.knowledge import KnowledgeTools
from headgate.search.token_counter import count_tokens

FILE = "knowledge.db"


class Knowledge(NamedTuple):
    """What is open: the store, what makes vectors if anything does, and the tools over both."""

    store: Store
    vectors: PassageEmbedder | None
    tools: KnowledgeTools
    # Whether nothing makes vectors because somebody wants it so.
    words_wanted: bool = False


@asynccontextmanager
async def open_knowledge(
    settings: Settings, offline: Offline, budget: TokenBudget | None = None
) -> AsyncIterator[Knowledge]:
    """Everything about the documents for as long as the block lasts; raises ConfigError.

    Without a budget nobody is refused for his tokens: an operator at the command line is not.
    """
    async with AsyncExitStack() as stack:
        vectors = _vectors(settings, offline)
        if vectors is not None:
            stack.push_async_callback(vectors.close)
        store = await stack.enter_async_context(open_store(settings))
        spent = budget or TokenBudget(None, clock=time.monotonic)
        tools = _tools(settings, store, vectors, spent)
        yield Knowledge(store, vectors, tools, words_wanted=_words_wanted(settings))


def budget_of(settings: Settings) -> TokenBudget:
    """What callers may spend, of which nothing is spent yet."""
    return TokenBudget(settings.knowledge.token_budget or None, clock=time.monotonic)


def open_store(settings: Settings) -> AbstractAsyncContextManager[Store]:
    """The store alone; raises ConfigError for a PostgreSQL that cannot be used."""
    wanted = settings.knowledge
    if wanted.store is not None:
        from headgate.storage.postgres.opening import open_store as open_postgres

        return open_postgres(
            wanted.store,
            replica_url=wanted.replica,
            fewest_connections=wanted.pool_min,
            most_connections=wanted.pool_max,
        )
    from headgate.storage.knowledge.store import open_store as open_file

    return open_file(settings.data_dir / FILE)


def _vectors(settings: Settings, offline: Offline) -> PassageEmbedder | None:
    make = chosen(
        _chosen(settings),
        offline,
        hf_model=settings.hf_model,
        openai_base_url=settings.openai_base_url,
        openai_model=settings.openai_model,
        openai_api_key=settings.openai_api_key,
        passages=True,
    )
    return PassageEmbedder(make) if make is not None else None


def _chosen(settings: Settings) -> str | None:
    """The embedder that somebody chose, for the documents or for everything."""
    return settings.knowledge.embedder or settings.embedder


def _words_wanted(settings: Settings) -> bool:
    return _chosen(settings) == "BM25"


def _tools(
    settings: Settings, store: Store, vectors: PassageEmbedder | None, budget: TokenBudget
) -> KnowledgeTools:
    wanted = settings.knowledge
    search = Search(
        store,
        store,
        vectors,
        words_wanted=_words_wanted(settings),
        clock=time.monotonic,
        today=lambda: datetime.datetime.now(datetime.UTC).date(),
        fusion=Fusion(k=wanted.k, weights=Weights(wanted.weights.vector, wanted.weights.bm25)),
        boosts=Boosts(
            vendor=wanted.boosts.vendor,
            doc_type=wanted.boosts.doc_type,
            recency=wanted.boosts.recency,
            entity=wanted.boosts.entity,
            topic=wanted.boosts.topic,
        ),
        cache=Cache(clock=time.monotonic, entries=wanted.cache_entries, ttl_seconds=wanted.cache_ttl_seconds),
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
