"""Requests that wait for their answer on a connection shared by many, each with its own time limit."""

import asyncio
import re
from collections.abc import Awaitable, Callable

from msgspec import Raw

from headgate.domain.call import Answer
from headgate.domain.errors import (
    HeadgateError,
    InvalidAnswer,
    UpstreamError,
    UpstreamLost,
    UpstreamTimeout,
)
from headgate.upstream.assembly import Garbled, Message
from headgate.upstream.inbox import Inbox
from headgate.upstream.link import Outgoing
from headgate.upstream.replies import Replies
from headgate.upstream.spool import discard
from headgate.wire.envelope import encode_notification, encode_request

_NEVER = float("inf")
_SOME_ID = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*[,}]')
# Whichever of these comes first tells a notification from an answer; a result may hold any word further in.
_KIND = re.compile(rb'"(method|result|error)"\s*:')
# Waits for as long as the connection stands, so nothing that comes without a name is about it.
_SUBSCRIPTION = "subscriptions/listen"


class Unconfirmed(Exception):
    """A message was written and nobody said what became of it."""


class _Waiting:
    """One request and when it has waited long enough."""

    __slots__ = ("_look_by", "_loop", "deadline", "future", "outgoing", "started")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, outgoing: Outgoing, look_by: Callable[[float], None]
    ) -> None:
        self._loop = loop
        self._look_by = look_by
        self.future: asyncio.Future[Answer] = loop.create_future()
        self.outgoing = outgoing
        self.started = now = loop.time()
        self.deadline = now + min(outgoing.timeout_seconds, outgoing.max_timeout_seconds)

    def renew(self) -> None:
        """Something was heard of it: it may take longer, but not for ever."""
        outgoing = self.outgoing
        latest = self.started + outgoing.max_timeout_seconds
        self.deadline = min(self._loop.time() + outgoing.timeout_seconds, latest)
        # After a hold that is sooner than it was.
        self._look_by(self.deadline)

    def hold(self) -> None:
        """A person is being asked."""
        self.deadline = self.started + self.outgoing.max_timeout_seconds


class Pending:
    """The requests in flight on one connection."""

    def __init__(self, server: str, send: Callable[[bytes], Awaitable[None] | None], inbox: Inbox) -> None:
        """`send` may take its time, or be done at once and return None."""
        self._server = server
        self._send = send
        self._inbox = inbox
        self._waiting: dict[int, _Waiting] = {}
        self._last = 0
        self._loop = asyncio.get_running_loop()
        self._replies = Replies(self._send_quietly, inbox)
        self._cancellations: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = _NEVER

    def __len__(self) -> int:
        return len(self._waiting)

    async def request(self, outgoing: Outgoing) -> Answer:
        """Send a request and wait for its answer; raises UpstreamError."""
        self._last += 1
        number = self._last
        waiting = _Waiting(self._loop, outgoing, self._look_by)
        self._waiting[number] = waiting
        self._look_by(waiting.deadline)
        if outgoing.token:
            self._inbox.board(outgoing, waiting)
        try:
            sending = self._send(encode_request(b"%d" % number, outgoing.method, outgoing.params))
            if sending is not None:
                await self._sent_in_time(sending, waiting)
            return await waiting.future
        except BaseException as error:
            self._abandon(number, waiting, cancelled=isinstance(error, asyncio.CancelledError))
            raise
        finally:
            self._waiting.pop(number, None)
            self._inbox.land(outgoing.token)

    async def _sent_in_time(self, sending: Awaitable[None], waiting: _Waiting) -> None:
        """The time limit counts from the moment that the call is made."""
        try:
            async with asyncio.timeout_at(waiting.deadline):
                await sending
        except TimeoutError as error:
            seconds = self._loop.time() - waiting.started
            raise UpstreamTimeout(self._server, waiting.outgoing.what, seconds) from error
        except Unconfirmed as error:
            # The answer may have been faster than the bad news.
            if not waiting.future.done():
                raise UpstreamLost(self._server, waiting.outgoing.what, str(error)) from error

    def _abandon(self, number: int, waiting: _Waiting, *, cancelled: bool) -> None:
        """Nobody waits for the answer any more, which may have come at the same moment."""
        future = waiting.future
        future.cancel()
        if not future.cancelled():
            if future.exception() is None:
                discard(future.result().result)
        elif cancelled and number in self._waiting:
            self._cancel_upstream(number, "the client cancelled")

    def _look_by(self, when: float) -> None:
        """Look for requests that have waited too long; one timer for all, since most are answered in time."""
        if when < self._look_at:
            self._look_later(when)

    def _look_later(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = when
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer, self._look_at = None, _NEVER
        now = self._loop.time()
        for number, waiting in list(self._waiting.items()):
            if waiting.deadline <= now:
                self._cancel_upstream(number, "it took too long")
                seconds = now - waiting.started
                self._fail(number, UpstreamTimeout(self._server, waiting.outgoing.what, seconds))
        if self._waiting:
            self._look_later(min(waiting.deadline for waiting in self._waiting.values()))

    def _cancel_upstream(self, number: int, reason: str) -> None:
        # `initialize` must not be cancelled, says the specification.
        if self._waiting[number].outgoing.method != "initialize":
            params = b'{"requestId":%d,"reason":"%s"}' % (number, reason.encode())
            message = encode_notification("notifications/cancelled", params)
            task = self._loop.create_task(self._send_quietly(message))
            self._cancellations.add(task)
            task.add_done_callback(self._cancellations.discard)

    async def _send_quietly(self, message: bytes) -> None:
        """Send something that nobody waits for."""
        try:
            sending = self._send(message)
            if sending is not None:
                await sending
        except (HeadgateError, Unconfirmed):
            return

    def take(self, message: Message) -> None:
        """Act on one message from the upstream."""
        envelope = message.envelope
        if envelope.jsonrpc != "2.0":
            # A line of somebody's log, which may have an id too.
            self._discard(message, "JSON that is no message")
            return
        if envelope.method:
            discard(message.result)
            self._inbox.take(envelope, None, self._replies.send)
            return
        waiting = self._waiting.get(_number(envelope.id))
        if waiting is None or waiting.future.done():
            self._unclaimed(message)
        elif message.result:
            waiting.future.set_result(Answer(message.result))
        elif envelope.error:
            waiting.future.set_result(Answer(error=bytes(envelope.error)))
        else:
            self._fail(_number(envelope.id), self._invalid(waiting, "neither a result nor an error"))

    def _unclaimed(self, message: Message) -> None:
        """An answer to nothing; an error without an id, while one call waits, is about that call."""
        if message.envelope.error and bytes(message.envelope.id) in (b"", b"null"):
            waiting = self._waiting.get(self._only())
            if waiting is not None and not waiting.future.done():
                discard(message.result)
                waiting.future.set_result(Answer(error=bytes(message.envelope.error)))
                return
        self._discard(message, "an answer that nobody waits for")

    def _discard(self, message: Message, what: str) -> None:
        discard(message.result)
        self._inbox.count_noise(what)

    def take_garbled(self, error: Garbled) -> None:
        """Fail the call that unreadable bytes belong to, at once; others are noise."""
        number = self._owner(error.evidence)
        waiting = self._waiting.get(number)
        if waiting is None:
            self._inbox.count_noise(str(error))
        else:
            self._fail(number, self._invalid(waiting, str(error)))

    def _owner(self, evidence: bytes) -> int:
        """The call that the bytes name first; if they name none but look like an answer, the only one."""
        kind = _KIND.search(evidence)
        if kind is not None and kind[1] == b"method":
            return 0
        for found in _SOME_ID.findall(evidence):
            if int(found) in self._waiting:
                return int(found)
        return self._only() if b'"jsonrpc"' in evidence else 0

    def _only(self) -> int:
        """The one call that waits, or 0."""
        calls = [
            number for number, waiting in self._waiting.items() if waiting.outgoing.method != _SUBSCRIPTION
        ]
        return calls[0] if len(calls) == 1 else 0

    def _invalid(self, waiting: _Waiting, reason: str) -> InvalidAnswer:
        return InvalidAnswer(self._server, waiting.outgoing.what, reason)

    def _fail(self, number: int, error: UpstreamError) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(error)

    def fail_all(self, reason: str) -> None:
        """The connection is gone: nobody will answer."""
        self._inbox.close()
        self._replies.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._look_at = None, _NEVER
        for number in list(self._waiting):
            what = self._waiting[number].outgoing.what
            self._fail(number, UpstreamLost(self._server, what, reason))


def _number(id: Raw) -> int:
    """The number of a request of ours; an id that we never gave is 0."""
    text = bytes(id)
    return int(text) if text.isdigit() and len(text) <= 18 else 0
