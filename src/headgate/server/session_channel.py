"""Notifications and requests to one client outside of its replies, and the responses that it owes."""

import asyncio
import secrets
from typing import Protocol

import msgspec

from headgate.domain.mcp_request import McpResponse
from headgate.protocol.jsonrpc import Envelope, encode_notification, encode_request
from headgate.protocol.jsonrpc_errors import INTERNAL_ERROR
from headgate.protocol.rmcp import without_rmcp_meta

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
