"""An upstream and a clock that do what a test tells them."""

import asyncio

from msgspec import Raw

from headgate.delivery.delivery import Delivery
from headgate.domain.call import LOCAL, Answer, Call, Request
from headgate.domain.errors import HeadgateError
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from tests.waiting import eventually

WAIT_SECONDS = 5.0

DONE = Answer(b'{"content":[]}')
SUBSCRIBED = Answer(b"{}")
WRONG = Answer(error=b'{"code":-32602,"message":"no"}')


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

    def __init__(self, *script: Answer | BaseException) -> None:
        self.script = list(script)
        self.received: list[Call] = []
        # Cleared, calls wait until it is set.
        self.open = asyncio.Event()
        self.open.set()
        # The servers that somebody waited for, and why none of them becomes ready.
        self.awaited: list[str] = []
        self.absence: HeadgateError | None = None
        # The servers that ask while a call is under way.
        self.holding: set[str] = set()
        self.subscriptions: list[tuple[str, str, str]] = []

    def holds_questions(self, server: str) -> bool:
        return server in self.holding

    async def subscribe(self, server: str, uri: str) -> Answer:
        self.subscriptions.append(("subscribe", server, uri))
        return SUBSCRIBED

    async def unsubscribe(self, server: str, uri: str) -> Answer:
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

    async def send(self, call: Call) -> Answer:
        self.received.append(call)
        outcome = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        await self.open.wait()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class Desk:
    """A delivery with its upstream, its clock and what it counted."""

    def __init__(self, *script: Answer | BaseException) -> None:
        self.clock = Clock()
        self.upstream = ScriptedUpstream(*script)
        self.counted: list[tuple[str, str, float]] = []
        self.delivery = Delivery(self.upstream, self.clock, self._count)

    def _count(self, server: str, outcome: str, seconds: float) -> None:
        self.counted.append((server, outcome, seconds))

    @property
    def outcomes(self) -> list[str]:
        return [outcome for _, outcome, _ in self.counted]

    async def deliver(self, server: str = "bank") -> Answer:
        return await self.delivery.deliver(call(server))


def call(server: str = "bank") -> Call:
    """One call of a tool of that server."""
    tool = Item(Kind.TOOLS, server, "pay", f"{server}_pay")
    return Call(Request(caller=LOCAL, name=tool.public_name, params={"arguments": Raw(b"{}")}), tool)
