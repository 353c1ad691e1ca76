"""Correlates requests and responses by JSON-RPC id on one shared connection, each with its own timeout."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from msgspec import Raw

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
from headgate.upstream.late_answers import LateAnswers
from headgate.upstream.message_assembly import (
    MalformedMessage,
    MessageNotStored,
    UpstreamMessage,
    discard_payload,
    fault_of_answer,
    unusable_answer,
)
from headgate.upstream.notification_router import NotificationRouter, ReplyQueue
from headgate.upstream.transport import OutgoingRequest, SendAttempt

_NEVER = float("inf")
_SOME_ID = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*[,}]')
# Whichever of these comes first tells a notification from an answer; a result may hold any word further in.
_KIND = re.compile(rb'"(method|result|error)"\s*:')
# Waits for as long as the connection stands, so nothing that comes without a name is about it.
_SUBSCRIPTION = "subscriptions/listen"
_TOOL_CALL = "tools/call"


class SendUnconfirmed(Exception):
    """A message was written and nobody said what became of it."""

    def __init__(self, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class SendMessage(Protocol):
    """Puts a message on its way; it may take its time, or be done at once and return None."""

    def __call__(self, message: bytes, sending: SendAttempt | None = None, /) -> Awaitable[None] | None:
        """Whoever takes his time says in `sending` when it begins. Raises HeadgateError or Unconfirmed."""


class _PendingRequest(SendAttempt):
    """One request and when it has waited long enough."""

    __slots__ = ("_end", "_look_by", "_loop", "deadline", "future", "started")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        outgoing: OutgoingRequest,
        look_by: Callable[[float], None],
        end: Callable[["_PendingRequest", HeadgateError], None],
    ) -> None:
        self.outgoing, self.begun = outgoing, False
        self._loop = loop
        self._look_by = look_by
        self._end = end
        self.future: asyncio.Future[McpResponse] = loop.create_future()
        self.started = now = loop.time()
        self.deadline = now + min(outgoing.timeout_seconds, outgoing.max_timeout_seconds)

    def renew(self) -> None:
        """Something was heard of it: it may take longer, but not for ever."""
        outgoing = self.outgoing
        latest = self.started + outgoing.max_timeout_seconds
        self.deadline = min(self._loop.time() + outgoing.timeout_seconds, latest)
        # After a hold that is sooner than it was.
        self._look_by(self.deadline)

    def suspend(self) -> None:
        """A person is being asked."""
        self.deadline = self.started + self.outgoing.max_timeout_seconds

    def withdraw(self, error: HeadgateError) -> None:
        """End it now."""
        self._end(self, error)


class PendingRequests:
    """The requests in flight on one connection."""

    def __init__(self, server: str, send: SendMessage, router: NotificationRouter) -> None:
        self._server = server
        self._send = send
        self._router = router
        self._pending: dict[int, _PendingRequest] = {}
        self._late = LateAnswers()
        self._last = 0
        self._loop = asyncio.get_running_loop()
        self._replies = ReplyQueue(self._send_quietly, router)
        self._background = BackgroundTasks()
        self._timer: asyncio.TimerHandle | None = None
        self._expiry_at = _NEVER

    def __len__(self) -> int:
        return len(self._pending)

    async def send_correlated(self, outgoing: OutgoingRequest) -> McpResponse:
        """Send a request and wait for its answer; raises UpstreamError."""
        self._last += 1
        number = self._last
        waiting = _PendingRequest(self._loop, outgoing, self._look_by, self._withdraw)
        self._pending[number] = waiting
        self._look_by(waiting.deadline)
        if outgoing.token:
            self._router.register(outgoing, waiting)
        try:
            message = encode_request(b"%d" % number, outgoing.method, outgoing.params)
            sending = self._send(message, waiting)
            if sending is not None:
                await self._await_sent(sending, waiting)
            return await waiting.future
        except BaseException as error:
            self._abandon(number, waiting, error)
            raise
        finally:
            self._pending.pop(number, None)
            self._router.unregister(outgoing.token)

    async def _await_sent(self, sending: Awaitable[None], waiting: _PendingRequest) -> None:
        """The time limit counts from the moment that the call is made."""
        try:
            async with asyncio.timeout_at(waiting.deadline):
                await sending
        except TimeoutError as error:
            seconds = self._loop.time() - waiting.started
            if not waiting.begun:
                raise UpstreamUnreachable(self._server, f"no connection within {seconds:g} s") from error
            raise UpstreamTimeout(self._server, waiting.outgoing.what, seconds) from error
        except SendUnconfirmed as error:
            # The answer may have been faster than the bad news.
            if not waiting.future.done():
                lost = UpstreamLost(self._server, waiting.outgoing.what, str(error))
                lost.retry_after_seconds = error.retry_after_seconds
                raise lost from error

    def _abandon(self, number: int, waiting: _PendingRequest, error: BaseException) -> None:
        """Nobody waits for the answer any more, which may have come at the same moment."""
        future = waiting.future
        future.cancel()
        if not future.cancelled():
            if future.exception() is None:
                self._pass_late_answer(future.result(), waiting.outgoing.on_late)
            return
        if number not in self._pending:
            return
        if isinstance(error, asyncio.CancelledError):
            self._cancel_upstream(number, "the client cancelled")
        if not isinstance(error, HeadgateError) or error.effect is not Effect.NONE:
            self._keep_for_late_answer(number, waiting)

    def _keep_for_late_answer(self, number: int, waiting: _PendingRequest) -> None:
        """The answer of a request that was given up may be of use to somebody."""
        until = self._late.await_answer(number, waiting.outgoing, waiting.started)
        if until is not None:
            self._look_by(until)

    def _pass_late_answer(self, answer: McpResponse, take: Callable[[McpResponse], None] | None) -> None:
        if take is not None:
            take(answer)
        else:
            discard_payload(answer.result)

    def _look_by(self, when: float) -> None:
        """Look for requests that have waited too long; one timer for all, since most are answered in time."""
        if when < self._expiry_at:
            self._reschedule_expiry(when)

    def _reschedule_expiry(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._expiry_at = when
        self._timer = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        self._timer, self._expiry_at = None, _NEVER
        now = self._loop.time()
        for number, waiting in list(self._pending.items()):
            if waiting.deadline <= now:
                seconds = now - waiting.started
                timeout = UpstreamTimeout(self._server, waiting.outgoing.what, seconds)
                self._give_up(number, waiting, timeout, "it took too long")
        when = [waiting.deadline for waiting in self._pending.values()]
        if self._late and (until := self._late.expire(now)) is not None:
            when.append(until)
        if when:
            self._reschedule_expiry(min(when))

    def _withdraw(self, ended: _PendingRequest, error: HeadgateError) -> None:
        for number, waiting in list(self._pending.items()):
            if waiting is ended and not waiting.future.done():
                self._give_up(number, waiting, error, "its input did not come")

    def _give_up(self, number: int, waiting: _PendingRequest, error: HeadgateError, reason: str) -> None:
        """Tell the upstream and the caller that nobody waits any longer."""
        self._cancel_upstream(number, reason)
        self._keep_for_late_answer(number, waiting)
        self._fail(number, error)

    def _cancel_upstream(self, number: int, reason: str) -> None:
        # `initialize` must not be cancelled, says the specification.
        if self._pending[number].outgoing.method != "initialize":
            params = b'{"requestId":%d,"reason":"%s"}' % (number, reason.encode())
            message = encode_notification("notifications/cancelled", params)
            self._background.start(self._send_quietly(message), name=f"cancellation to {self._server}")

    async def _send_quietly(self, message: bytes) -> None:
        """Send something that nobody waits for."""
        try:
            sending = self._send(message)
            if sending is not None:
                await sending
        except (HeadgateError, SendUnconfirmed):
            return

    def handle_message(self, message: UpstreamMessage) -> None:
        """Act on one message from the upstream."""
        envelope = message.envelope
        if envelope.jsonrpc != "2.0":
            # A line of somebody's log, which may have an id too.
            self._discard(message, "JSON that is no message")
            return
        if envelope.method:
            discard_payload(message.result)
            self._router.route(envelope, None, self._replies.enqueue)
            return
        number = _number(envelope.id)
        waiting = self._pending.get(number)
        if waiting is None or waiting.future.done():
            if number not in self._late or not self._handle_late(number, message):
                self._handle_unmatched(message)
        elif isinstance(message.result, bytes) and message.result[:1] == b"{":
            # The usual case: nothing is wrong with it.
            waiting.future.set_result(McpResponse(message.result))
        elif waiting.outgoing.method == _TOOL_CALL and (fault := fault_of_answer(message)):
            discard_payload(message.result)
            self._fail(number, self._invalid(waiting, fault))
        elif message.result:
            waiting.future.set_result(McpResponse(message.result))
        elif envelope.error:
            waiting.future.set_result(McpResponse(error=bytes(envelope.error)))
        else:
            self._fail(number, self._invalid(waiting, "neither a result nor an error"))

    def _handle_late(self, number: int, message: UpstreamMessage) -> bool:
        """Whether it was the answer to a request that was given up."""
        take = self._late.pop_handler(number)
        answer = McpResponse(message.result, error=bytes(message.envelope.error))
        if take is None or fault_of_answer(message):
            return False
        take(answer)
        return True

    def _handle_unmatched(self, message: UpstreamMessage) -> None:
        """An answer to nothing; an error without an id, while one call waits, is about that call."""
        if message.envelope.error and bytes(message.envelope.id) in (b"", b"null"):
            waiting = self._pending.get(self._only_pending())
            if waiting is not None and not waiting.future.done():
                discard_payload(message.result)
                waiting.future.set_result(McpResponse(error=bytes(message.envelope.error)))
                return
        self._discard(message, "an answer that nobody waits for")

    def _discard(self, message: UpstreamMessage, what: str) -> None:
        discard_payload(message.result)
        self._router.count_ignored(what)

    def handle_malformed(self, error: MalformedMessage) -> None:
        """Fail the call that unreadable bytes belong to, at once; others are noise."""
        if isinstance(error, MessageNotStored):
            number = self._request_answered_by(error.envelope)
        else:
            number = self._request_named_in(error.evidence)
        waiting = self._pending.get(number)
        if waiting is None:
            self._router.count_ignored(str(error))
        else:
            self._fail(number, unusable_answer(self._server, waiting.outgoing.what, error))

    def _request_answered_by(self, envelope: Envelope) -> int:
        """The call that a message answers of which only the envelope is left."""
        number = 0 if envelope.method else _number(envelope.id)
        self._late.pop_handler(number)
        return number

    def accepts_invalid_utf8(self, envelope: Envelope) -> bool:
        """Whether the request that it answers takes an answer that is not UTF-8 throughout."""
        waiting = None if envelope.method else self._pending.get(_number(envelope.id))
        return waiting is not None and waiting.outgoing.accepts_invalid_utf8

    def _request_named_in(self, evidence: bytes) -> int:
        """The call that the bytes name first; if they name none but look like an answer, the only one."""
        kind = _KIND.search(evidence)
        if kind is not None and kind[1] == b"method":
            return 0
        for found in _SOME_ID.findall(evidence):
            if int(found) in self._pending:
                return int(found)
            if self._late.pop_handler(int(found)) is not None:
                # It is about a request that was given up, and about no other.
                return 0
        return self._only_pending() if b'"jsonrpc"' in evidence else 0

    def _only_pending(self) -> int:
        """The one call that waits, or 0; where others may still be answered, nobody knows whose it is."""
        if self._late:
            return 0
        calls = [
            number for number, waiting in self._pending.items() if waiting.outgoing.method != _SUBSCRIPTION
        ]
        return calls[0] if len(calls) == 1 else 0

    def _invalid(self, waiting: _PendingRequest, reason: str) -> InvalidUpstreamResponse:
        return InvalidUpstreamResponse(self._server, waiting.outgoing.what, reason)

    def _fail(self, number: int, error: HeadgateError) -> None:
        waiting = self._pending.pop(number, None)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(error)

    def fail_unsent(self, sendings: Iterable[SendAttempt], reason: str) -> None:
        """These requests could not be sent, not even in part."""
        for sending in sendings:
            if isinstance(sending, _PendingRequest) and not sending.future.done():
                sending.future.set_exception(UpstreamUnreachable(self._server, reason))

    def fail_all(self, reason: str) -> None:
        """The connection is gone: nobody will answer."""
        self._router.close()
        self._replies.close()
        self._late.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._expiry_at = None, _NEVER
        for number in list(self._pending):
            what = self._pending[number].outgoing.what
            self._fail(number, UpstreamLost(self._server, what, reason))


def _number(id: Raw) -> int:
    """The number of a request of ours; an id that we never gave is 0."""
    text = bytes(id)
    return int(text) if text.isdigit() and len(text) <= 18 else 0
