"""The ledger, idempotent delivery and transactions as configured, with their maintenance tasks."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from headgate.catalog.catalog import Catalog
from headgate.catalog.own_tools import OwnToolDefinition
from headgate.config.settings import Settings
from headgate.delivery.delivery_policy import DeliveryPolicy
from headgate.delivery.execution_probe import ExecutionProbe
from headgate.delivery.idempotent_delivery import IdempotentDelivery
from headgate.delivery.ledger import Operation, OperationState
from headgate.delivery.transactions.saga_rules import Phase
from headgate.delivery.transactions.saga_runner import SagaRunner
from headgate.delivery.transactions.tool_definitions import DEFINITIONS, STUBS, TOOL_NAMES
from headgate.delivery.transactions.transaction_tools import TransactionTools
from headgate.delivery.upstream_delivery import CallCounter, UpstreamDelivery
from headgate.domain.errors import HeadgateError, StoreFailed
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import Identity
from headgate.event_loop import BackgroundTasks
from headgate.gateway.collaborators import ToolCaller
from headgate.storage.files.result_transfers import ResultTransfers, open_transfers
from headgate.storage.sqlite.group_commit import GroupCommit
from headgate.storage.sqlite.ledger import SqliteLedger, ledger_group_commit, open_ledger
from headgate.storage.sqlite.transaction_store import SqliteTransactionStore
from headgate.upstream.fleet import UpstreamFleet
from headgate.web.metrics import Counters, Gauges, server_label

log = logging.getLogger("headgate.delivery")

# How often what is past its window is forgotten, and the rest is counted.
_SWEEP_SECONDS = 10.0
# How often every record is checked.
_CHECK_SECONDS = 24 * 3600.0


class DeliveryServices:
    """Everything that makes a call more than a plain one."""

    def __init__(
        self,
        settings: Settings,
        fleet: UpstreamFleet,
        catalog: Catalog,
        count: CallCounter,
        *,
        group_commit: GroupCommit,
        ledger: SqliteLedger,
        transfers: ResultTransfers,
    ) -> None:
        self.delivery_policy = DeliveryPolicy(settings.servers, fleet.honours_keys)
        self.delivery = UpstreamDelivery(fleet, self.delivery_policy, time.monotonic, count)
        self.idempotent_delivery = IdempotentDelivery(
            self.delivery,
            ledger,
            self.delivery_policy,
            ExecutionProbe(self.delivery),
            now=time.time,
            longest_seconds=fleet.longest_seconds,
            rejoin_seconds=settings.rejoin_seconds,
        )
        self.transfers = transfers
        self._catalog = catalog
        self._group_commit = group_commit
        self._ledger = ledger
        self._settings = settings
        self._store = SqliteTransactionStore(
            group_commit, ledger.liveness, window_seconds=settings.ledger_window_seconds
        )
        self._operations: dict[OperationState, int] = {}
        self._phases: dict[Phase, int] = {}
        self._saga_runner: SagaRunner | None = None
        self._tasks = BackgroundTasks()

    def tools(self, use: ToolCaller) -> TransactionTools:
        """The tools for transactions, whose calls are made with `use`."""
        self._saga_runner = SagaRunner(
            self._store,
            self.idempotent_delivery,
            use,
            self.delivery_policy.tool_class,
            self._find,
            now=time.time,
            window_seconds=self._settings.ledger_window_seconds,
        )
        return TransactionTools(
            self._saga_runner,
            self.idempotent_delivery,
            default_seconds=self._settings.transaction_timeout_seconds,
        )

    def _find(self, name: str, caller: Identity) -> None:
        """Raises ToolNotFound or ServerNotFound; a server that is still starting may have the tool."""
        if self._catalog.pending_server(ItemKind.TOOLS, name) is None:
            self._catalog.resolve(ItemKind.TOOLS, name, caller)

    def start_maintenance(self) -> None:
        """Take care of the ledger from now on."""
        self._tasks.start(self._maintain(), name="ledger")

    async def _maintain(self) -> None:
        """Go on with what was under way when a gateway ended, then keep the ledger tidy; never returns."""
        # A gateway that records nothing has none.
        await self._group_commit.used.wait()
        await self._announce_presence()
        await self._recover()
        assert self._saga_runner is not None
        async with asyncio.TaskGroup() as group:
            users = [
                group.create_task(self._saga_runner.run_scheduler(), name="transactions"),
                group.create_task(self._saga_runner.follow_operator(), name="decisions of operators"),
                group.create_task(self._check(), name="check of the ledger"),
            ]
            group.create_task(self._sweep(users), name="ledger")

    async def _check(self) -> None:
        """Look for damage in every record, from time to time, beside everything else."""
        while True:
            checked = await self._ledger.check()
            log.debug("ledger checked", extra={"count": checked})
            await asyncio.sleep(_CHECK_SECONDS)

    async def _announce_presence(self) -> None:
        """Be there before the first write, so that an operator knows that a gateway runs."""
        try:
            await asyncio.to_thread(self._ledger.liveness.register)
        except OSError as error:
            log.warning("ledger not entered", extra={"reason": str(error)})

    async def _recover(self) -> None:
        recovered = await self.idempotent_delivery.recover(self._tool_of_operation)
        if recovered:
            log.info("operations found under way", extra={"count": recovered})

    async def _tool_of_operation(self, operation: Operation) -> Item:
        """The tool of an operation, once its server is there; raises HeadgateError."""
        await self.delivery.await_ready(operation.server)
        caller = Identity(principal=operation.principal, tenant=operation.tenant)
        return self._catalog.resolve(ItemKind.TOOLS, operation.public_name, caller)

    async def _sweep(self, users: Sequence["asyncio.Task[None]"]) -> None:
        """Keep the ledger tidy; `users` are what else works with it, and end when it is damaged."""
        while True:
            if self.damage:
                for task in users:
                    task.cancel()
            else:
                await self._tidy()
            self.transfers.expire()
            await asyncio.sleep(_SWEEP_SECONDS)
            if not self.damage:
                # Of another gateway on the same directory that has ended since.
                await self._recover()

    async def _tidy(self) -> None:
        try:
            await self._ledger.sweep()
            self._operations = await self._ledger.counts()
            if self._saga_runner is not None:
                self._phases = await self._saga_runner.counts()
        except (StoreFailed, HeadgateError) as failure:
            log.warning("ledger not swept", extra={"reason": str(failure)})

    @property
    def damage(self) -> str:
        """Why the ledger is refused; empty while it is whole."""
        return self._ledger.damage

    def gauges(self) -> dict[str, float]:
        """What the ledger held when it was last looked at, and how the lanes are."""
        return {
            "operations_in_doubt": self._operations.get(OperationState.DOUBT, 0),
            "operations_under_way": self._operations.get(OperationState.INTENT, 0),
            "operations_recorded": sum(self._operations.values()),
            "ledger_damaged": int(bool(self.damage)),
            "transactions_stuck": self._phases.get(Phase.STUCK, 0),
            "transfers": len(self.transfers),
        }

    def bulkhead_gauges(self) -> Gauges:
        """How the calls of each server are doing."""
        found: Gauges = {}
        for server, stats in self.delivery.stats().items():
            label = server_label(server)
            found["calls_in_flight", label] = stats.in_flight
            found["calls_queued", label] = stats.queued
            found["breaker_open", label] = int(stats.breaker != "closed")
            found["retries_left", label] = stats.retries_left
        return found

    def counters(self) -> Counters:
        """What was written, and sent again."""
        retries = {
            ("retries", server_label(server)): stats.retries
            for server, stats in self.delivery.stats().items()
        }
        return {("ledger_commits", ""): self._group_commit.commits, **retries}

    async def close(self) -> None:
        """Record what is under way."""
        self._tasks.cancel()
        if self._saga_runner is not None:
            await self._saga_runner.close()
        await self.idempotent_delivery.close()


@asynccontextmanager
async def open_delivery_services(
    settings: Settings, fleet: UpstreamFleet, catalog: Catalog, count: CallCounter
) -> AsyncIterator[DeliveryServices]:
    """The ledger and what writes it, for as long as the block lasts."""
    directory = settings.data_dir
    async with AsyncExitStack() as stack:
        group_commit = await stack.enter_async_context(ledger_group_commit(directory, on_damage=_log_damage))
        ledger = await stack.enter_async_context(
            open_ledger(
                group_commit,
                directory,
                window_seconds=settings.ledger_window_seconds,
                doubt_seconds=settings.doubt_window_seconds,
                most_bytes=settings.ledger_max_bytes,
            )
        )
        transfers = await stack.enter_async_context(
            open_transfers(directory / "spool", settings.chunk_above_bytes, time.monotonic)
        )
        delivery_services = DeliveryServices(
            settings, fleet, catalog, count, group_commit=group_commit, ledger=ledger, transfers=transfers
        )
        try:
            yield delivery_services
        finally:
            await delivery_services.close()


def _log_damage(reason: str) -> None:
    log.error(
        "the ledger is damaged, so calls that must not happen twice are refused until the operator stops the "
        "gateway and runs `headgate operations recover`",
        extra={"reason": reason},
    )


def listed_delivery_tools(settings: Settings) -> tuple[OwnToolDefinition, ...]:
    """The tools for transactions, as they are listed: where the operator cares about delivery."""
    wanted = settings.list_delivery_tools
    if wanted is None:
        wanted = any(not server.policy.is_default for server in settings.servers if server.enabled)
    return (
        tuple(OwnToolDefinition(name, DEFINITIONS[name], STUBS[name]) for name in TOOL_NAMES)
        if wanted
        else ()
    )
