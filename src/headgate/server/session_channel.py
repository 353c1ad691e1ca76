"""Notifications and requests to one client outside of its replies, and the responses that it owes."""

import asyncio
import secrets
from typing import Protocol

import msgspec

from headgate.domain.mcp_request import McpResponse
from headgate.protocol.jsonrpc import Envelope, encode_notification, encode_request
from headgate.protocol.jsonrpc_errors import INTERNAL_ERROR
from headgate.protocol.rmcp import without_rmcp_meta

# A server that asks on and on is refused before its questions fill the memory.
_MAX_PENDING = 100
# How long a question waits for a client that has no stream open; most come back within a second or two.
_REACH_SECONDS = 10.0
_SESSION_ENDED = "The client has ended its session"


class MessageSender(Protocol):
    """Carries messages to one client."""

    def try_send(self, message: bytes) -> bool:
        """Send it, if somebody is there to take it; whether that was so."""

    def retain_or_drop(self, message: bytes) -> None:
        """Nobody is there now: keep it if the client may fetch it later, or drop it."""


class ClientRequests:
    """The questions that one client has not answered yet."""

    def __init__(self, reach_seconds: float = _REACH_SECONDS) -> None:
        self._reach_seconds = reach_seconds
        # Part of every id, so that a late answer to an earlier gateway is nobody's answer here.
        self._series = secrets.token_hex(4).encode()
        self._sent_count = 0
        self._pending: dict[bytes, asyncio.Future[McpResponse]] = {}
        self._stream_opened = asyncio.Event()
        self._closed = False
        # How many of the questions have not been sent, because the client could not be reached.
        self.unsent = 0

    def __len__(self) -> int:
        return len(self._pending)

    async def send_request(self, sender: MessageSender, method: str, params: bytes) -> McpResponse:
        """The client's answer as it came, or an error that says why there is none."""
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
                # Whoever asked has given up, so nobody should be bothered with the question any longer.
                sender.try_send(encode_notification("notifications/cancelled", b'{"requestId":' + id + b"}"))
            raise
        finally:
            del self._pending[id]

    async def _send_when_connected(self, sender: MessageSender, message: bytes) -> bool:
        """Whether the client could be asked, now or soon."""
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
        """The client has opened a stream: what could not be asked before may be asked now."""
        self._stream_opened.set()

    def on_response(self, envelope: Envelope) -> None:
        """The client has answered; ids that we did not give, or not any more, are ignored."""
        answer = self._pending.get(bytes(envelope.id))
        if answer is not None and not answer.done():
            answer.set_result(_answer_of_response(bytes(envelope.result), bytes(envelope.error)))

    def close(self) -> None:
        """The client is gone: nothing will be answered any more."""
        self._closed = True
        self._stream_opened.set()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_result(error_answer(_SESSION_ENDED))


def _answer_of_response(result: bytes, error: bytes) -> McpResponse:
    """What the client said, unless no server could make sense of it; of delivery it says nothing to one."""
    if (error or result)[:1] != b"{":
        return error_answer("The client's answer is neither a result nor an error of the protocol")
    return McpResponse(error=error) if error else McpResponse(without_rmcp_meta(result))


def error_answer(reason: str) -> McpResponse:
    """Why there is no answer, in the words of the protocol."""
    return McpResponse(error=msgspec.json.encode({"code": INTERNAL_ERROR, "message": reason}))


class SessionChannel:
    """A client's channel, apart from the answers to its requests."""

    __slots__ = ("_client_requests", "_sender")

    def __init__(self, sender: MessageSender, client_requests: ClientRequests) -> None:
        self._sender = sender
        self._client_requests = client_requests

    def send_notification(self, method: str, params: bytes) -> None:
        """Hand a notification on; one that the client can neither take now nor fetch later is dropped."""
        message = encode_notification(method, params)
        if not self._sender.try_send(message):
            self._sender.retain_or_drop(message)

    async def send_request(self, method: str, params: bytes) -> McpResponse:
        """The client's answer to a question; an error when it cannot be asked."""
        return await self._client_requests.send_request(self._sender, method, params)
