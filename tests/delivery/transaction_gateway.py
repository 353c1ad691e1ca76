"""A shop whose tools are called in transactions, and gateways before it that are killed at any write."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Raw

from headgate.catalog.errors import ToolNotFound
from headgate.delivery.delivery_policy import DeliveryPolicy
from headgate.delivery.idempotent_delivery import IdempotentDelivery
from headgate.delivery.ledger import ClaimResult, Intent, Operation, OperationOutcome
from headgate.delivery.transactions.saga_runner import SagaRunner
from headgate.delivery.transactions.transaction_store import (
    HistoryEvent,
    StepRecord,
    TransactionKey,
    TransactionRecord,
)
from headgate.delivery.transactions.transaction_tools import TransactionTools
from headgate.domain.delivery_request import DeliveryRequest
from headgate.domain.errors import HeadgateError, StoreFailed, UpstreamLost, UpstreamUnreachable
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.domain.upstream_policy import ToolClass, ToolSafety, UpstreamPolicy
from headgate.storage.files.ledger_files import AnswerFiles, ProcessLiveness
from headgate.storage.sqlite.ledger import SqliteLedger, ledger_group_commit
from headgate.storage.sqlite.transaction_store import SqliteTransactionStore

WAIT_SECONDS = 10.0

# What a tool of the shop may do: what was asked, refuse, be away, or be lost before or after doing it.
DOES, REFUSES, AWAY, LOST_BEFORE, LOST_AFTER, WRONG = "does", "refuses", "away", "before", "after", "wrong"
# Or ask something first, or answer with more than fits into memory.
ASKS, LONG = "asks", "long"


class Clock:
    """The time of day, which stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0

    def __call__(self) -> float:
        return self.seconds

    def forward(self, seconds: float) -> None:
        self.seconds += seconds


class CrashPoint:
    """Kills a gateway at one of the points that it passes: from then on it does nothing any more."""

    def __init__(self, crashes_at: int | None = None) -> None:
        self.passed = 0
        self.crashed = asyncio.Event()
        self._crashes_at = crashes_at

    def check(self) -> None:
        """A dead process writes nothing."""
        if self.crashed.is_set():
            raise StoreFailed("the process is dead")

    async def point(self) -> None:
        """Where it may end, or stand still."""
        self.check()
        self.passed += 1
        if self.passed == self._crashes_at:
            self.crashed.set()
            await asyncio.Event().wait()


class Pause(CrashPoint):
    """Lets a gateway stand still at one point, until it goes on."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.reached = asyncio.Event()
        self._at = at

    async def point(self) -> None:
        self.passed += 1
        if self.passed == self._at:
            self.reached.set()
            await self.goes_on.wait()


class Shop:
    """Does what its script says of each tool, and writes down every effect; it outlives every gateway."""

    def __init__(self, **script: list[str]) -> None:
        self.script = script
        # The tool and the `n` of its arguments.
        self.effects: list[str] = []
        self.received: list[UpstreamCall] = []
        # Cleared, calls wait until it is set.
        self.open = asyncio.Event()
        self.open.set()
        self.crash_point = CrashPoint()

    def is_ready(self, server: str) -> bool:
        return True

    async def await_ready(self, server: str) -> None:
        return

    def sends_requests_during_calls(self, server: str) -> bool:
        return False

    async def send_with_retry(self, call: UpstreamCall) -> McpResponse:
        self.received.append(call)
        await self.open.wait()
        tool, left = call.item.name, self.script.get(call.item.name, [])
        outcome = left.pop(0) if left else DOES
        match outcome:
            case "away":
                raise UpstreamUnreachable("shop", "it is closed")
            case "before":
                raise UpstreamLost("shop", tool, "it closed")
            case "asks":
                return McpResponse(QUESTION, typed=True)
            case "refuses":
                return said("no", failed=True)
            case "wrong":
                return McpResponse(error=b'{"code":1,"message":"broken"}')
        self.crash_point.check()
        self.effects.append(tool)
        await self.crash_point.point()
        if outcome == LOST_AFTER:
            raise UpstreamLost("shop", tool, "it closed")
        answer = said(f'{{"id": "{tool}-{len(self.effects)}"}}')
        assert isinstance(answer.result, bytes)
        return McpResponse(Kept(answer.result)) if outcome == LONG else answer


QUESTION = b'{"resultType":"input_required","inputRequests":{},"requestState":"x"}'


class Kept:
    """A result that is kept on disk."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)
        self.first = content[:1]
        self.closed = False

    def chunks(self) -> Iterator[bytes]:
        yield self._content

    def close(self) -> None:
        self.closed = True


def said(text: str, *, failed: bool = False) -> McpResponse:
    """An answer of a tool."""
    return McpResponse(msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": failed}))


class CrashableSqliteLedger(SqliteLedger):
    """The ledger, with a point after every write."""

    crash_point: CrashPoint

    async def claim(self, intent: Intent) -> ClaimResult:
        self.crash_point.check()
        claim = await super().claim(intent)
        await self.crash_point.point()
        return claim

    async def finish(self, op_id: str, fence: int, outcome: OperationOutcome) -> bool:
        self.crash_point.check()
        finished = await super().finish(op_id, fence, outcome)
        await self.crash_point.point()
        return finished


class CrashableTransactionStore(SqliteTransactionStore):
    """The store, with a point after every write; full, it writes nothing."""

    crash_point: CrashPoint
    full = False

    async def begin(self, transaction: TransactionRecord) -> bool:
        self._check()
        begun = await super().begin(transaction)
        await self.crash_point.point()
        return begun

    async def save(
        self, transaction: TransactionRecord, event: HistoryEvent, step: StepRecord | None
    ) -> bool:
        self._check()
        saved = await super().save(transaction, event, step)
        await self.crash_point.point()
        return saved

    def _check(self) -> None:
        if self.full:
            raise StoreFailed("the disk is full")
        self.crash_point.check()


class _NoProber:
    async def was_executed(self, operation: Operation, policy: ToolSafety) -> bool | None:
        return None


class TransactionHarness:
    """One gateway in front of the shop, as far as transactions go."""

    def __init__(
        self,
        shop: Shop,
        ledger: CrashableSqliteLedger,
        store: CrashableTransactionStore,
        clock: Clock,
        kind: ToolClass,
    ) -> None:
        spec = ServerSpec(
            name="shop",
            transport=TransportType.STDIO,
            policy=UpstreamPolicy(all=ToolSafety(kind=kind), tools=READERS),
        )
        delivery_policy = DeliveryPolicy([spec])
        self.shop, self.store, self.clock = shop, store, clock
        self._ledger = ledger
        self.pauses: list[float] = []
        # Tools that the shop does not have; it has all others.
        self.missing: set[str] = set()
        self.delivery = IdempotentDelivery(
            shop,
            ledger,
            delivery_policy,
            _NoProber(),
            now=clock,
            longest_seconds=lambda _: WAIT_SECONDS,
            rejoin_seconds=0.0,
        )
        self.saga_runner = SagaRunner(
            store,
            self.delivery,
            self.use,
            delivery_policy.tool_class,
            self._find,
            now=clock,
            sleep=self._no_wait,
        )
        self.tools = TransactionTools(self.saga_runner, self.delivery)

    def arm(self, crash_point: CrashPoint) -> None:
        """From now on it may be killed."""
        self.shop.crash_point = self.store.crash_point = self._ledger.crash_point = crash_point

    def _find(self, name: str, caller: Identity) -> Item:
        if name in self.missing:
            raise ToolNotFound(name, ["reserve", "charge"])
        return tool(name)

    async def _no_wait(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    async def use(self, request: McpRequest) -> tuple[UpstreamCall, McpResponse]:
        """As the gateway does it: find the tool, and carry the call to its answer."""
        call = UpstreamCall(request, tool(request.name))
        return call, await self.delivery.send_recorded(call)

    async def sweep(self) -> None:
        """Forget calls that are past their window."""
        await self._ledger.sweep()

    async def resume(self) -> None:
        """What a start does: the journal first, then the transactions."""

        async def found(operation: Operation) -> Item:
            return tool(operation.public_name)

        await self.delivery.recover(found)
        await self.saga_runner.resume_due()
        await self.saga_runner.wait_until_idle()

    # What a client does.

    async def ask(self, name: str, caller: Identity = LOCAL_IDENTITY, **arguments: Any) -> dict[str, Any]:
        """What one of the gateway's own tools tells."""
        answer = await self.tools.tools_by_name[name].run(asked(name, caller, **arguments))
        assert isinstance(answer.result, bytes)
        result = msgspec.json.decode(answer.result)
        assert msgspec.json.decode(result["content"][0]["text"]) == result["structuredContent"]
        told: dict[str, Any] = result["structuredContent"]
        return told

    async def begin(self, **arguments: Any) -> str:
        """The id of a new transaction."""
        told = await self.ask("transaction_begin", **arguments)
        return str(told["transaction_id"])

    async def step(self, id: str, name: str, undo: str | None = "", **more: Any) -> dict[str, Any]:
        """The result of a step, undone by `undo_` and its name unless told otherwise; None is by nothing."""
        if undo is not None:
            compensate = {"tool": undo or f"undo_{name}", "args": {"of": "$arguments.n"}}
            more = {"compensate": compensate, **more}
        more = {"args": {"n": name}, **more}
        request = asked("transaction_step", LOCAL_IDENTITY, transaction_id=id, tool=name, **more)
        assert self.tools.is_step(request)
        _, answer = await self.tools.run_step(request, self.use)
        return result_of(answer)

    async def state(self, id: str) -> str:
        """The progress of the transaction, as the client reads it."""
        return str((await self.ask("get_transaction", transaction_id=id))["state"])


# Told by the operator to change nothing.
READERS = {"look*": ToolSafety(kind=ToolClass.READ)}


def result_of(answer: McpResponse) -> dict[str, Any]:
    """An answer, decoded."""
    assert isinstance(answer.result, bytes)
    result: dict[str, Any] = msgspec.json.decode(answer.result or answer.error)
    return result


def asked(
    name: str,
    caller: Identity = LOCAL_IDENTITY,
    /,
    delivery_request: DeliveryRequest | None = None,
    **arguments: Any,
) -> McpRequest:
    """A call of a tool."""
    return McpRequest(
        caller=caller,
        name=name,
        params={"arguments": Raw(msgspec.json.encode(arguments))},
        delivery_request=delivery_request,
    )


def tool(name: str) -> Item:
    """A tool of the shop."""
    return Item(ItemKind.TOOLS, "shop", name, name)


@contextmanager
def quick_directory() -> Iterator[Path]:
    """A directory in memory, where the system has one: what is tested with it is not the disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@asynccontextmanager
async def harness(
    directory: Path,
    shop: Shop,
    clock: Clock | None = None,
    kind: ToolClass = ToolClass.UNSAFE,
) -> AsyncIterator[TransactionHarness]:
    """A gateway on the files of that directory, which ends with the block."""
    clock = clock or Clock()
    liveness = ProcessLiveness(directory / "owners")
    async with ledger_group_commit(directory) as group_commit:
        ledger = CrashableSqliteLedger(
            group_commit,
            AnswerFiles(directory / "ledger"),
            liveness,
            window_seconds=86_400.0,
            doubt_seconds=7 * 86_400.0,
            now=clock,
        )
        store = CrashableTransactionStore(group_commit, liveness, now=clock)
        gateway = TransactionHarness(shop, ledger, store, clock, kind)
        gateway.arm(CrashPoint())
        try:
            yield gateway
        finally:
            await gateway.saga_runner.close()
            await gateway.delivery.close()
            await ledger.close()


async def until_killed(crash_point: CrashPoint, work: Callable[[], Awaitable[object]]) -> bool:
    """Run what a client does until it is over or its gateway is killed; whether it was.

    Nothing of the gateway runs after that.
    """
    before = asyncio.all_tasks()
    running = asyncio.ensure_future(_tolerant(work))
    crashed = asyncio.ensure_future(crash_point.crashed.wait())
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.wait({running, crashed}, return_when=asyncio.FIRST_COMPLETED)
        killed = crash_point.crashed.is_set()
        crash_point.crashed.set()
        while left := asyncio.all_tasks() - before:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=0.01)
    return killed


async def _tolerant(work: Callable[[], Awaitable[object]]) -> None:
    try:
        await work()
    except HeadgateError:
        return


def place_of(id: str, caller: Identity = LOCAL_IDENTITY) -> TransactionKey:
    """Where a transaction is recorded."""
    return TransactionKey(caller.tenant, caller.principal, id)
