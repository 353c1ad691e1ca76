"""Builds store, embedder and tools of the document server from its options, and watches the store."""

import asyncio
import datetime
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from typing import Final, NamedTuple

from headgate.domain.errors import ConfigError, StoreUnavailable
from headgate.embedding.embedder_factory import OfflineModel, embedder_maker
from headgate.embedding.threaded_embedder import PassageEmbedder
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.options import KnowledgeOptions
from headgate.knowledge.search.hybrid_search import HybridSearch
from headgate.knowledge.search.query_cache import QueryCache
from headgate.knowledge.tools.token_budget import TokenBudget
from headgate.knowledge.tools.tool_router import KnowledgeTools
from headgate.search.rank_fusion import FusionWeights, ReciprocalRankFusion

log = logging.getLogger("headgate.knowledge")

# The retry delay in the error for callers.
_CHECK_INTERVAL_SECONDS: Final = 5.0
# A store that has not answered by then hangs; the slowest search is over long before that.
_ANSWER_SECONDS: Final = 15.0
_NO_ANSWER: Final = "the store of the documents does not answer"
_UNAVAILABLE: Final = "the store of the documents cannot be used; the log says why"


class KnowledgeComponents(NamedTuple):
    """The open store, the embedder if there is one, and the tools over both."""

    store: KnowledgeStore
    vectors: PassageEmbedder | None
    tools: KnowledgeTools


@asynccontextmanager
async def open_knowledge(
    options: KnowledgeOptions, offline: OfflineModel, budget: TokenBudget | None = None
) -> AsyncIterator[KnowledgeComponents]:
    """All components for as long as the block lasts; raises ConfigError.

    Without a budget no call is refused for its tokens; the command line has none.
    """
    make_embedder = embedder_maker(
        options.embedder,
        offline,
        hf_model=options.hf_model,
        openai_base_url=options.openai_base_url,
        openai_model=options.openai_model,
        openai_api_key=options.openai_api_key,
        passages=True,
    )
    async with AsyncExitStack() as stack:
        vectors = None
        if make_embedder is not None:
            vectors = PassageEmbedder(make_embedder)
            stack.push_async_callback(vectors.close)
        store = await stack.enter_async_context(open_configured_store(options))
        tools = _build_tools(options, store, vectors, budget or TokenBudget(None, clock=time.monotonic))
        yield KnowledgeComponents(store, vectors, tools)


@asynccontextmanager
async def open_configured_store(options: KnowledgeOptions) -> AsyncIterator[KnowledgeStore]:
    """The store alone; raises ConfigError for a PostgreSQL that cannot be used."""
    # Only the driver of the configured store is imported.
    if options.store_url is not None:
        async with open_postgres_store(
            options.store_url,
            replica_url=options.replica_url,
            fewest_connections=options.pool_min,
            most_connections=options.pool_max,
        ) as store:
            yield store
        return
    # In a thread, because the import reads the SQL of the store.
    await asyncio.to_thread(import_module, "headgate.knowledge.stores.sqlite.store")
    from headgate.knowledge.stores.sqlite.store import open_sqlite_store

    async with open_sqlite_store(options.database_path) as sqlite_store:
        yield sqlite_store


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
    try:
        # In a thread, because the import takes long.
        await asyncio.to_thread(import_module, "headgate.knowledge.stores.postgres.store")
        from headgate.knowledge.stores.postgres.store import open_store_on
    except ImportError as error:
        raise ConfigError(
            "a store in PostgreSQL needs packages that are not installed",
            hint='pip install "headgate-mcp[postgres]"',
        ) from error
    async with open_store_on(url, replica_url, now, (fewest_connections, most_connections)) as store:
        yield store


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


class StoreHealth:
    """The last known state of a store; `on_change` gets the reason of an outage, and None at its end.

    `check` raises StoreUnavailable when the store cannot be read.
    """

    def __init__(
        self,
        check: Callable[[], Awaitable[None]],
        on_change: Callable[[str | None], None],
        look_seconds: float = _CHECK_INTERVAL_SECONDS,
    ) -> None:
        self._check = check
        self._on_change = on_change
        self._interval_seconds = look_seconds
        self._trouble: str | None = None
        self._doubted = asyncio.Event()

    def record_use(self, *, away: bool) -> None:
        """Note the outcome of a use; one that contradicts the last check triggers a check at once."""
        if away != (self._trouble is not None):
            self._doubted.set()

    async def check_once(self) -> None:
        """Check now, and report what has changed."""
        self._doubted.clear()
        before, trouble = self._trouble, None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._check()
        except StoreUnavailable as away:
            trouble = away.why or _UNAVAILABLE
        except TimeoutError:
            trouble = _NO_ANSWER
        self._trouble = trouble
        if trouble != before:
            self._on_change(trouble)

    async def watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_seconds):
                    await self._doubted.wait()
            try:
                await self.check_once()
            except Exception:
                # Otherwise the checks would end.
                log.exception("the store of the documents could not be looked at")


@asynccontextmanager
async def watch_health(
    check: Callable[[], Awaitable[None]], on_change: Callable[[str | None], None]
) -> AsyncIterator[StoreHealth]:
    """The health of a store, which has been looked at, and is watched while the block lasts."""
    health = StoreHealth(check, on_change)
    await health.check_once()
    watching = asyncio.create_task(health.watch(), name="health of the documents")
    try:
        yield health
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
