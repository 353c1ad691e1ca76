"""The store of large results and its workers as configured."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

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

# Between two removals of expired results.
_SWEEP_SECONDS = 10.0

_SHARED = "Large results are stored under a cache_id that every local client of this gateway can read."


class StoredResults:
    """The store of large results, its workers, and the rules that use both."""

    def __init__(
        self,
        settings: Settings,
        store: LocalResultStore,
        workers: WorkerPool,
        listed: Callable[[McpRequest], bool],
    ) -> None:
        """`listed` says whether a client can call the tools that read results by their names."""
        self.store = store
        self.workers = workers
        self._display = result_display_of(settings)
        self._isolated = settings.enable_agent_isolation
        self._job_runner: JobRunner | None = None
        self.large_results = LargeResults(store, workers, self._load_job_runner, self._display, listed)

    async def _load_job_runner(self) -> JobRunner:
        """The job runner, imported with its first use: neither the start nor the event loop waits for it."""
        if self._job_runner is None:
            # Concurrent imports wait for the lock of the module, so none gets half of it.
            self._job_runner = await asyncio.to_thread(_import_job_runner)
        return self._job_runner

    async def clear_agent(self, agent: str) -> None:
        """Drop the results of a client without a key that is gone, unless other clients can read them."""
        if self._isolated:
            await self.store.clear(agent)

    def instructions(self, listing_context: ListingContext) -> str:
        """The sentence for a model whose results other clients can read; otherwise empty."""
        alone = self._isolated and (
            listing_context.owner is not None or listing_context.caller.is_authenticated
        )
        if listing_context.era is Era.HANDSHAKE and listing_context.owner is None:
            # It is initializing, and is going to have a session.
            alone = self._isolated
        return "" if alone or not self._display.truncates else _SHARED

    def gauges(self) -> dict[str, float]:
        stats = self.store.current_stats()
        return {
            "results_stored": stats.entries,
            "result_bytes": stats.total_cached_bytes,
            "result_bytes_on_disk": stats.bytes_on_disk,
            "result_agents": stats.agents,
            "result_tokens_saved": self.large_results.metrics.saved_tokens,
        }

    def counters(self) -> dict[tuple[str, str], int]:
        """The uses of the store, its workers and its tools since the start."""
        stats = self.store.current_stats()
        counts = {
            ("result_hits", ""): stats.hits,
            ("result_misses", ""): stats.misses,
            ("results_evicted", ""): stats.evicted,
            ("results_expired", ""): stats.expired,
            ("result_jobs", ""): self.workers.jobs,
            ("result_jobs_stopped", ""): self.workers.stopped,
        }
        return counts | self.large_results.metrics.counters()


def _import_job_runner() -> JobRunner:
    from headgate.results import job_runner

    return job_runner


@asynccontextmanager
async def open_stored_results(
    settings: Settings, listed: Callable[[McpRequest], bool]
) -> AsyncIterator[StoredResults]:
    """The store and its workers, for as long as the block lasts; `listed` as for StoredResults."""
    directory = settings.data_dir / "spool"
    async with (
        open_results(directory, result_limits_of(settings)) as store,
        open_worker_pool(directory) as workers,
        BackgroundTasks() as tasks,
    ):
        tasks.start(_sweep(store), name="results")
        yield StoredResults(settings, store, workers, listed)


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
