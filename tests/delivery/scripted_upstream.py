"""An upstream and a clock that do what a test tells them."""

import asyncio

from msgspec import Raw

from headgate.delivery.delivery_policy import DeliveryPolicy
from headgate.delivery.upstream_delivery import UpstreamDelivery
from headgate.domain.delivery_request import DeliveryRequest
from headgate.domain.errors import HeadgateError
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import DeliveryOptions, McpRequest, McpResponse, UpstreamCall
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.domain.upstream_policy import DEFAULT_UPSTREAM_POLICY, RetrySettings, UpstreamPolicy
from testkit.waiting import eventually

WAIT_SECONDS = 5.0

DONE = McpResponse(b'{"content":[]}')
SUBSCRIBED = McpResponse(b"{}")
WRONG = McpResponse(error=b'{"code":-32602,"message":"no"}')
# Where a test is about something else than second attempts.
ONE_ATTEMPT = UpstreamPolicy(retry_settings=RetrySettings(attempts=1))


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def forward(self, seconds: float) -> None:
        self.seconds += seconds


class ScriptedUpstream:
    """Answers each call with what its script says next, and with the last thing again and again."""

    def __init__(self, *script: McpResponse | BaseException) -> None:
        self.script = list(script)
        self.received: list[UpstreamCall] = []
        # Cleared, calls wait until it is set.
        self.open = asyncio.Event()
        self.open.set()
        # The servers that were waited for, and why none of them becomes ready.
        self.awaited: list[str] = []
        self.absence: HeadgateError | None = None
        # The servers that ask while a call is under way, and those that honour keys.
        self.holding: set[str] = set()
        self.honouring: set[str] = set()
        self.longest = 900.0
        self.subscriptions: list[tuple[str, str, str]] = []

    def is_ready(self, server: str) -> bool:
        return self.open.is_set()

    def sends_requests_during_calls(self, server: str) -> bool:
        return server in self.holding

    def honours_keys(self, server: str) -> bool:
        return server in self.honouring

    def longest_seconds(self, server: str) -> float:
        return self.longest

    async def subscribe(self, server: str, uri: str) -> McpResponse:
        self.subscriptions.append(("subscribe", server, uri))
        return SUBSCRIBED

    async def unsubscribe(self, server: str, uri: str) -> McpResponse:
        self.subscriptions.append(("unsubscribe", server, uri))
        return SUBSCRIBED

    async def await_ready(self, server: str) -> None:
        self.awaited.append(server)
        await self.open.wait()
        if self.absence is not None:
            raise self.absence

    async def reached(self, calls: int) -> None:
        """Wait until so many calls have arrived."""
        await eventually(lambda: len(self.received) >= calls, WAIT_SECONDS, f"{calls} calls")

    async def send_to_server(self, call: UpstreamCall) -> McpResponse:
        self.received.append(call)
        outcome = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        await self.open.wait()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class DeliveryHarness:
    """A delivery with its upstream, its clock and what it counted; waits are over at once, unless held."""

    def __init__(
        self, *script: McpResponse | BaseException, policy: UpstreamPolicy = DEFAULT_UPSTREAM_POLICY
    ) -> None:
        self.clock = Clock()
        self.upstream = ScriptedUpstream(*script)
        self.counted: list[tuple[str, str, float]] = []
        self.waits: list[float] = []
        # Cleared, those who wait before another attempt go on waiting until it is set.
        self.awake = asyncio.Event()
        self.awake.set()
        self.delivery_policy = DeliveryPolicy([spec("bank", policy)], self.upstream.honours_keys)
        self.delivery = UpstreamDelivery(
            self.upstream,
            self.delivery_policy,
            self.clock,
            self._count,
            sleep=self._sleep,
            random=lambda: 0.5,
        )

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await self.awake.wait()
        self.clock.forward(seconds)

    def _count(self, server: str, outcome: str, seconds: float) -> None:
        self.counted.append((server, outcome, seconds))

    @property
    def outcomes(self) -> list[str]:
        return [outcome for _, outcome, _ in self.counted]

    async def deliver(self, server: str = "bank") -> McpResponse:
        return await self.delivery.send_with_retry(call(server))

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight or queued."""
        return all(
            not bulkhead.in_flight and not bulkhead.queued for bulkhead in self.delivery.stats().values()
        )


def spec(name: str, policy: UpstreamPolicy) -> ServerSpec:
    """A server of that name, whose calls are carried with that care."""
    return ServerSpec(name=name, transport=TransportType.STDIO, command="bank", policy=policy)


def call(
    server: str = "bank",
    tool: str = "pay",
    *,
    arguments: bytes = b"{}",
    method: str = "tools/call",
    definition: bytes = b"",
    delivery_request: DeliveryRequest | None = None,
    delivery_options: DeliveryOptions | None = None,
) -> UpstreamCall:
    """One call of a tool of that server."""
    item = Item(ItemKind.TOOLS, server, tool, f"{server}_{tool}", definition)
    params = {"arguments": Raw(arguments)}
    request = McpRequest(
        caller=LOCAL_IDENTITY,
        method=method,
        name=item.public_name,
        params=params,
        delivery_request=delivery_request,
    )
    return UpstreamCall(request, item, delivery_options)
