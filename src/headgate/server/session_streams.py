"""What one client gets outside of its replies: notifications, requests, and the streams that carry them."""

import asyncio
import secrets
from collections.abc import Iterable
from typing import Protocol

import msgspec

from headgate.domain.item import ItemKind
from headgate.domain.mcp_request import McpResponse
from headgate.protocol.jsonrpc import Envelope, encode_notification, encode_request
from headgate.protocol.jsonrpc_errors import INTERNAL_ERROR
from headgate.protocol.rmcp import without_rmcp_meta
from headgate.server.event_streams import EventStore, EventStream, ReplayBuffer

# From this version on a stream begins with an event id, so that it can be resumed from the start.
_PRIMING_EVENT_SINCE = "2025-11-25"
# Calls that continue without a connection, until the client resumes their streams.
_MAX_DETACHED = 64
LISTED_CAPABILITIES = tuple(dict.fromkeys(kind.capability for kind in ItemKind))
# Bounds the memory that requests of servers to one client take.
_MAX_PENDING = 100
# How long a request waits for a client without an open stream; most reconnect within two seconds.
_REACH_SECONDS = 10.0
_SESSION_ENDED = "The client has ended its session"


class MessageSender(Protocol):
    """Carries messages to one client."""

    def try_send(self, message: bytes) -> bool:
        """Send it if the client is connected; whether it was sent."""

    def retain_or_drop(self, message: bytes) -> None:
        """Keep it if the client may fetch it later, otherwise drop it."""


class ClientRequests:
    """Requests to one client that it has not answered yet."""

    def __init__(self, reach_seconds: float = _REACH_SECONDS) -> None:
        self._reach_seconds = reach_seconds
        # Part of every id, so that a late response to an earlier gateway process matches no request.
        self._series = secrets.token_hex(4).encode()
        self._sent_count = 0
        self._pending: dict[bytes, asyncio.Future[McpResponse]] = {}
        self._stream_opened = asyncio.Event()
        self._closed = False
        # Requests that wait for the client to open a stream.
        self.unsent = 0

    def __len__(self) -> int:
        return len(self._pending)

    async def send_request(self, sender: MessageSender, method: str, params: bytes) -> McpResponse:
        """The client's response, or an error with the reason why there is none."""
        if self._closed:
            return error_answer(_SESSION_ENDED)
        if len(self._pending) >= _MAX_PENDING:
            return error_answer(f"The client has {_MAX_PENDING} questions to answer already")
        self._sent_count += 1
        id = b'"hg-%s-%d"' % (self._series, self._sent_count)
        answer = self._pending[id] = asyncio.get_running_loop().create_future()
        sent = False
        try:
            sent = await self._send_when_connected(sender, encode_request(id, method, params))
            return await answer if sent else self._not_connected_error()
        except asyncio.CancelledError:
            if sent:
                # The server has given up, so the client should drop the request.
                sender.try_send(encode_notification("notifications/cancelled", b'{"requestId":' + id + b"}"))
            raise
        finally:
            del self._pending[id]

    async def _send_when_connected(self, sender: MessageSender, message: bytes) -> bool:
        """Whether the request could be sent, now or soon."""
        if sender.try_send(message):
            return True
        self.unsent += 1
        try:
            async with asyncio.timeout(self._reach_seconds):
                while not self._closed:
                    self._stream_opened.clear()
                    await self._stream_opened.wait()
                    if sender.try_send(message):
                        return True
        except TimeoutError:
            pass
        finally:
            self.unsent -= 1
        return False

    def _not_connected_error(self) -> McpResponse:
        if self._closed:
            return error_answer(_SESSION_ENDED)
        return error_answer(f"The client opened no stream to be asked on within {self._reach_seconds:g} s")

    def on_stream_opened(self) -> None:
        self._stream_opened.set()

    def on_response(self, envelope: Envelope) -> None:
        """Complete the request that the response belongs to; unknown ids are ignored."""
        answer = self._pending.get(bytes(envelope.id))
        if answer is not None and not answer.done():
            answer.set_result(_answer_of_response(bytes(envelope.result), bytes(envelope.error)))

    def close(self) -> None:
        """Answer all pending requests with an error, because the session has ended."""
        self._closed = True
        self._stream_opened.set()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_result(error_answer(_SESSION_ENDED))


def _answer_of_response(result: bytes, error: bytes) -> McpResponse:
    """The response as the server gets it: without rmcp metadata, or an error if it is malformed."""
    if (error or result)[:1] != b"{":
        return error_answer("The client's answer is neither a result nor an error of the protocol")
    return McpResponse(error=error) if error else McpResponse(without_rmcp_meta(result))


def error_answer(reason: str) -> McpResponse:
    return McpResponse(error=msgspec.json.encode({"code": INTERNAL_ERROR, "message": reason}))


class SessionChannel:
    """A client's channel, apart from the answers to its requests."""

    __slots__ = ("_client_requests", "_sender")

    def __init__(self, sender: MessageSender, client_requests: ClientRequests) -> None:
        self._sender = sender
        self._client_requests = client_requests

    def send_notification(self, method: str, params: bytes) -> None:
        message = encode_notification(method, params)
        if not self._sender.try_send(message):
            self._sender.retain_or_drop(message)

    async def send_request(self, method: str, params: bytes) -> McpResponse:
        return await self._client_requests.send_request(self._sender, method, params)


def list_changed_method(capability: str) -> str:
    """The method of the notification that the lists of a capability have changed."""
    return f"notifications/{capability}/list_changed"


class InFlightExchange(Protocol):
    """One request being answered."""

    @property
    def live(self) -> bool:
        """Whether the client is connected."""

    def send_before_reply(self, message: bytes) -> None:
        """Send a message before the reply."""

    def cancel(self) -> None:
        """Cancel the request."""


class SessionStreams:
    """The streams of one session."""

    def __init__(self, replay_buffer: ReplayBuffer) -> None:
        self.version = ""
        # By the ids of the requests, in the order in which they came.
        self.exchanges: dict[bytes, InFlightExchange] = {}
        # The standalone stream, once the client has opened one.
        self.standalone: EventStream | None = None
        self._replay_buffer = replay_buffer
        self._store: EventStore | None = None
        self._stale_lists: dict[str, None] = {}
        # Subscribed resources that the client has to be notified of.
        self._stale_resources: dict[str, None] = {}

    @property
    def live(self) -> bool:
        return self.standalone is not None and self.standalone.live

    def try_send(self, message: bytes) -> bool:
        """Send a message on the standalone stream, or with the newest request in flight."""
        if self.standalone is not None and self.standalone.live:
            self.standalone.add(message)
            return True
        for exchange in reversed(self.exchanges.values()):
            if exchange.live:
                exchange.send_before_reply(message)
                return True
        return False

    def retain_or_drop(self, message: bytes) -> None:
        if self.standalone is not None:
            self.standalone.add(message)

    def notify_list_changed(self, capability: str) -> None:
        """Notify the client of changed lists, now or once it opens a stream."""
        self.mark_lists_stale((capability,))
        self.flush_stale()

    def mark_lists_stale(self, capabilities: Iterable[str]) -> None:
        self._stale_lists.update(dict.fromkeys(capabilities))

    def mark_resource_stale(self, uri: str) -> None:
        """Notify the client of a changed resource, now or once it opens a stream."""
        self._stale_resources[uri] = None
        self.flush_stale()

    def flush_stale(self) -> None:
        if self.standalone is not None and self.live:
            for capability in self._stale_lists:
                self.standalone.add(encode_notification(list_changed_method(capability)))
            self._stale_lists.clear()
            for uri in self._stale_resources:
                params = msgspec.json.encode({"uri": uri})
                self.standalone.add(encode_notification("notifications/resources/updated", params))
            self._stale_resources.clear()

    def open_stream(self) -> EventStream:
        """A new stream that can be resumed."""
        if self._store is None:
            self._store = EventStore(self._replay_buffer)
        stream = self._store.open()
        if self.version >= _PRIMING_EVENT_SINCE:
            stream.prime()
        return stream

    def find_event(self, id: bytes) -> tuple[EventStream, int] | None:
        """The stream and position to resume from; None if they are not known any more."""
        found = self._store.find(id) if self._store is not None else None
        if found is None or (found[0].standalone and found[0] is not self.standalone):
            return None
        return found

    def open_standalone(self) -> EventStream:
        if self.standalone is not None:
            self.standalone.end()
        self.standalone = self.open_stream()
        self.standalone.standalone = True
        return self.standalone

    def discard_stream(self, stream: EventStream) -> None:
        if self._store is not None:
            self._store.discard_stream(stream)

    def may_run_detached(self) -> bool:
        """Whether one more call may continue without a connection."""
        return sum(not exchange.live for exchange in self.exchanges.values()) <= _MAX_DETACHED

    def expire(self) -> None:
        if self._store is not None:
            self._store.expire()

    def close(self) -> None:
        if self.standalone is not None:
            self.standalone.end()
        if self._store is not None:
            self._store.close()
        for exchange in list(self.exchanges.values()):
            if not exchange.live:
                exchange.cancel()
