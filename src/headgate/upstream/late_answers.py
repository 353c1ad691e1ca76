"""Answers that arrive after their caller gave up, kept for a bounded time for the delivery record."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headgate.domain.errors import HeadgateError
from headgate.domain.mcp_request import McpResponse
from headgate.upstream.transport import OutgoingRequest, SendAttempt, UpstreamSessionExpired

# Of one connection; beyond that the oldest is dropped.
MOST_LATE = 1000
# Each of these holds a socket, and a process may have little more than a thousand.
MOST_EXCHANGES = 100


class LateAnswers:
    """The ids of requests on a shared connection that may still be answered."""

    def __init__(self) -> None:
        # The handler of each answer, and until when it is awaited.
        self._awaited: dict[bytes, tuple[Callable[[McpResponse], None], float]] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    def __contains__(self, id: bytes) -> bool:
        return id in self._awaited

    def await_answer(self, id: bytes, outgoing: OutgoingRequest, started: float) -> float | None:
        """Wait for the answer of an abandoned request that has a handler; returns until when."""
        if outgoing.on_late is None:
            return None
        if len(self._awaited) >= MOST_LATE:
            del self._awaited[next(iter(self._awaited))]
        until = started + outgoing.late_seconds
        self._awaited[id] = outgoing.on_late, until
        return until

    def pop_handler(self, id: bytes) -> Callable[[McpResponse], None] | None:
        """The handler of an answer that has come, for one use."""
        return self._awaited.pop(id, (None, 0.0))[0]

    def expire(self, now: float) -> float | None:
        """Remove those whose time is over; returns when the next one ends."""
        self._awaited = {id: awaited for id, awaited in self._awaited.items() if awaited[1] > now}
        return min((until for _, until in self._awaited.values()), default=None)

    def clear(self) -> None:
        self._awaited.clear()


class LateExchanges:
    """HTTP exchanges that go on after their callers gave up, until their answers are recorded."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._given_up: dict[asyncio.Task[McpResponse], asyncio.TimerHandle] = {}
        self._sent: dict[asyncio.Task[McpResponse], SendAttempt] = {}

    def __len__(self) -> int:
        return len(self._given_up)

    async def run_past_caller(
        self, exchange: Coroutine[Any, Any, McpResponse], sending: SendAttempt
    ) -> McpResponse:
        """The answer; an exchange that has begun goes on for `on_late` when the caller is cancelled."""
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
                until = started + outgoing.late_seconds
                on_late = outgoing.on_late
                assert on_late is not None
                if len(self._given_up) >= MOST_EXCHANGES:
                    oldest = next(iter(self._given_up))
                    self._given_up.pop(oldest).cancel()
                    oldest.cancel()
                # Cancelling it closes its response, which frees the socket.
                self._given_up[task] = self._loop.call_at(until, task.cancel)
                task.add_done_callback(lambda _: self._ended(task, on_late))
            raise

    def drop(self, sending: SendAttempt) -> None:
        """End an exchange that goes on, in the era in which closing the response cancels the request."""
        for task, sent in list(self._sent.items()):
            if sent is sending:
                task.cancel()

    def _ended(self, task: asyncio.Task[McpResponse], on_late: Callable[[McpResponse], None]) -> None:
        self._sent.pop(task, None)
        timer = self._given_up.pop(task, None)
        if timer is not None:
            timer.cancel()
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            on_late(task.result())
        elif not isinstance(error, HeadgateError | UpstreamSessionExpired):
            raise error

    def close(self) -> None:
        """Cancel every exchange: the connection ends."""
        for task in list(self._given_up):
            task.cancel()
