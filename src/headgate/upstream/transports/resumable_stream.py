"""Event streams of streamable HTTP, resumed by Last-Event-ID when they end or drop early."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from headgate.domain.mcp_request import McpResponse
from headgate.event_loop import TimeSlice
from headgate.upstream.http.http1_client import ConnectionDropped, HttpClientResponse
from headgate.upstream.http.http_connector import ConnectFailed
from headgate.upstream.http.http_response import ContentDecodingFailed, StreamPosition, stream_events
from headgate.upstream.message_assembly import MessageAssembler, MessageLimits, MessageTooLarge

# Given the data of one event; what it returns is what the stream was read for.
EventHandler = Callable[[MessageAssembler], McpResponse | None]

_DEFAULT_SECONDS = 1.0
# While somebody waits for an answer: a server that says "at once" is not asked in a tight loop, and one that
# has nothing to say is asked less and less often.
_LEAST_SECONDS = 0.1
_MOST_SECONDS = 30.0
# The stream on which a server speaks unasked is reopened for as long as the session lasts.
_LEAST_UNASKED_SECONDS = 1.0
_MOST_UNASKED_SECONDS = 5.0
# The server may not have noticed yet that the old stream is gone (409), or be busy; other refusals are final.
_RETRYABLE_STATUSES = (409, 429, 500, 502, 503, 504)


class StreamRefused(Exception):
    """The server does not open the stream."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(f"it answered with {what}")
        self.status = status


def pause_seconds(position: StreamPosition, fruitless: int, least: float, most: float) -> float:
    """How long to wait before a stream is opened again, after so many attempts in a row brought nothing.

    Never less than the server said.
    """
    said = position.retry_seconds
    first = max(_DEFAULT_SECONDS if said is None else said, least)
    # A large power of two is a float that nobody can add up.
    return min(first * 2.0 ** min(fruitless, 16), max(first, most))


async def read_stream(
    response: HttpClientResponse, limits: MessageLimits, position: StreamPosition, take: EventHandler
) -> McpResponse | None:
    """Hand on each event until `take` has its answer; None if the stream ends before.

    Raises Dropped, TooLarge or Packed, and what `take` raises.
    """
    time_slice = TimeSlice()
    async with aclosing(stream_events(response, limits, position)) as stream:
        async for _, data in stream:
            answer = take(data)
            if answer is not None:
                return answer
            await time_slice.yield_if_expired()
    return None


class ResumableStreams:
    """The streams of one session that are opened by GET; they end with it."""

    def __init__(
        self,
        get: Callable[[StreamPosition], Awaitable[HttpClientResponse]],
        limits: MessageLimits,
        lost: asyncio.Future[str],
        count_resumed: Callable[[], None],
    ) -> None:
        """`get` asks for what follows a place; it raises NotConnected or Dropped."""
        self._get = get
        self._limits = limits
        self._lost = lost
        # Set when it is known whether there is a stream on which the server speaks unasked.
        self.first_attempt_done = asyncio.Event()
        self._count_resumed = count_resumed

    async def resume(self, position: StreamPosition, take: EventHandler) -> McpResponse:
        """Go on with a stream until the answer is in it; whoever waits for it bounds the time.

        Raises StreamRefused, TooLarge, Packed, what `take` raises, and Dropped when the session has ended.
        """
        fruitless = 0
        while True:
            await self._pause(pause_seconds(position, fruitless, _LEAST_SECONDS, _MOST_SECONDS))
            if self._lost.done():
                raise ConnectionDropped(self._lost.result())
            position.moved = False
            answer = await self._attempt(position, take)
            if answer is not None:
                return answer
            fruitless = 0 if position.moved else fruitless + 1

    async def _attempt(self, position: StreamPosition, take: EventHandler) -> McpResponse | None:
        try:
            response = await self._get(position)
            try:
                if response.status in _RETRYABLE_STATUSES:
                    return None
                self._check(response, position)
                return await read_stream(response, self._limits, position, take)
            finally:
                response.close()
        except (ConnectFailed, ConnectionDropped):
            return None

    def _check(self, response: HttpClientResponse, position: StreamPosition) -> None:
        """Whether it is a stream."""
        kind = response.headers.get(b"content-type", b"")
        if response.status != 200:
            raise StreamRefused(response.status, f"HTTP {response.status}")
        if not kind.lower().startswith(b"text/event-stream"):
            raise StreamRefused(200, kind.decode("latin-1")[:80] or "no content type")
        if position.id:
            self._count_resumed()

    async def listen(self, take: EventHandler) -> None:
        """Keep a stream open on which the server speaks unasked, for as long as the session lasts.

        Raises StreamRefused when there is no such stream, and NotConnected.
        """
        position, opened, fruitless = StreamPosition(), False, 0
        while not self._lost.done():
            position.moved = False
            try:
                opened = await self._listen_once(position, take) or opened
            except StreamRefused as refused:
                if not (opened and refused.status in _RETRYABLE_STATUSES):
                    _reset_position(position, refused)
                    continue
            fruitless = 0 if position.moved else fruitless
            await self._pause(
                pause_seconds(position, fruitless, _LEAST_UNASKED_SECONDS, _MOST_UNASKED_SECONDS)
            )
            fruitless += 1

    async def _listen_once(self, position: StreamPosition, take: EventHandler) -> bool:
        """Whether the stream could be opened."""
        try:
            response = await self._get(position)
        except ConnectionDropped:
            return False
        finally:
            self.first_attempt_done.set()
        try:
            self._check(response, position)
            await read_stream(response, self._limits, position, take)
        except ConnectionDropped:
            return True
        except (MessageTooLarge, ContentDecodingFailed):
            # Whatever it was, it would come again.
            position.id = b""
        finally:
            response.close()
        return True

    async def _pause(self, seconds: float) -> None:
        await asyncio.wait({self._lost}, timeout=seconds)


def _reset_position(position: StreamPosition, refused: StreamRefused) -> None:
    """A server may know the session and not the place; one that refuses without a place has no stream."""
    if not position.id or refused.status == 404:
        raise refused
    position.id = b""
