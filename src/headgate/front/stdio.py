"""The stdio front: one client, one JSON message per line, on the gateway's own input and output."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from functools import partial
from typing import BinaryIO

from msgspec import DecodeError

from headgate.domain.call import Owner
from headgate.front.answers import Answers
from headgate.front.audience import Audience, Circles
from headgate.front.duplex import replied
from headgate.front.ending import end_call
from headgate.front.intake import read_message
from headgate.front.legacy_sse import answer_handshake
from headgate.front.outbox import Outbox
from headgate.front.reply import Reply
from headgate.front.sessions import Session
from headgate.front.stateless import Subscription, check, subscribed
from headgate.front.streamable import take
from headgate.front.thread import StreamThread
from headgate.front.visitor import Visitor
from headgate.wire.envelope import Envelope, decode_object
from headgate.wire.eras import META_VERSION, Era
from headgate.wire.framing import pieces
from headgate.wire.violations import INVALID_REQUEST, Violation

_READ_BYTES = 256 * 1024
_QUIET_SECONDS = 3600.0
_LAST_WORDS_SECONDS = 2.0
# Requests of the client at a time, without subscriptions; the next one is read when one of them has ended.
_MOST_RUNNING = 256


class StdioFront:
    """Serves the program that started the gateway."""

    def __init__(self, answers: Answers, audience: Audience, max_line_bytes: int) -> None:
        self._answers = answers
        self._audience = audience
        self._max_line_bytes = max_line_bytes
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox()
        self._session = Session(self._outbox)
        self._era: Era | None = None
        self._subscriptions: dict[Subscription, asyncio.Task[None] | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._one_ended = asyncio.Event()

    async def serve(self, source: BinaryIO, sink: BinaryIO) -> None:
        """Answer until the input ends and everything asked for is answered."""
        writing = self._loop.create_task(self._write(sink))
        self._audience.join(self)
        try:
            async for line in self._lines(source):
                await self._take(line)
            self._end_subscriptions()
            # Nobody is left to answer a question, and a call that waits for one would wait on.
            self._session.questions.close()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        except asyncio.CancelledError:
            await self._answer_rest()
            raise
        finally:
            self._audience.leave(self)
            self._session.questions.close()
            self._outbox.end()
            # A client that does not read must not keep the gateway from ending.
            await asyncio.wait({writing}, timeout=_LAST_WORDS_SECONDS)
            writing.cancel()

    async def _answer_rest(self) -> None:
        """The gateway ends: calls under way are answered as they stand."""
        self._end_subscriptions()
        tasks = list(self._tasks)
        # Those end by themselves, after their last message.
        listening = set(self._subscriptions.values())
        for task in tasks:
            if task not in listening:
                end_call(task)
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_WORDS_SECONDS)

    def _end_subscriptions(self) -> None:
        for subscription in list(self._subscriptions):
            subscription.ended.set()

    def changed(self, capability: str, circles: Circles) -> None:
        """Tell a client that shook hands; others have subscribed."""
        if self._era is Era.HANDSHAKE:
            self._session.changed(capability, circles)

    def updated(self, uri: str, params: bytes, owner: Owner | None) -> None:
        """Tell a client that shook hands; others have subscribed."""
        self._session.updated(uri, params, owner)

    async def _lines(self, source: BinaryIO) -> AsyncIterator[bytes]:
        """The lines of the input that say something; the last one needs no end."""
        line: list[bytes] = []
        size = 0
        # Pipes, files and terminals all have blocking reads; a thread serves them all alike.
        thread = StreamThread("stdin")
        while True:
            data = await thread.do(lambda: os.read(source.fileno(), _READ_BYTES))
            for piece in pieces(data or b"\n"):
                size += len(piece.data)
                if size <= self._max_line_bytes:
                    line.append(piece.data)
                if not piece.ends:
                    continue
                if size > self._max_line_bytes:
                    await self._refuse_size()
                elif text := b"".join(line).strip():
                    yield text
                line, size = [], 0
            if not data:
                return

    async def _refuse_size(self) -> None:
        refusal = Violation(INVALID_REQUEST, f"The message is larger than {self._max_line_bytes} bytes")
        await self._outbox.put(Reply(refusal.encode()))

    async def _take(self, line: bytes) -> None:
        try:
            envelope = await read_message(line)
        except Violation as violation:
            await self._outbox.put(Reply(violation.encode()))
            return
        if self._era is None and envelope.id:
            self._era = _era(envelope)
        if envelope.method and envelope.id:
            await self._wait_for_room()
            task = self._loop.create_task(self._answer(envelope))
            self._tasks.add(task)
            task.add_done_callback(self._end)
        else:
            take(envelope, self._session, self._answers)

    async def _wait_for_room(self) -> None:
        """Read no further while the client does not read; otherwise its answers would fill the memory."""
        await self._outbox.wait_for_room()
        while len(self._tasks) - len(self._subscriptions) >= _MOST_RUNNING:
            self._one_ended.clear()
            await self._one_ended.wait()

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._one_ended.set()

    async def _answer(self, envelope: Envelope) -> None:
        # Old clients that probe for the new era go on with the handshake.
        if envelope.method == "initialize":
            self._era = Era.HANDSHAKE
        if self._era is Era.HANDSHAKE:
            work = answer_handshake(self._answers, envelope, self._session)
        else:
            work = self._answer_stateless(envelope)
        reply = await replied(bytes(envelope.id), work)
        if reply is not None:
            await self._outbox.put(reply)

    async def _answer_stateless(self, envelope: Envelope) -> Reply:
        check(envelope, None)
        id = bytes(envelope.id)
        self._session.running.start(id, asyncio.current_task())
        try:
            if envelope.method == "subscriptions/listen":
                return await self._listen(envelope)
            visitor = Visitor(era=Era.STATELESS, channel=self._session.channel)
            return await self._answers.answer(envelope, visitor)
        finally:
            self._session.running.finish(id)

    async def _listen(self, envelope: Envelope) -> Reply:
        """Hold a subscription until the client cancels it or leaves."""
        subscription = Subscription(envelope, self._outbox)
        async with subscribed(subscription, self._answers, self._audience):
            self._outbox.notify(subscription.acknowledgement)
            self._subscriptions[subscription] = asyncio.current_task()
            try:
                await subscription.ended.wait()
            finally:
                del self._subscriptions[subscription]
        return Reply(subscription.last_word)

    async def _write(self, sink: BinaryIO) -> None:
        """Everything that is said, in order."""
        thread = StreamThread("stdout")
        broken = False
        while (reply := await self._outbox.get(_QUIET_SECONDS)) is not None:
            try:
                if reply.size and not broken:
                    await thread.do(partial(_write_line, sink, reply))
            except OSError:
                # The client does not listen any more; its input will end too.
                broken = True
            finally:
                reply.close()


def _write_line(sink: BinaryIO, reply: Reply) -> None:
    sink.writelines(reply.lines())
    sink.write(b"\n")
    sink.flush()


def _era(envelope: Envelope) -> Era:
    """The era of a client by its first request."""
    if envelope.method == "initialize":
        return Era.HANDSHAKE
    try:
        meta = decode_object(decode_object(envelope.params or b"{}").get("_meta", b"{}"))
    except (DecodeError, UnicodeDecodeError):
        return Era.HANDSHAKE
    return Era.STATELESS if META_VERSION in meta else Era.HANDSHAKE


def own_streams() -> tuple[BinaryIO, BinaryIO]:
    """The gateway's input and output; whatever else prints goes to stderr from now on."""
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return sys.stdin.buffer, sink
