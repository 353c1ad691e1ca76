"""The store of large results and its workers as configured."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.own_tools import OwnToolDefinition
from headgate.config.settings import Settings
from headgate.domain.mcp_request import McpRequest
from headgate.event_loop import BackgroundTasks
from headgate.protocol.protocol_version import Era
from headgate.results.large_results import JobRunner, LargeResults, TruncationSettings
from headgate.results.notices import MESSAGE
from headgate.results.result_store import ResultStoreLimits
from headgate.results.tools import DEFINITIONS, NAMES, STUBS
from headgate.storage.files.result_store import LocalResultStore, open_results
from headgate.workers.worker_pool import WorkerPool, open_worker_pool

# How often is looked whether the time of some results is over.
_SWEEP_SECONDS = 10.0

_SHARED = "Large results are stored under a cache_id that every local client of this gateway can read."


class StoredResults:
    """The stored results, and what reads them."""

    def __init__(self, settings: Settings, store: LocalResultStore, workers: WorkerPool) -> None:
        self.store = store
        self.workers = workers
        self._display = result_display_of(settings)
        self._isolated = settings.enable_agent_isolation
        self._work: JobRunner | None = None
        self._large_results: LargeResults | None = None

    def large_results(self, listed: Callable[[McpRequest], bool]) -> LargeResults:
        """What the gateway asks; `listed` tells whether a client can call what reads results by its name."""
        self._large_results = LargeResults(self.store, self.workers, self._load_work, self._display, listed)
        return self._large_results

    async def _load_work(self) -> JobRunner:
        """The job runner; it loads every processor, so it is imported in a thread when it is first needed."""
        work = self._work
        if work is None:
            # Concurrent calls wait for the same import lock and get the same module.
            self._work = work = await asyncio.to_thread(_import_job_runner)
        return work

    async def clear_agent(self, agent: str) -> None:
        """A client without a key is gone, and nobody else can read what was stored for it."""
        if self._isolated:
            await self.store.clear(agent)

    def instructions(self, listing_context: ListingContext) -> str:
        """What a model must know of stored results that are not its own alone."""
        alone = self._isolated and (
            listing_context.owner is not None or listing_context.caller.is_authenticated
        )
        if listing_context.era is Era.HANDSHAKE and listing_context.owner is None:
            # It is just shaking hands, and is going to have a session.
            alone = self._isolated
        return "" if alone or not self._display.truncates else _SHARED

    def gauges(self) -> dict[str, float]:
        """What is stored now."""
        held = self.store.held()
        return {
            "results_stored": held.entries,
            "result_bytes": held.total_cached_bytes,
            "result_bytes_on_disk": held.bytes_on_disk,
            "result_agents": held.agents,
            "result_tokens_saved": self._large_results.metrics.saved_tokens
            if self._large_results is not None
            else 0,
        }

    def counters(self) -> dict[tuple[str, str], int]:
        """What was stored, read, and saved."""
        held = self.store.held()
        counts = {
            ("result_hits", ""): held.hits,
            ("result_misses", ""): held.misses,
            ("results_evicted", ""): held.evicted,
            ("results_expired", ""): held.expired,
            ("result_jobs", ""): self.workers.jobs,
            ("result_jobs_stopped", ""): self.workers.stopped,
        }
        return counts | (self._large_results.metrics.counters() if self._large_results is not None else {})


def _import_job_runner() -> JobRunner:
    from headgate.results import job_runner

    return job_runner


@asynccontextmanager
async def open_stored_results(settings: Settings) -> AsyncIterator[StoredResults]:
    """The store and its workers, for as long as the block lasts."""
    directory = settings.data_dir / "spool"
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_results(directory, result_limits_of(settings)))
        workers = await stack.enter_async_context(open_worker_pool(directory))
        background = await stack.enter_async_context(BackgroundTasks())
        background.start(_sweep(store), name="results")
        yield StoredResults(settings, store, workers)


async def _sweep(store: LocalResultStore) -> None:
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        await store.expire()


def listed_result_tools(settings: Settings) -> tuple[OwnToolDefinition, ...]:
    """The tools that read stored results, as they are listed; none where they are not."""
    if not settings.list_result_tools:
        return ()
    return tuple(OwnToolDefinition(name, DEFINITIONS[name], STUBS[name]) for name in NAMES)


def result_limits_of(settings: Settings) -> ResultStoreLimits:
    """How much is stored."""
    return ResultStoreLimits(
        max_entries=settings.cache_max_entries,
        ttl_seconds=settings.cache_ttl_seconds,
        isolated=settings.enable_agent_isolation,
        entries_per_agent=settings.max_entries_per_agent,
        memory_per_agent=settings.max_memory_per_agent,
        agents=settings.max_total_agents,
        max_bytes=settings.cache_max_bytes,
    )


def result_display_of(settings: Settings) -> TruncationSettings:
    """What is shown of results."""
    return TruncationSettings(
        max_size=settings.max_response_size,
        max_tokens=settings.max_response_tokens,
        truncates=settings.enable_auto_truncation,
        style=settings.truncation,
        excerpt_size=settings.excerpt_size,
        message=settings.truncation_message or MESSAGE,
        compact=settings.compact_tables,
        kept_seconds=settings.cache_ttl_seconds,
    )
