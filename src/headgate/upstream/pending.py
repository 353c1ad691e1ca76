"""Requests that wait for their answer on a connection shared by many, each with its own time limit."""

import asyncio
import re
from collections.abc import Awaitable, Callable

from msgspec import Raw

from headgate.domain.call import Answer
from headgate.domain.errors import InvalidAnswer, UpstreamError, UpstreamLost, UpstreamTimeout
from headgate.upstream.assembly import Garbled, Message
from headgate.upstream.inbox import Inbox
from headgate.upstream.link import Outgoing
from headgate.wire.envelope import encode_notification, encode_request

_SOME_ID = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*[,}]')


class _Waiting:
    """One request and the clock on it."""

    __slots__ = ("future", "outgoing", "renewed", "started", "timer")

    def __init__(self, future: asyncio.Future[Answer], outgoing: Outgoing, now: float) -> None:
        self.future = future
        self.outgoing = outgoing
        self.started = now
        self.renewed = now
        self.timer: asyncio.TimerHandle | None = None


class Pending:
    """The requests in flight on one connection."""

    def __init__(self, server: str, send: Callable[[bytes], Awaitable[None]], inbox: Inbox) -> None:
        self._server = server
        self._send = send
        self._inbox = inbox
        self._waiting: dict[int, _Waiting] = {}
        self._last = 0
        self._loop = asyncio.get_running_loop()
        self._replies: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def request(self, outgoing: Outgoing) -> Answer:
        """Send a request and wait for its answer; raises UpstreamError."""
        self._last += 1
        number = self._last
        waiting = _Waiting(self._loop.create_future(), outgoing, self._loop.time())
        self._waiting[number] = waiting
        seconds = min(outgoing.timeout_seconds, outgoing.max_timeout_seconds)
        waiting.timer = self._loop.call_later(seconds, self._expire, number)
        if outgoing.on_progress is not None:
            self._inbox.listen(outgoing.progress_token, self._renewing(waiting))
        try:
            await self._send(encode_request(b"%d" % number, outgoing.method, outgoing.params))
            return await waiting.future
        except asyncio.CancelledError:
            if number in self._waiting:
                self._cancel_upstream(number, "the client cancelled")
            raise
        finally:
            waiting.timer.cancel()
            self._waiting.pop(number, None)
            self._inbox.forget(outgoing.progress_token)

    def _renewing(self, waiting: _Waiting) -> Callable[[dict[str, Raw]], None]:
        """The listener of a call, which also starts its time limit anew."""
        listener = waiting.outgoing.on_progress

        def listen(params: dict[str, Raw]) -> None:
            waiting.renewed = self._loop.time()
            if listener is not None:
                listener(params)

        return listen

    def _expire(self, number: int) -> None:
        waiting = self._waiting.get(number)
        if waiting is None:
            return
        outgoing, now = waiting.outgoing, self._loop.time()
        deadline = min(
            waiting.renewed + outgoing.timeout_seconds, waiting.started + outgoing.max_timeout_seconds
        )
        if deadline > now:
            waiting.timer = self._loop.call_later(deadline - now, self._expire, number)
            return
        self._cancel_upstream(number, "it took too long")
        self._fail(number, UpstreamTimeout(self._server, outgoing.what, now - waiting.started))

    def _cancel_upstream(self, number: int, reason: str) -> None:
        # `initialize` must not be cancelled, says the specification.
        if self._waiting[number].outgoing.method != "initialize":
            params = b'{"requestId":%d,"reason":"%s"}' % (number, reason.encode())
            self._reply(encode_notification("notifications/cancelled", params))

    def _reply(self, message: bytes) -> None:
        """Send something that nobody waits for."""

        async def send() -> None:
            try:
                await self._send(message)
            except UpstreamError:
                return

        task = self._loop.create_task(send())
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    def take(self, message: Message) -> None:
        """Act on one message from the upstream."""
        envelope = message.envelope
        if envelope.method:
            reply = self._inbox.take(envelope)
            if reply is not None:
                self._reply(reply)
            return
        waiting = self._waiting.get(_number(envelope.id))
        if waiting is None or waiting.future.done():
            if not isinstance(message.result, bytes):
                message.result.close()
            self._unclaimed(message)
        elif message.result:
            waiting.future.set_result(Answer(message.result))
        elif envelope.error:
            waiting.future.set_result(Answer(error=bytes(envelope.error)))
        else:
            self._fail(_number(envelope.id), self._invalid(waiting, "neither a result nor an error"))

    def _unclaimed(self, message: Message) -> None:
        """An answer to nothing; an error without an id, while one call waits, is about that call."""
        if (
            message.envelope.error
            and bytes(message.envelope.id) in (b"", b"null")
            and len(self._waiting) == 1
        ):
            (waiting,) = self._waiting.values()
            if not waiting.future.done():
                waiting.future.set_result(Answer(error=bytes(message.envelope.error)))
                return
        self._inbox.count_noise("an answer that nobody waits for")

    def take_garbled(self, error: Garbled) -> None:
        """Fail the call that unreadable bytes belong to, at once; others are noise."""
        number = self._owner(error.evidence)
        waiting = self._waiting.get(number)
        if waiting is None:
            self._inbox.count_noise(str(error))
        else:
            self._fail(number, self._invalid(waiting, str(error)))

    def _owner(self, evidence: bytes) -> int:
        """The one call that the bytes name; if they name none but look like an answer, the only one."""
        named = {int(found) for found in _SOME_ID.findall(evidence)} & self._waiting.keys()
        if not named and b'"jsonrpc"' in evidence:
            named = set(self._waiting)
        return named.pop() if len(named) == 1 else 0

    def _invalid(self, waiting: _Waiting, reason: str) -> InvalidAnswer:
        return InvalidAnswer(self._server, waiting.outgoing.what, reason)

    def _fail(self, number: int, error: UpstreamError) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(error)

    def fail_all(self, reason: str) -> None:
        """The connection is gone: nobody will answer."""
        for number in list(self._waiting):
            what = self._waiting[number].outgoing.what
            self._fail(number, UpstreamLost(self._server, what, reason))


def _number(id: Raw) -> int:
    """The number of a request of ours; an id that we never gave is 0."""
    text = bytes(id)
    return int(text) if text.isdigit() and len(text) <= 18 else 0
