"""The ledger, idempotent delivery and transactions as configured, and the maintenance of the ledger."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

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
from headgate.domain.identity import Identity, recorded_identity
from headgate.domain.item import Item, ItemKind
from headgate.gateway.interfaces import ToolCaller
from headgate.storage.files.result_transfers import ResultTransfers, open_transfers
from headgate.storage.sqlite.group_commit import GroupCommit
from headgate.storage.sqlite.ledger import SqliteLedger, ledger_group_commit, open_ledger
from headgate.storage.sqlite.transaction_store import SqliteTransactionStore
from headgate.upstream.fleet import UpstreamFleet
from headgate.web.metrics import Counters, Gauges, server_label

log = logging.getLogger("headgate.delivery")

# Between two sweeps of the ledger, each of which also counts its records.
_SWEEP_SECONDS = 10.0
# Between two checks of every record.
_CHECK_SECONDS = 24 * 3600.0


class DeliveryServices:
    """The delivery of calls: plain with retries, and idempotent with the ledger."""

    def __init__(
        self,
        settings: Settings,
        fleet: UpstreamFleet,
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
        self.group_commit = group_commit
        self.ledger = ledger
        self.transfers = transfers

    @property
    def damage(self) -> str:
        """Why the ledger is refused; empty while it is whole."""
        return self.ledger.damage

    def gauges(self) -> Gauges:
        found: Gauges = {}
        for server, stats in self.delivery.stats().items():
            label = server_label(server)
            found["calls_in_flight", label] = stats.in_flight
            found["calls_queued", label] = stats.queued
            found["breaker_open", label] = int(stats.breaker != "closed")
            found["retries_left", label] = stats.retries_left
        return found

    def counters(self) -> Counters:
        """Commits of the ledger and retries of each server since the start."""
        retries = {
            ("retries", server_label(server)): stats.retries
            for server, stats in self.delivery.stats().items()
        }
        return {("ledger_commits", ""): self.group_commit.commits, **retries}


@asynccontextmanager
async def open_delivery_services(
    settings: Settings, fleet: UpstreamFleet, count: CallCounter
) -> AsyncIterator[DeliveryServices]:
    """The ledger and the delivery that writes it, for as long as the block lasts."""
    directory = settings.data_dir
    async with (
        ledger_group_commit(directory, on_damage=_log_damage) as group_commit,
        open_ledger(
            group_commit,
            directory,
            window_seconds=settings.ledger_window_seconds,
            doubt_seconds=settings.doubt_window_seconds,
            most_bytes=settings.ledger_max_bytes,
        ) as ledger,
        open_transfers(directory / "spool", settings.chunk_above_bytes, time.monotonic) as transfers,
    ):
        services = DeliveryServices(
            settings, fleet, count, group_commit=group_commit, ledger=ledger, transfers=transfers
        )
        try:
            yield services
        finally:
            await services.idempotent_delivery.close()


def _log_damage(reason: str) -> None:
    log.error(
        "the ledger is damaged, so calls that must not happen twice are refused until the operator stops the "
        "gateway and runs `headgate operations recover`",
        extra={"reason": reason},
    )


class Transactions:
    """The transactions of all clients, and the maintenance of the ledger that they are recorded in."""

    def __init__(
        self, settings: Settings, services: DeliveryServices, catalog: Catalog, call_tool: ToolCaller
    ) -> None:
        """`call_tool` makes the calls of compensations."""
        self._catalog = catalog
        self._services = services
        self._ledger = services.ledger
        store = SqliteTransactionStore(
            services.group_commit, services.ledger.liveness, window_seconds=settings.ledger_window_seconds
        )
        self.saga_runner = SagaRunner(
            store,
            services.idempotent_delivery,
            call_tool,
            services.delivery_policy.tool_class,
            self._check_tool_exists,
            now=time.time,
            window_seconds=settings.ledger_window_seconds,
        )
        self.tools = TransactionTools(
            self.saga_runner,
            services.idempotent_delivery,
            default_seconds=settings.transaction_timeout_seconds,
        )
        self._operations: dict[OperationState, int] = {}
        self._phases: dict[Phase, int] = {}

    def _check_tool_exists(self, name: str, caller: Identity) -> None:
        """Raises ToolNotFound or ServerNotFound; a server that is still starting may have the tool.

        Only for a caller that sees everything: a compensation is sent whatever its caller sees by then, so
        what is not listed yet may turn out to be hidden.
        """
        starting = self._catalog.pending_server(ItemKind.TOOLS, name, caller) is not None
        if not starting or not self._catalog.visibility(caller).is_unrestricted:
            self._catalog.resolve(ItemKind.TOOLS, name, caller)

    async def maintain_ledger(self) -> None:
        """Recover the operations of a gateway that ended, then sweep and check the ledger; never returns."""
        # Without a record there is nothing to maintain.
        await self._services.group_commit.used.wait()
        # Register before the first write, so that commands of the operator see that a gateway runs.
        try:
            await asyncio.to_thread(self._ledger.liveness.register)
        except OSError as error:
            log.warning("ledger not entered", extra={"reason": str(error)})
        await self._recover()
        async with asyncio.TaskGroup() as group:
            users = [
                group.create_task(self.saga_runner.run_scheduler(), name="transactions"),
                group.create_task(self.saga_runner.follow_operator(), name="decisions of operators"),
                group.create_task(self._check_periodically(), name="check of the ledger"),
            ]
            group.create_task(self._sweep_periodically(users), name="ledger")

    async def _recover(self) -> None:
        recovered = await self._services.idempotent_delivery.recover(self._tool_of_operation)
        if recovered:
            log.info("operations found under way", extra={"count": recovered})

    async def _tool_of_operation(self, operation: Operation) -> Item:
        """The tool of an operation, once its server is ready; raises HeadgateError."""
        await self._services.delivery.await_ready(operation.server)
        caller = recorded_identity(operation.tenant, operation.principal)
        return self._catalog.resolve(ItemKind.TOOLS, operation.public_name, caller)

    async def _check_periodically(self) -> None:
        while True:
            checked = await self._ledger.check()
            log.debug("ledger checked", extra={"count": checked})
            await asyncio.sleep(_CHECK_SECONDS)

    async def _sweep_periodically(self, users: Sequence["asyncio.Task[None]"]) -> None:
        """Sweep until cancelled; `users`, the other tasks with the ledger, are cancelled if it is damaged."""
        while True:
            if self._ledger.damage:
                for task in users:
                    task.cancel()
            else:
                try:
                    await self._ledger.sweep()
                    self._operations = await self._ledger.counts()
                    self._phases = await self.saga_runner.counts()
                except (StoreFailed, HeadgateError) as failure:
                    log.warning("ledger not swept", extra={"reason": str(failure)})
            self._services.transfers.expire()
            await asyncio.sleep(_SWEEP_SECONDS)
            if not self._ledger.damage:
                # Another gateway on the same directory may have ended since.
                await self._recover()

    def gauges(self) -> dict[str, float]:
        """The records of the ledger at its last sweep."""
        return {
            "operations_in_doubt": self._operations.get(OperationState.DOUBT, 0),
            "operations_in_flight": self._operations.get(OperationState.INTENT, 0),
            "operations_recorded": sum(self._operations.values()),
            "ledger_damaged": int(bool(self._ledger.damage)),
            "transactions_stuck": self._phases.get(Phase.STUCK, 0),
            "transfers": len(self._services.transfers),
        }


@asynccontextmanager
async def open_transactions(
    settings: Settings, services: DeliveryServices, catalog: Catalog, call_tool: ToolCaller
) -> AsyncIterator[Transactions]:
    """The transactions for as long as the block lasts; those under way go on after the next start."""
    transactions = Transactions(settings, services, catalog, call_tool)
    try:
        yield transactions
    finally:
        await transactions.saga_runner.close()


def listed_delivery_tools(settings: Settings) -> tuple[OwnToolDefinition, ...]:
    """The tools for transactions as they are listed: by setting, or if any server has a delivery policy."""
    listed = settings.list_delivery_tools
    if listed is None:
        listed = any(not server.policy.is_default for server in settings.servers if server.enabled)
    if listed:
        return tuple(OwnToolDefinition(name, DEFINITIONS[name], STUBS[name]) for name in TOOL_NAMES)
    return ()
