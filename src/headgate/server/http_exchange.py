"""One MCP request answered over HTTP, as JSON or as an event stream, with keep-alive pings for long ones."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from headgate.domain.mcp_request import McpResponse
from headgate.protocol.jsonrpc import encode_notification
from headgate.server.event_streams import QUIET_SECONDS, EventStream
from headgate.server.http_request import HttpRequest
from headgate.server.reply import Reply
from headgate.server.session_streams import error_answer
from headgate.server.sessions import HttpSession

# From this version on, a server may end a stream before the answer and have the client come back for it.
_RESUMABLE_SINCE = "2025-11-25"


class HttpExchange:
    """The response to one request; with a session it can be resumed after the connection is lost."""

    __slots__ = ("_done", "_http_request", "_session", "_stream", "_writer_task", "last_activity")

    def __init__(self, http_request: HttpRequest, now: float, session: HttpSession | None = None) -> None:
        self._http_request = http_request
        self._session = session
        self._stream: EventStream | None = None
        self._writer_task: asyncio.Task[None] | None = None
        self._done = False
        self.last_activity = now

    @property
    def live(self) -> bool:
        """Whether the answer is still to come and the client is there for it."""
        if self._done:
            return False
        return not self._http_request.disconnected if self._stream is None else self._stream.live

    @property
    def streaming(self) -> bool:
        return self._stream is not None

    # The channel of this request.

    def send_notification(self, method: str, params: bytes) -> None:
        self.send_before_reply(encode_notification(method, params))

    async def send_request(self, method: str, params: bytes) -> McpResponse:
        """The client's response to a request of the server; an error when it cannot be sent."""
        if self._session is None:
            return error_answer("The client speaks a version without questions of servers")
        return await self._session.client_requests.send_request(self, method, params)

    def try_send(self, message: bytes) -> bool:
        if self.live:
            self.send_before_reply(message)
            return True
        return self._session is not None and self._session.streams.try_send(message)

    def retain_or_drop(self, message: bytes) -> None:
        self.send_before_reply(message)

    def send_before_reply(self, message: bytes) -> None:
        if not self._done:
            self._open_stream().add(message)

    def ping(self) -> None:
        """Open the event stream, which then sends keep-alive comments by itself."""
        self._open_stream()

    def _open_stream(self) -> EventStream:
        if self._stream is None:
            if self._session is None:
                self._stream = EventStream(connection=self._http_request.outbound)
            else:
                self._stream = self._session.streams.open_stream()
                self._http_request.disconnect_callback = self._on_disconnected
            self._stream.reader = self._http_request
            writing = self._stream.write(self._http_request)
            self._writer_task = asyncio.get_running_loop().create_task(writing)
        return self._stream

    def _on_disconnected(self) -> bool:
        """Handle a lost connection; true if the call must end because its reply cannot be resumed."""
        if self._stream is None or self._session is None:
            return True
        self._stream.on_disconnected(self._http_request)
        return not self._stream.resumable or not self._session.streams.may_run_detached()

    def release_connection(self) -> None:
        """End the connection before the reply, as the server did, for a client that can resume the stream."""
        stream, session = self._stream, self._session
        if stream is not None and session is not None and session.version >= _RESUMABLE_SINCE:
            stream.detach_reader()

    # The end.

    async def finish(self, reply: Reply) -> None:
        """Send the reply, or keep it for a client that resumes the stream."""
        self._done = True
        if self._stream is not None and self._writer_task is not None:
            self._http_request.responding = True
            self._stream.finish(reply)
            await self._writer_task
            return
        if isinstance(reply.payload, bytes):
            self._http_request.send_reply(reply)
            return
        try:
            self._http_request.responding = True
            await self._http_request.send_reply_from_disk(reply)
        finally:
            reply.close()

    def cancel(self) -> None:
        if self._http_request.task is not None:
            self._http_request.task.cancel()

    def abandon(self) -> None:
        self._done = True
        if self._writer_task is not None:
            self._writer_task.cancel()
        if self._stream is None:
            return
        if self._session is None:
            self._stream.discard()
        else:
            self._session.streams.discard_stream(self._stream)


_KEEP_ALIVE_SECONDS = 5.0


class KeepAlive:
    """Pings every exchange that has been silent for long."""

    def __init__(self) -> None:
        self._exchanges: set[HttpExchange] = set()
        # Called at the beginning and at the end of each exchange.
        self.add: Callable[[HttpExchange], None] = self._exchanges.add
        self.remove: Callable[[HttpExchange], None] = self._exchanges.discard
        # The clock of the loop.
        self.now: Callable[[], float] = asyncio.get_running_loop().time

    def __len__(self) -> int:
        return len(self._exchanges)

    async def run(self, also: Callable[[], None]) -> None:
        """Ping silent exchanges and call `also`, every few seconds; never returns."""
        while True:
            await asyncio.sleep(_KEEP_ALIVE_SECONDS)
            now = self.now()
            for exchange in list(self._exchanges):
                if now - exchange.last_activity >= QUIET_SECONDS:
                    exchange.last_activity = now
                    exchange.ping()
            also()


@asynccontextmanager
async def running_keep_alive(also: Callable[[], None]) -> AsyncIterator[KeepAlive]:
    """Keep-alive for as long as the block lasts; `also` is called in every round."""
    keep_alive = KeepAlive()
    task = asyncio.create_task(keep_alive.run(also), name="keep-alive")
    try:
        yield keep_alive
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
