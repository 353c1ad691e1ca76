"""The ledger, the journal and transactions as the settings want them, for as long as the gateway runs."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from headgate.app.background import start
from headgate.catalog.catalog import Catalog
from headgate.catalog.own_tools import OwnToolDefinition
from headgate.config.settings import Settings
from headgate.delivery.delivery import Count, Delivery
from headgate.delivery.journal import Journal
from headgate.delivery.ledger import Operation, State, StoreFailed
from headgate.delivery.probing import Probing
from headgate.delivery.promises import Promises
from headgate.delivery.transactions.definitions import DEFINITIONS, STUBS
from headgate.delivery.transactions.names import NAMES
from headgate.delivery.transactions.plan import Phase
from headgate.delivery.transactions.sagas import Sagas
from headgate.delivery.transactions.tools import TransactionTools
from headgate.domain.call import Caller
from headgate.domain.errors import HeadgateError
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.gateway.gateway import ToolCaller
from headgate.storage.committing import Committer
from headgate.storage.ledger import LedgerFile, ledger_committer, open_ledger
from headgate.storage.transactions import TRANSACTION_TABLES, TransactionFile
from headgate.storage.transfers import Transfers, open_transfers
from headgate.upstream.fleet import UpstreamFleet
from headgate.web.metrics import Counters, Gauges, server_label

log = logging.getLogger("headgate.delivery")

# How often what is past its window is forgotten, and the rest is counted.
_SWEEP_SECONDS = 10.0
# How often every record is checked.
_CHECK_SECONDS = 24 * 3600.0


class Bookkeeping:
    """Everything that makes a call more than a plain one."""

    def __init__(
        self,
        settings: Settings,
        fleet: UpstreamFleet,
        catalog: Catalog,
        count: Count,
        *,
        committer: Committer,
        ledger: LedgerFile,
        transfers: Transfers,
    ) -> None:
        self.promises = Promises(settings.servers, fleet.honours_keys)
        self.delivery = Delivery(fleet, self.promises, time.monotonic, count)
        self.journal = Journal(
            self.delivery,
            ledger,
            self.promises,
            Probing(self.delivery),
            now=time.time,
            longest_seconds=fleet.longest_seconds,
            rejoin_seconds=settings.rejoin_seconds,
        )
        self.transfers = transfers
        self._catalog = catalog
        self._committer = committer
        self._ledger = ledger
        self._settings = settings
        self._store = TransactionFile(
            committer, ledger.presence, window_seconds=settings.ledger_window_seconds
        )
        self._operations: dict[State, int] = {}
        self._phases: dict[Phase, int] = {}
        self._sagas: Sagas | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def tools(self, use: ToolCaller) -> TransactionTools:
        """The tools for transactions, whose calls are made with `use`."""
        self._sagas = Sagas(
            self._store,
            self.journal,
            use,
            self.promises.kind,
            self._find,
            now=time.time,
            window_seconds=self._settings.ledger_window_seconds,
        )
        return TransactionTools(
            self._sagas, self.journal, default_seconds=self._settings.transaction_timeout_seconds
        )

    def _find(self, name: str, caller: Caller) -> None:
        """Raises ToolNotFound or ServerNotFound; a server that is still starting may have the tool."""
        if self._catalog.pending_server(Kind.TOOLS, name) is None:
            self._catalog.resolve(Kind.TOOLS, name, caller)

    def begin(self) -> None:
        """Take care of the ledger from now on."""
        start(self._keep(), "ledger", self._tasks)

    async def _keep(self) -> None:
        """Go on with what was under way when a gateway ended, then keep the ledger tidy; never returns."""
        # A gateway that records nothing has none.
        await self._committer.used.wait()
        await self._enter()
        await self._recover()
        assert self._sagas is not None
        async with asyncio.TaskGroup() as group:
            users = [
                group.create_task(self._sagas.watch(), name="transactions"),
                group.create_task(self._sagas.follow_operator(), name="decisions of operators"),
                group.create_task(self._check(), name="check of the ledger"),
            ]
            group.create_task(self._sweep(users), name="ledger")

    async def _check(self) -> None:
        """Look for damage in every record, from time to time, beside everything else."""
        while True:
            checked = await self._ledger.check()
            log.debug("ledger checked", extra={"count": checked})
            await asyncio.sleep(_CHECK_SECONDS)

    async def _enter(self) -> None:
        """Be there before the first write, so that an operator knows that a gateway runs."""
        try:
            await asyncio.to_thread(self._ledger.presence.enter)
        except OSError as error:
            log.warning("ledger not entered", extra={"reason": str(error)})

    async def _recover(self) -> None:
        recovered = await self.journal.recover(self._tool)
        if recovered:
            log.info("operations found under way", extra={"count": recovered})

    async def _tool(self, operation: Operation) -> Item:
        """The tool of an operation, once its server is there; raises HeadgateError."""
        await self.delivery.await_ready(operation.server)
        caller = Caller(principal=operation.principal, tenant=operation.tenant)
        return self._catalog.resolve(Kind.TOOLS, operation.public_name, caller)

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
            if self._sagas is not None:
                self._phases = await self._sagas.counts()
        except (StoreFailed, HeadgateError) as failure:
            log.warning("ledger not swept", extra={"reason": str(failure)})

    @property
    def damage(self) -> str:
        """Why the ledger is refused; empty while it is whole."""
        return self._ledger.damage

    def gauges(self) -> dict[str, float]:
        """What the ledger held when it was last looked at, and how the lanes are."""
        return {
            "operations_in_doubt": self._operations.get(State.DOUBT, 0),
            "operations_under_way": self._operations.get(State.INTENT, 0),
            "operations_recorded": sum(self._operations.values()),
            "ledger_damaged": int(bool(self.damage)),
            "transactions_stuck": self._phases.get(Phase.STUCK, 0),
            "transfers": len(self.transfers),
        }

    def lanes(self) -> Gauges:
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
        return {("ledger_commits", ""): self._committer.commits, **retries}

    async def close(self) -> None:
        """Record what is under way."""
        for task in self._tasks:
            task.cancel()
        if self._sagas is not None:
            await self._sagas.close()
        await self.journal.close()


@asynccontextmanager
async def open_bookkeeping(
    settings: Settings, fleet: UpstreamFleet, catalog: Catalog, count: Count
) -> AsyncIterator[Bookkeeping]:
    """The ledger and what writes it, for as long as the block lasts."""
    directory = settings.data_dir
    async with AsyncExitStack() as stack:
        committer = await stack.enter_async_context(
            ledger_committer(directory, TRANSACTION_TABLES, on_damage=_log_damage)
        )
        ledger = await stack.enter_async_context(
            open_ledger(
                committer,
                directory,
                window_seconds=settings.ledger_window_seconds,
                doubt_seconds=settings.doubt_window_seconds,
                most_bytes=settings.ledger_max_bytes,
            )
        )
        transfers = await stack.enter_async_context(
            open_transfers(directory / "spool", settings.chunk_above_bytes, time.monotonic)
        )
        bookkeeping = Bookkeeping(
            settings, fleet, catalog, count, committer=committer, ledger=ledger, transfers=transfers
        )
        try:
            yield bookkeeping
        finally:
            await bookkeeping.close()


def _log_damage(reason: str) -> None:
    log.error(
        "the ledger is damaged, so calls that must not happen twice are refused until the operator stops the "
        "gateway and runs `headgate operations recover`",
        extra={"reason": reason},
    )


def delivery_tools_of(settings: Settings) -> tuple[OwnToolDefinition, ...]:
    """The tools for transactions, as they are listed: where the operator cares about delivery."""
    wanted = settings.list_delivery_tools
    if wanted is None:
        wanted = any(not server.care.is_plain for server in settings.servers if server.enabled)
    return tuple(OwnToolDefinition(name, DEFINITIONS[name], STUBS[name]) for name in NAMES) if wanted else ()
