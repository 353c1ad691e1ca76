"""A gateway's journal on the real ledger in front of the bank, which can be killed and started again."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import msgspec
from msgspec import Raw

from headgate.delivery.delivery_policy import DeliveryPolicy
from headgate.delivery.execution_probe import ExecutionProbe
from headgate.delivery.idempotent_delivery import IdempotentDelivery
from headgate.delivery.ledger import ClaimResult, Intent, Operation, OperationOutcome, OperationState
from headgate.delivery.upstream_delivery import UpstreamDelivery
from headgate.domain.delivery_request import DeliveryRequest, DeliveryStatus
from headgate.domain.errors import HeadgateError, StoreFailed
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.domain.server_spec import ServerSpec
from headgate.domain.upstream_policy import ToolClass
from headgate.storage.sqlite.ledger import LEDGER_NAME, SqliteLedger, ledger_group_commit, open_ledger
from testkit.virtual_time import VirtualTimeLoop, in_real_time, run_in_virtual_time
from tests.delivery.fake_bank import LONGEST_SECONDS, SPEC, Bank, item

P = ParamSpec("P")
T = TypeVar("T")

REJOIN_SECONDS = 20.0
WINDOW_SECONDS = 24 * 3600.0
DOUBT_SECONDS = 7 * 24 * 3600.0
# The time of day at which the clock of a loop shows nothing.
_EPOCH = 1_700_000_000.0


class CallOutcome(msgspec.Struct, frozen=True):
    """What a caller got to see."""

    # `answer`, `isError`, `word` (an operator's decision), the number of a JSON-RPC error,
    # or the code and the effect of a failure; `again` before it for what is a duplicate.
    words: str
    answer: McpResponse | None = None
    delivery_status: DeliveryStatus | None = None

    @property
    def op_id(self) -> str:
        """Of a call that has one."""
        assert self.delivery_status is not None
        assert self.delivery_status.op_id
        return self.delivery_status.op_id

    @property
    def attempts(self) -> int:
        """How often it was tried."""
        assert self.delivery_status is not None
        return self.delivery_status.attempts

    @property
    def result(self) -> bytes:
        """Of an answer in memory."""
        assert self.answer is not None
        assert isinstance(self.answer.result, bytes)
        return self.answer.result


class GatewayProcess:
    """One gateway, from its start to its end or its kill."""

    def __init__(self, bank: Bank, directory: Path, spec: ServerSpec = SPEC) -> None:
        self.bank = bank
        self._directory = directory
        self.delivery_policy = DeliveryPolicy([spec])
        self._stack = AsyncExitStack()
        self.is_dead = False
        # What runs something on its loop, where it has one of its own.
        self.run: Callable[[Coroutine[Any, Any, None]], None] = run_in_virtual_time
        # The next method of the ledger after which it is killed.
        self.dies_after = ""
        # The methods of the ledger that fail, and those that wait for something first.
        self.down: set[str] = set()
        self.waits: dict[str, asyncio.Event] = {}

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()

        def time_of_day() -> float:
            return _EPOCH + loop.time()

        group_commit = await self._stack.enter_async_context(ledger_group_commit(self._directory))
        ledger = await self._stack.enter_async_context(
            open_ledger(
                group_commit,
                self._directory,
                window_seconds=WINDOW_SECONDS,
                doubt_seconds=DOUBT_SECONDS,
                now=time_of_day,
            )
        )
        self._file = ledger
        self.ledger = CrashableLedger(self, ledger)
        deliveries = FreshDeliveries(self)
        self.delivery = IdempotentDelivery(
            deliveries,
            self.ledger,
            self.delivery_policy,
            ExecutionProbe(deliveries.fresh()),
            now=time_of_day,
            longest_seconds=lambda server: LONGEST_SECONDS,
            rejoin_seconds=REJOIN_SECONDS,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.is_dead:
            await self.delivery.close()
        await self.close()

    async def close(self) -> None:
        """Let go of the ledger, as the system does for a process that has ended."""
        self.kill()
        await in_real_time(self._stack.aclose())

    def kill(self) -> None:
        """Nothing that it does from now on reaches the ledger, the bank or a client."""
        self.is_dead = True

    async def through(self, method: str, work: Callable[[], Awaitable[T]]) -> T:
        """What a method of the ledger returns, if the gateway lives to see it."""
        if self.is_dead:
            raise asyncio.CancelledError
        if method in self.waits:
            await self.waits[method].wait()
        if method in self.down:
            raise StoreFailed("the disk is full")
        result = await in_real_time(work())
        if self.dies_after == method:
            self.kill()
        if self.is_dead:
            raise asyncio.CancelledError
        return result

    async def ask(self, call: UpstreamCall) -> CallOutcome:
        """What a client gets."""
        try:
            answer = await self.delivery.send_recorded(call)
        except HeadgateError as error:
            return CallOutcome(f"{error.code} {error.effect}", delivery_status=error.delivery_status)
        return CallOutcome(_words(answer), answer, answer.delivery_status)

    async def recover(self) -> int:
        """Do what a gateway does when it starts: how much it found."""
        return await self.delivery.recover(_tool)

    async def records(self) -> list[Operation]:
        """Everything that the ledger has, which is not even there before it is used."""
        if not (self._directory / LEDGER_NAME).exists():
            return []
        return await in_real_time(self._file.list_operations(list(OperationState)))

    async def find(self, op_id: str) -> Operation:
        """The record of that id, which is there."""
        found = await in_real_time(self._file.find(op_id))
        assert found is not None
        return found


def order(
    kind: ToolClass,
    name: str = "1",
    *,
    key: str = "k",
    retries_doubt: bool = False,
    timeout_seconds: float | None = None,
    caller: Identity = LOCAL_IDENTITY,
    arguments: bytes = b"",
    state: bytes = b"",
    target: Item | None = None,
) -> UpstreamCall:
    """One call of the bank's tool of that class."""
    target = target or item(kind)
    params = {"arguments": Raw(arguments or msgspec.json.encode({"order": name}))}
    if state:
        params["requestState"] = Raw(state)
    delivery_request = (
        DeliveryRequest(key=key, retries_doubt=retries_doubt, timeout_seconds=timeout_seconds)
        if key
        else None
    )
    return UpstreamCall(
        McpRequest(caller=caller, name=target.public_name, params=params, delivery_request=delivery_request),
        target,
    )


@contextmanager
def started(gateway: GatewayProcess) -> Iterator[GatewayProcess]:
    """The gateway, on a hurried loop of its own; tests of it are marked `on_gateway_loop`."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(gateway.__aenter__())
        gateway.run = runner.run
        try:
            yield gateway
        finally:
            runner.run(gateway.__aexit__(None, None, None))


def on_gateway_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that runs on the loop of its fixture `gateway`."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        gateway = named["gateway"]
        assert isinstance(gateway, GatewayProcess)
        gateway.run(test(*arguments, **named))

    return run


async def _tool(operation: Operation) -> Item:
    return Item(ItemKind.TOOLS, operation.server, operation.tool, operation.public_name)


class Numbered(msgspec.Struct):
    """What is looked at in a JSON-RPC error."""

    code: int


def _words(answer: McpResponse) -> str:
    again = "again " if answer.delivery_status is not None and answer.delivery_status.duplicate else ""
    if answer.error:
        return f"{again}{msgspec.json.decode(answer.error, type=Numbered).code}"
    if not isinstance(answer.result, bytes):
        return f"{again}answer"
    if b'"isError":true' in answer.result:
        return f"{again}isError"
    return f"{again}word" if b"carried out" in answer.result else f"{again}answer"


class CrashableLedger:
    """The real ledger, as long as its gateway lives."""

    def __init__(self, gateway: GatewayProcess, ledger: SqliteLedger) -> None:
        self._gateway = gateway
        self._ledger = ledger

    async def claim(self, intent: Intent) -> ClaimResult:
        return await self._gateway.through("claim", lambda: self._ledger.claim(intent))

    async def finish(self, op_id: str, fence: int, outcome: OperationOutcome) -> bool:
        return await self._gateway.through("finish", lambda: self._ledger.finish(op_id, fence, outcome))

    async def find(self, op_id: str) -> Operation | None:
        return await self._gateway.through("find", lambda: self._ledger.find(op_id))

    async def find_by_key(self, tenant: str, principal: str, key: str) -> Operation | None:
        return await self._gateway.through(
            "find_key", lambda: self._ledger.find_by_key(tenant, principal, key)
        )

    async def read_answer(self, op_id: str) -> McpResponse | None:
        return await self._gateway.through("answer", lambda: self._ledger.read_answer(op_id))

    async def list_orphans(self) -> list[Operation]:
        return await self._gateway.through("orphans", self._ledger.list_orphans)

    async def adopt(self, op_id: str, fence: int, lease_until: float) -> int | None:
        return await self._gateway.through("adopt", lambda: self._ledger.adopt(op_id, fence, lease_until))

    async def list_operations(self, states: Collection[OperationState], limit: int = 1000) -> list[Operation]:
        return await self._gateway.through("doubts", lambda: self._ledger.list_operations(states, limit))

    async def sweep(self) -> int:
        return await self._gateway.through("sweep", self._ledger.sweep)


class FreshDeliveries:
    """A delivery for each call, so that no breaker and no budget remembers the faults of another."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway

    def fresh(self) -> UpstreamDelivery:
        loop = asyncio.get_running_loop()
        return UpstreamDelivery(
            CrashableUpstream(self._gateway),
            self._gateway.delivery_policy,
            loop.time,
            _count,
            random=lambda: 0.5,
        )

    async def send_with_retry(self, call: UpstreamCall) -> McpResponse:
        return await self.fresh().send_with_retry(call)

    def is_ready(self, server: str) -> bool:
        return self._gateway.bank.is_ready(server)

    async def await_ready(self, server: str) -> None:
        await self._gateway.bank.await_ready(server)

    def sends_requests_during_calls(self, server: str) -> bool:
        return False


def _count(server: str, outcome: str, seconds: float) -> None:
    """Count nothing."""


class CrashableUpstream:
    """The way to the bank, as long as the gateway lives; the bank goes on without it."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway

    async def send_to_server(self, call: UpstreamCall) -> McpResponse:
        if self._gateway.is_dead:
            raise asyncio.CancelledError
        try:
            return await self._gateway.bank.send_to_server(self._heard(call))
        finally:
            if self._gateway.is_dead:
                raise asyncio.CancelledError

    def _heard(self, call: UpstreamCall) -> UpstreamCall:
        """With a late answer that a dead gateway does not hear."""
        delivery_options = call.delivery_options
        if delivery_options is None or delivery_options.on_late_response is None:
            return call
        hear = delivery_options.on_late_response

        def on_late(answer: McpResponse) -> None:
            if not self._gateway.is_dead:
                hear(answer)

        return msgspec.structs.replace(
            call, delivery_options=msgspec.structs.replace(delivery_options, on_late_response=on_late)
        )

    async def await_ready(self, server: str) -> None:
        await self._gateway.bank.await_ready(server)

    def is_ready(self, server: str) -> bool:
        return self._gateway.bank.is_ready(server)

    def sends_requests_during_calls(self, server: str) -> bool:
        return self._gateway.bank.sends_requests_during_calls(server)

    def honours_keys(self, server: str) -> bool:
        return self._gateway.bank.honours_keys(server)

    def longest_seconds(self, server: str) -> float:
        return self._gateway.bank.longest_seconds(server)

    async def subscribe(self, server: str, uri: str) -> McpResponse:
        return await self._gateway.bank.subscribe(server, uri)

    async def unsubscribe(self, server: str, uri: str) -> McpResponse:
        return await self._gateway.bank.unsubscribe(server, uri)
