"""An upstream that records what was carried out, and how often, whatever the callers got."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from enum import StrEnum
from functools import partial

import msgspec

from headgate.domain.errors import InvalidUpstreamResponse, UpstreamLost, UpstreamTimeout, UpstreamUnreachable
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpResponse, UpstreamCall
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.domain.upstream_policy import Probe, RetrySettings, ToolClass, ToolSafety, UpstreamPolicy
from headgate.upstream.errors import UpstreamRateLimited
from testkit.waiting import eventually
from tests.delivery.scripted_upstream import WAIT_SECONDS

BANK = "bank"
# One attempt, one call in all, and how long the bank takes after the last caller has left.
ATTEMPT_SECONDS = 60.0
LONGEST_SECONDS = 150.0
LATE_SECONDS = 30.0
SETTLE_SECONDS = 1.0

TOOLS = {
    ToolClass.READ: "balance",
    ToolClass.IDEMPOTENT: "set_limit",
    ToolClass.KEYED: "transfer",
    ToolClass.PROBEABLE: "pay",
    ToolClass.UNSAFE: "charge",
}
_PROBE_TOOL = "was_paid"

BANK_CARE = UpstreamPolicy(
    tools={
        TOOLS[ToolClass.READ]: ToolSafety(kind=ToolClass.READ),
        TOOLS[ToolClass.IDEMPOTENT]: ToolSafety(kind=ToolClass.IDEMPOTENT),
        TOOLS[ToolClass.KEYED]: ToolSafety(key_argument="key"),
        TOOLS[ToolClass.PROBEABLE]: ToolSafety(
            probe=Probe(
                tool=_PROBE_TOOL,
                arguments=b'{"operation":"$op_id"}',
                happened="paid",
                settle_seconds=SETTLE_SECONDS,
            )
        ),
    },
    retry_settings=RetrySettings(attempts=3, base_seconds=0.2, longest_seconds=5.0),
)
SPEC = ServerSpec(name=BANK, transport=TransportType.STDIO, command="bank", policy=BANK_CARE)


ERROR_RESULT = McpResponse(b'{"content":[{"type":"text","text":"no money"}],"isError":true}')
INTERNAL = McpResponse(error=b'{"code":-32603,"message":"it broke"}')


class Fault(StrEnum):
    """What goes wrong with the next call that is sent."""

    FINE = "nothing"
    REFUSED = "connect refused"
    BAD_PARAMS = "rejected with -32602"
    BUSY = "rejected with HTTP 429"
    LOST_BEFORE = "lost before execution"
    LOST_AFTER = "lost after execution"
    TIMEOUT_NEVER = "timeout, never executed"
    TIMEOUT_LATE = "timeout, executed later, late answer"
    TIMEOUT_SILENT = "timeout, executed later, no answer"
    GARBLED = "answer garbled"
    ERROR_RESULT = "answer is isError"
    INTERNAL = "answer is -32603"
    # Until it is released: before the first byte, before the execution, and after it.
    HELD_UNSENT = "held before it is sent"
    HELD_BEFORE = "held before execution"
    HELD_AFTER = "held after execution"


_DEFINITE = {Fault.ERROR_RESULT: ERROR_RESULT, Fault.INTERNAL: INTERNAL}


def item(kind: ToolClass, server: str = BANK) -> Item:
    """The bank's tool of that class."""
    return Item(ItemKind.TOOLS, server, TOOLS[kind], f"{server}_{TOOLS[kind]}")


class Bank:
    """Carries orders out, and fails as scripted."""

    def __init__(self) -> None:
        # How often each order was carried out, in all and for each operation, and with which keys it came.
        self.runs: Counter[str] = Counter()
        self.runs_for: Counter[str] = Counter()
        self.keys: dict[str, set[str]] = {}
        # Every call that reached it, and those that it gave up because the gateway cancelled them.
        self.sent = 0
        self.cancelled = 0
        self.faults: deque[Fault] = deque()
        # Set when held calls shall go on.
        self.released = asyncio.Event()
        # How many calls are held now, and whether they end when they are released.
        self.held = 0
        self.is_gone = False
        # What the next answers are instead of the bank's own.
        self.answers: deque[McpResponse] = deque()
        # What the answers of the next probes wait for.
        self.probes: deque[asyncio.Event] = deque()
        # Whether what is carried out late waits until a test does it.
        self.parks = False
        self.parked: list[Callable[[], None]] = []
        # Set while it is still starting, and how many wait for it.
        self.is_away = asyncio.Event()
        self.awaited = 0
        self._by_key: dict[str, McpResponse] = {}
        self._numbers = 0
        self._late: set[asyncio.Task[None]] = set()

    @property
    def late(self) -> int:
        """How many calls will be carried out although no caller waits for them."""
        return len(self._late)

    async def holds(self, calls: int = 1) -> None:
        """Wait until so many calls are held."""
        await eventually(lambda: self.held == calls, WAIT_SECONDS, f"{calls} calls are held")

    def is_ready(self, server: str) -> bool:
        return not self.is_away.is_set()

    def sends_requests_during_calls(self, server: str) -> bool:
        return False

    def honours_keys(self, server: str) -> bool:
        return False

    def longest_seconds(self, server: str) -> float:
        return LONGEST_SECONDS

    async def await_ready(self, server: str) -> None:
        self.awaited += 1
        while self.is_away.is_set():
            await asyncio.sleep(0.1)

    async def subscribe(self, server: str, uri: str) -> McpResponse:
        return McpResponse(b"{}")

    async def unsubscribe(self, server: str, uri: str) -> McpResponse:
        return McpResponse(b"{}")

    async def send_to_server(self, call: UpstreamCall) -> McpResponse:
        if call.item.name == _PROBE_TOOL:
            return await self._probed(call)
        fault = self.faults.popleft() if self.faults else Fault.FINE
        if fault is Fault.REFUSED:
            raise UpstreamUnreachable(BANK, "nobody listens")
        if fault is Fault.HELD_UNSENT:
            await self._hold()
        if call.delivery_options is not None and call.delivery_options.on_send is not None:
            call.delivery_options.on_send()
        self.sent += 1
        try:
            return await self._work(call, fault)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _work(self, call: UpstreamCall, fault: Fault) -> McpResponse:
        match fault:
            case Fault.BAD_PARAMS:
                return McpResponse(error=b'{"code":-32602,"message":"no such order"}')
            case Fault.BUSY:
                raise UpstreamRateLimited(BANK, 1.0)
            case Fault.LOST_BEFORE:
                raise UpstreamLost(BANK, call.item.name, "it ended")
            case Fault.TIMEOUT_NEVER | Fault.TIMEOUT_LATE | Fault.TIMEOUT_SILENT:
                if fault is not Fault.TIMEOUT_NEVER:
                    self._carry_out_late(call, tells=fault is Fault.TIMEOUT_LATE)
                await asyncio.sleep(_patience(call))
                raise UpstreamTimeout(BANK, call.item.name, ATTEMPT_SECONDS)
            case Fault.HELD_BEFORE:
                await self._hold()
        answer = self.carry_out(call, _DEFINITE.get(fault))
        match fault:
            case Fault.LOST_AFTER:
                raise UpstreamLost(BANK, call.item.name, "it ended")
            case Fault.GARBLED:
                raise InvalidUpstreamResponse(BANK, call.item.name, "nonsense")
            case Fault.HELD_AFTER:
                await self._hold()
        return answer

    async def _hold(self) -> None:
        self.held += 1
        try:
            await self.released.wait()
        finally:
            self.held -= 1
        if self.is_gone:
            raise UpstreamLost(BANK, "a call", "it ended")

    def carry_out(self, call: UpstreamCall, answer: McpResponse | None = None) -> McpResponse:
        """Do it, unless it is known by its key; each time has an answer of its own."""
        arguments = msgspec.json.decode(bytes(call.request.params["arguments"]))
        order, key = arguments["order"], arguments.get("key", "")
        if key in self._by_key:
            return self._by_key[key]
        self.runs[order] += 1
        if call.delivery_options is not None:
            self.runs_for[call.delivery_options.key] += 1
        self._numbers += 1
        if answer is None:
            answer = self.answers.popleft() if self.answers else _receipt(self._numbers)
        if key:
            self.keys.setdefault(order, set()).add(key)
            self._by_key[key] = answer
        return answer

    def _carry_out_late(self, call: UpstreamCall, *, tells: bool) -> None:
        if self.parks:
            self.parked.append(partial(self._finally, call, tells=tells))
            return
        task = asyncio.get_running_loop().create_task(self._later(call, tells=tells))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _later(self, call: UpstreamCall, *, tells: bool) -> None:
        await asyncio.sleep(_patience(call) + LATE_SECONDS)
        self._finally(call, tells=tells)

    def _finally(self, call: UpstreamCall, *, tells: bool) -> None:
        answer = self.carry_out(call)
        if tells and call.delivery_options is not None and call.delivery_options.on_late_response is not None:
            call.delivery_options.on_late_response(answer)

    async def _probed(self, call: UpstreamCall) -> McpResponse:
        operation = msgspec.json.decode(bytes(call.request.params["arguments"]))["operation"]
        said = {"content": [], "structuredContent": {"paid": self.runs_for[operation] > 0}}
        if self.probes:
            await self.probes.popleft().wait()
        return McpResponse(msgspec.json.encode(said))


def _patience(call: UpstreamCall) -> float:
    """How long the gateway waits for one attempt."""
    deadline = call.delivery_options.deadline if call.delivery_options is not None else None
    if deadline is None:
        return ATTEMPT_SECONDS
    return min(ATTEMPT_SECONDS, max(0.0, deadline - asyncio.get_running_loop().time()))


def _receipt(number: int) -> McpResponse:
    return McpResponse(msgspec.json.encode({"content": [{"type": "text", "text": f"receipt {number}"}]}))
