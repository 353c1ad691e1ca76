"""Correlates requests and responses by JSON-RPC id on one shared connection, each with its own timeout."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from headgate.domain.errors import (
    Effect,
    HeadgateError,
    InvalidUpstreamResponse,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from headgate.domain.mcp_request import McpResponse
from headgate.event_loop import BackgroundTasks
from headgate.protocol.jsonrpc import Envelope, encode_notification, encode_request
from headgate.upstream.message_assembly import (
    MalformedMessage,
    MessageNotStored,
    UpstreamMessage,
    discard_payload,
    fault_of_answer,
    unusable_answer,
)
from headgate.upstream.notification_router import InFlightRequest, NotificationRouter, ReplyQueue
from headgate.upstream.transport import OutgoingRequest, SendAttempt

_NEVER = float("inf")
_SOME_ID = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*[,}]')
# The first of these tells a notification from an answer; a result may hold any word further in.
_KIND = re.compile(rb'"(method|result|error)"\s*:')
# Waits as long as the connection lasts, so a message without an id never answers it.
_SUBSCRIPTION = "subscriptions/listen"
_TOOL_CALL = "tools/call"


class SendUnconfirmed(Exception):
    """A message was written, and what became of it is not known."""

    def __init__(self, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class SendMessage(Protocol):
    """Sends one message: at once and returns None, or returns an awaitable."""

    def __call__(self, message: bytes, sending: SendAttempt | None = None, /) -> Awaitable[None] | None:
        """Marks `sending` as begun if it takes time; raises HeadgateError or SendUnconfirmed."""


class _PendingRequest(InFlightRequest):
    """One request that waits for its answer until its deadline."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, outgoing: OutgoingRequest, pending: "PendingRequests"
    ) -> None:
        self.outgoing, self.begun = outgoing, False
        self._loop = loop
        self._pending = pending
        self.future: asyncio.Future[McpResponse] = loop.create_future()
        self.started = now = loop.time()
        self.deadline = now + min(outgoing.timeout_seconds, outgoing.max_timeout_seconds)

    def renew(self) -> None:
        outgoing = self.outgoing
        latest = self.started + outgoing.max_timeout_seconds
        self.deadline = min(self._loop.time() + outgoing.timeout_seconds, latest)
        # Sooner than before, after the timer was suspended.
        self._pending.expire_by(self.deadline)

    def suspend(self) -> None:
        self.deadline = self.started + self.outgoing.max_timeout_seconds

    def withdraw(self, error: HeadgateError) -> None:
        self._pending.withdraw(self, error)


# Late answers of one connection that are awaited; beyond that the oldest is dropped.
MOST_LATE = 1000


class PendingRequests:
    """The requests in flight on one connection, by their JSON-RPC id."""

    def __init__(self, server: str, send: SendMessage, router: NotificationRouter) -> None:
        self._server = server
        self._send = send
        self._router = router
        self._pending: dict[bytes, _PendingRequest] = {}
        # The handlers of answers that may come after their callers gave up, and until when they are awaited.
        self._late: dict[bytes, tuple[Callable[[McpResponse], None], float]] = {}
        self._last = 0
        self._loop = asyncio.get_running_loop()
        self._replies = ReplyQueue(self._send_quietly, router)
        self._background = BackgroundTasks()
        self._timer: asyncio.TimerHandle | None = None
        self._expiry_at = _NEVER

    def __len__(self) -> int:
        return len(self._pending)

    async def send_correlated(self, outgoing: OutgoingRequest) -> McpResponse:
        """Send a request and wait for the answer with its id; raises UpstreamError."""
        self._last += 1
        id = b"%d" % self._last
        waiting = _PendingRequest(self._loop, outgoing, self)
        self._pending[id] = waiting
        if waiting.deadline < self._expiry_at:
            self.expire_by(waiting.deadline)
        if outgoing.token:
            self._router.register(waiting)
        try:
            sending = self._send(encode_request(id, outgoing.method, outgoing.params), waiting)
            if sending is not None:
                await self._await_sent(sending, waiting)
            return await waiting.future
        except BaseException as error:
            self._abandon(id, waiting, error)
            raise
        finally:
            self._pending.pop(id, None)
            self._router.unregister(outgoing.token)

    async def _await_sent(self, sending: Awaitable[None], waiting: _PendingRequest) -> None:
        """The timeout includes the time that sending takes."""
        try:
            async with asyncio.timeout_at(waiting.deadline):
                await sending
        except TimeoutError as error:
            seconds = self._loop.time() - waiting.started
            if not waiting.begun:
                raise UpstreamUnreachable(self._server, f"no connection within {seconds:g} s") from error
            raise UpstreamTimeout(self._server, waiting.outgoing.what, seconds) from error
        except SendUnconfirmed as error:
            # The answer may have come first.
            if not waiting.future.done():
                lost = UpstreamLost(self._server, waiting.outgoing.what, str(error))
                lost.retry_after_seconds = error.retry_after_seconds
                raise lost from error

    def _abandon(self, id: bytes, waiting: _PendingRequest, error: BaseException) -> None:
        """The caller gives up; the answer may have come at the same moment."""
        future = waiting.future
        future.cancel()
        if not future.cancelled():
            if future.exception() is None:
                answer, on_late = future.result(), waiting.outgoing.on_late
                if on_late is not None:
                    on_late(answer)
                else:
                    discard_payload(answer.result)
            return
        if id not in self._pending:
            return
        if isinstance(error, asyncio.CancelledError):
            self._cancel_upstream(id, "the client cancelled")
        if not isinstance(error, HeadgateError) or error.effect is not Effect.NONE:
            self._await_late_answer(id, waiting)

    def _await_late_answer(self, id: bytes, waiting: _PendingRequest) -> None:
        """Wait for the answer of an abandoned request that has a handler, for a bounded time."""
        on_late = waiting.outgoing.on_late
        if on_late is not None:
            if len(self._late) >= MOST_LATE:
                del self._late[next(iter(self._late))]
            until = waiting.started + waiting.outgoing.late_seconds
            self._late[id] = on_late, until
            self.expire_by(until)

    def expire_by(self, when: float) -> None:
        """Check the deadlines at that time; one timer serves all, since most are answered in time."""
        if when < self._expiry_at:
            if self._timer is not None:
                self._timer.cancel()
            self._expiry_at = when
            self._timer = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        self._timer, self._expiry_at = None, _NEVER
        now = self._loop.time()
        for id, waiting in list(self._pending.items()):
            if waiting.deadline <= now:
                seconds = now - waiting.started
                timeout = UpstreamTimeout(self._server, waiting.outgoing.what, seconds)
                self._give_up(id, waiting, timeout, "it took too long")
        self._late = {id: awaited for id, awaited in self._late.items() if awaited[1] > now}
        when = [waiting.deadline for waiting in self._pending.values()]
        when += [until for _, until in self._late.values()]
        if when:
            self.expire_by(min(when))

    def withdraw(self, ended: InFlightRequest, error: HeadgateError) -> None:
        """End a request before its answer: its caller gets the error."""
        for id, waiting in list(self._pending.items()):
            if waiting is ended and not waiting.future.done():
                self._give_up(id, waiting, error, "its input did not come")

    def _give_up(self, id: bytes, waiting: _PendingRequest, error: HeadgateError, reason: str) -> None:
        self._cancel_upstream(id, reason)
        self._await_late_answer(id, waiting)
        self._fail(id, error)

    def _cancel_upstream(self, id: bytes, reason: str) -> None:
        # The specification forbids to cancel `initialize`.
        if self._pending[id].outgoing.method != "initialize":
            params = b'{"requestId":%s,"reason":"%s"}' % (id, reason.encode())
            message = encode_notification("notifications/cancelled", params)
            self._background.start(self._send_quietly(message), name=f"cancellation to {self._server}")

    async def _send_quietly(self, message: bytes) -> None:
        """Send a message whose failure concerns no caller."""
        try:
            sending = self._send(message)
            if sending is not None:
                await sending
        except (HeadgateError, SendUnconfirmed):
            return

    def handle_message(self, message: UpstreamMessage) -> None:
        """Resolve the request that a message answers, or route the message."""
        envelope = message.envelope
        if envelope.jsonrpc != "2.0":
            # A line of a JSON log, which may have an id too.
            self._discard(message, "JSON that is no message")
            return
        if envelope.method:
            discard_payload(message.result)
            self._router.route(envelope, None, self._replies.enqueue)
            return
        id = bytes(envelope.id)
        waiting = self._pending.get(id)
        if waiting is None or waiting.future.done():
            if id not in self._late or not self._handle_late(id, message):
                self._handle_unmatched(message)
        elif isinstance(message.result, bytes) and message.result[:1] == b"{":
            # The usual case: a valid answer.
            waiting.future.set_result(McpResponse(message.result))
        elif waiting.outgoing.method == _TOOL_CALL and (fault := fault_of_answer(message)):
            discard_payload(message.result)
            self._fail(id, InvalidUpstreamResponse(self._server, waiting.outgoing.what, fault))
        elif message.result:
            waiting.future.set_result(McpResponse(message.result))
        elif envelope.error:
            waiting.future.set_result(McpResponse(error=bytes(envelope.error)))
        else:
            fault = "neither a result nor an error"
            self._fail(id, InvalidUpstreamResponse(self._server, waiting.outgoing.what, fault))

    def _handle_late(self, id: bytes, message: UpstreamMessage) -> bool:
        on_late, _ = self._late.pop(id)
        if fault_of_answer(message):
            return False
        on_late(McpResponse(message.result, error=bytes(message.envelope.error)))
        return True

    def _handle_unmatched(self, message: UpstreamMessage) -> None:
        """Discard an answer to no request; an error without an id answers the only pending one."""
        if message.envelope.error and bytes(message.envelope.id) in (b"", b"null"):
            waiting = self._pending.get(self._only_pending())
            if waiting is not None and not waiting.future.done():
                discard_payload(message.result)
                waiting.future.set_result(McpResponse(error=bytes(message.envelope.error)))
                return
        self._discard(message, "an answer to no request")

    def _discard(self, message: UpstreamMessage, what: str) -> None:
        discard_payload(message.result)
        self._router.count_ignored(what)

    def handle_malformed(self, error: MalformedMessage) -> None:
        """Fail the request that unreadable bytes belong to, at once; count others as ignored."""
        if isinstance(error, MessageNotStored):
            # Only the envelope of the answer is left.
            id = b"" if error.envelope.method else bytes(error.envelope.id)
            self._late.pop(id, None)
        else:
            id = self._request_named_in(error.evidence)
        waiting = self._pending.get(id)
        if waiting is None:
            self._router.count_ignored(str(error))
        else:
            self._fail(id, unusable_answer(self._server, waiting.outgoing.what, error))

    def accepts_invalid_utf8(self, envelope: Envelope) -> bool:
        """Whether the request that it answers accepts text that is not UTF-8."""
        waiting = None if envelope.method else self._pending.get(bytes(envelope.id))
        return waiting is not None and waiting.outgoing.accepts_invalid_utf8

    def _request_named_in(self, evidence: bytes) -> bytes:
        """The first pending id in the bytes; without one, the only pending id if they look like an answer."""
        kind = _KIND.search(evidence)
        if kind is not None and kind[1] == b"method":
            return b""
        for found in _SOME_ID.findall(evidence):
            if found in self._pending:
                return bytes(found)
            if self._late.pop(found, None) is not None:
                # It answers a request whose caller gave up, and no other.
                return b""
        return self._only_pending() if b'"jsonrpc"' in evidence else b""

    def _only_pending(self) -> bytes:
        """The id of the one pending call; empty where a late answer may still be for another one."""
        if self._late:
            return b""
        calls = [id for id, waiting in self._pending.items() if waiting.outgoing.method != _SUBSCRIPTION]
        return calls[0] if len(calls) == 1 else b""

    def _fail(self, id: bytes, error: HeadgateError) -> None:
        waiting = self._pending.pop(id, None)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(error)

    def fail_unsent(self, reason: str, sendings: Iterable[SendAttempt]) -> None:
        for sending in sendings:
            if isinstance(sending, _PendingRequest) and not sending.future.done():
                sending.future.set_exception(UpstreamUnreachable(self._server, reason))

    def fail_all(self, reason: str) -> None:
        """Fail every request: the connection is lost."""
        self._router.close()
        self._replies.close()
        self._late.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._expiry_at = None, _NEVER
        for id in list(self._pending):
            what = self._pending[id].outgoing.what
            self._fail(id, UpstreamLost(self._server, what, reason))
