"""Answers that arrive after their caller gave up, kept for a bounded time for the delivery record."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from headgate.domain.errors import HeadgateError
from headgate.domain.mcp_request import McpResponse
from headgate.upstream.transport import OutgoingRequest, SendAttempt, UpstreamSessionExpired

# What a server owes us on one connection; beyond that the oldest is forgotten.
MOST_LATE = 1000
# Each of these holds a socket, and a process has not many more than a thousand for everybody.
MOST_EXCHANGES = 100


class _AwaitedAnswer(msgspec.Struct, frozen=True):
    """Who takes the answer, and until when."""

    take: Callable[[McpResponse], None]
    until: float


class LateAnswers:
    """The numbers of requests on a shared connection that may still be answered."""

    def __init__(self) -> None:
        self._awaited: dict[int, _AwaitedAnswer] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    def __contains__(self, number: int) -> bool:
        return number in self._awaited

    def await_answer(self, number: int, outgoing: OutgoingRequest, started: float) -> float | None:
        """Listen for the answer of a request that was given up, if anybody wants it; says until when."""
        if outgoing.on_late is None:
            return None
        if len(self._awaited) >= MOST_LATE:
            del self._awaited[next(iter(self._awaited))]
        until = started + outgoing.late_seconds
        self._awaited[number] = _AwaitedAnswer(outgoing.on_late, until)
        return until

    def pop_handler(self, number: int) -> Callable[[McpResponse], None] | None:
        """Who wants the answer that has come; nobody is told twice."""
        awaited = self._awaited.pop(number, None)
        return awaited.take if awaited is not None else None

    def expire(self, now: float) -> float | None:
        """Forget those that took too long; says when to look again."""
        self._awaited = {number: one for number, one in self._awaited.items() if one.until > now}
        return min((one.until for one in self._awaited.values()), default=None)

    def clear(self) -> None:
        """Nothing will come any more."""
        self._awaited.clear()


class LateExchanges:
    """Exchanges of one connection that go on after those who waited for them have left."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._given_up: dict[asyncio.Task[McpResponse], asyncio.TimerHandle] = {}
        self._sent: dict[asyncio.Task[McpResponse], SendAttempt] = {}

    def __len__(self) -> int:
        return len(self._given_up)

    async def run_past_caller(
        self, exchange: Coroutine[Any, Any, McpResponse], sending: SendAttempt
    ) -> McpResponse:
        """The answer; whoever is cancelled meanwhile leaves the exchange to whoever takes late answers.

        An exchange that has not begun by then never does.
        """
        outgoing = sending.outgoing
        task = self._loop.create_task(exchange, name=f"exchange {outgoing.what}")
        started = self._loop.time()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not sending.begun:
                task.cancel()
            elif not task.cancelled():
                self._sent[task] = sending
                self._keep_running(task, outgoing, started + outgoing.late_seconds)
            raise

    def drop(self, sending: SendAttempt) -> None:
        """End an exchange that goes on: where closing the response is how the server is told to stop."""
        for task, sent in list(self._sent.items()):
            if sent is sending:
                task.cancel()

    def _keep_running(self, task: asyncio.Task[McpResponse], outgoing: OutgoingRequest, until: float) -> None:
        take = outgoing.on_late
        assert take is not None
        if len(self._given_up) >= MOST_EXCHANGES:
            oldest = next(iter(self._given_up))
            self._given_up.pop(oldest).cancel()
            oldest.cancel()
        # To cancel it closes its response, which gives the socket back.
        self._given_up[task] = self._loop.call_at(until, task.cancel)
        task.add_done_callback(lambda _: self._ended(task, take))

    def _ended(self, task: asyncio.Task[McpResponse], take: Callable[[McpResponse], None]) -> None:
        self._sent.pop(task, None)
        timer = self._given_up.pop(task, None)
        if timer is not None:
            timer.cancel()
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            take(task.result())
        elif not isinstance(error, HeadgateError | UpstreamSessionExpired):
            raise error

    def close(self) -> None:
        """The connection is about to end: nobody listens any more."""
        for task in list(self._given_up):
            task.cancel()
