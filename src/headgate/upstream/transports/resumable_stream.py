"""Exchanges of streamable HTTP that outlast a connection or a caller: event streams that are resumed by
Last-Event-ID, and responses that are read after their caller gave up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from headgate.domain.errors import HeadgateError
from headgate.domain.mcp_request import McpResponse
from headgate.event_loop import TimeSlice
from headgate.upstream.http.http1_client import ConnectionDropped, HttpClientResponse
from headgate.upstream.http.http_connector import ConnectFailed
from headgate.upstream.http.http_response import ContentDecodingFailed, StreamPosition, stream_events
from headgate.upstream.message_assembly import MessageAssembler, MessageLimits, MessageTooLarge
from headgate.upstream.transport import SendAttempt, UpstreamSessionExpired

# Given the data of one event; returns the answer that the stream is read for, or None.
EventHandler = Callable[[MessageAssembler], McpResponse | None]

_DEFAULT_SECONDS = 1.0
# Pauses while a caller waits for an answer: bounded below against a tight loop, and growing while the server
# sends nothing.
_LEAST_SECONDS = 0.1
_MOST_SECONDS = 30.0
# Pauses before the stream of server messages is reopened, for as long as the session lasts.
_LEAST_UNASKED_SECONDS = 1.0
_MOST_UNASKED_SECONDS = 5.0
# The server may not have noticed the end of the old stream (409), or be busy; other refusals are final.
_RETRYABLE_STATUSES = (409, 429, 500, 502, 503, 504)


class StreamRefused(Exception):
    """The server does not open the stream."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(f"it answered with {what}")
        self.status = status


def pause_seconds(position: StreamPosition, fruitless: int, least: float, most: float) -> float:
    """The pause after `fruitless` attempts without an event; never less than the server requires."""
    required = position.retry_seconds
    first = max(_DEFAULT_SECONDS if required is None else required, least)
    # A larger exponent overflows a float.
    return min(first * 2.0 ** min(fruitless, 16), max(first, most))


async def read_stream(
    response: HttpClientResponse, limits: MessageLimits, position: StreamPosition, handle: EventHandler
) -> McpResponse | None:
    """Pass each event to `handle` until it returns the answer; None if the stream ends before.

    Raises ConnectionDropped, MessageTooLarge or ContentDecodingFailed, and what `handle` raises.
    """
    time_slice = TimeSlice()
    async with aclosing(stream_events(response, limits, position)) as stream:
        async for _, data in stream:
            answer = handle(data)
            if answer is not None:
                return answer
            await time_slice.yield_if_expired()
    return None


@dataclass(eq=False)
class ResumableStreams:
    """The streams of one session that are opened by GET."""

    # Opens the stream after a position; raises ConnectFailed or ConnectionDropped.
    _get: Callable[[StreamPosition], Awaitable[HttpClientResponse]]
    _limits: MessageLimits
    _lost: asyncio.Future[str]
    _count_resumed: Callable[[], None]
    # Set when it is known whether the server has a stream of its own messages.
    first_attempt_done: asyncio.Event = field(default_factory=asyncio.Event)

    async def resume(self, position: StreamPosition, handle: EventHandler) -> McpResponse:
        """Resume a stream until the answer comes; the caller bounds the time.

        Raises StreamRefused, MessageTooLarge, ContentDecodingFailed or ConnectionDropped.
        """
        fruitless = 0
        while True:
            await self._pause(pause_seconds(position, fruitless, _LEAST_SECONDS, _MOST_SECONDS))
            if self._lost.done():
                raise ConnectionDropped(self._lost.result())
            position.moved = False
            answer = await self._attempt(position, handle)
            if answer is not None:
                return answer
            fruitless = 0 if position.moved else fruitless + 1

    async def _attempt(self, position: StreamPosition, handle: EventHandler) -> McpResponse | None:
        try:
            response = await self._get(position)
            try:
                if response.status in _RETRYABLE_STATUSES:
                    return None
                self._check(response, position)
                return await read_stream(response, self._limits, position, handle)
            finally:
                response.close()
        except (ConnectFailed, ConnectionDropped):
            return None

    def _check(self, response: HttpClientResponse, position: StreamPosition) -> None:
        """Raises StreamRefused for a response that is no stream."""
        kind = response.headers.get(b"content-type", b"")
        if response.status != 200:
            raise StreamRefused(response.status, f"HTTP {response.status}")
        if not kind.lower().startswith(b"text/event-stream"):
            raise StreamRefused(200, kind.decode("latin-1")[:80] or "no content type")
        if position.id:
            self._count_resumed()

    async def listen(self, handle: EventHandler) -> None:
        """Keep the stream of server messages open; raises StreamRefused without one, and ConnectFailed."""
        position, opened, fruitless = StreamPosition(), False, 0
        while not self._lost.done():
            position.moved = False
            try:
                opened = await self._listen_once(position, handle) or opened
            except StreamRefused as refused:
                if not (opened and refused.status in _RETRYABLE_STATUSES):
                    # Start over if the server does not know the position; without one it has no stream.
                    if not position.id or refused.status == 404:
                        raise
                    position.id = b""
                    continue
            fruitless = 0 if position.moved else fruitless
            seconds = pause_seconds(position, fruitless, _LEAST_UNASKED_SECONDS, _MOST_UNASKED_SECONDS)
            await self._pause(seconds)
            fruitless += 1

    async def _listen_once(self, position: StreamPosition, handle: EventHandler) -> bool:
        """Whether the stream was opened."""
        try:
            response = await self._get(position)
        except ConnectionDropped:
            return False
        finally:
            self.first_attempt_done.set()
        try:
            self._check(response, position)
            await read_stream(response, self._limits, position, handle)
        except ConnectionDropped:
            return True
        except (MessageTooLarge, ContentDecodingFailed):
            # Resuming would bring the same message again.
            position.id = b""
        finally:
            response.close()
        return True

    async def _pause(self, seconds: float) -> None:
        await asyncio.wait({self._lost}, timeout=seconds)


# Each of these holds a socket, and a process may have little more than a thousand.
MOST_EXCHANGES = 100


class LateExchanges:
    """HTTP exchanges that go on after their callers gave up, until their answers are recorded."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._given_up: dict[asyncio.Task[McpResponse], tuple[asyncio.TimerHandle, SendAttempt]] = {}

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
                on_late = outgoing.on_late
                assert on_late is not None
                if len(self._given_up) >= MOST_EXCHANGES:
                    oldest = next(iter(self._given_up))
                    self._given_up.pop(oldest)[0].cancel()
                    oldest.cancel()
                # Cancelling it closes its response, which frees the socket.
                timer = self._loop.call_at(started + outgoing.late_seconds, task.cancel)
                self._given_up[task] = timer, sending
                task.add_done_callback(lambda _: self._ended(task, on_late))
            raise

    def drop(self, sending: SendAttempt) -> None:
        """End an exchange that goes on, in the era in which closing the response cancels the request."""
        for task, (_, sent) in list(self._given_up.items()):
            if sent is sending:
                task.cancel()

    def _ended(self, task: asyncio.Task[McpResponse], on_late: Callable[[McpResponse], None]) -> None:
        if task in self._given_up:
            self._given_up.pop(task)[0].cancel()
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            on_late(task.result())
        elif not isinstance(error, HeadgateError | UpstreamSessionExpired):
            raise error

    def close(self) -> None:
        for task in list(self._given_up):
            task.cancel()
