"""The stdio server: one client, one JSON-RPC message per line, on the gateway's own stdin and stdout."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.mcp_request import ClientSession
from headgate.protocol.framing import line_fragments
from headgate.protocol.jsonrpc import Envelope, decode_object
from headgate.protocol.jsonrpc_errors import INVALID_REQUEST, ProtocolViolation
from headgate.protocol.protocol_version import META_VERSION, Era
from headgate.server.change_notifier import ChangeNotifier, VisibilityGroups
from headgate.server.client_context import Authenticator, ClientContext
from headgate.server.method_router import MethodRouter
from headgate.server.outbound_queue import OutboundQueue
from headgate.server.reply import Reply, encode_loop_error
from headgate.server.request_body import read_message
from headgate.server.sessions import (
    HandshakeSession,
    handle_one_way_message,
    handle_session_request,
    reply_or_error,
)
from headgate.server.shutdown import interrupt_task
from headgate.server.stateless_http import ClientSubscription, check_metadata, open_subscription

T = TypeVar("T")


class BlockingIoThread:
    """Runs one blocking call after the other; a call that hangs ends with the process."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._work.get()()

    async def call(self, work: Callable[[], T]) -> T:
        """The result of `work`, done in the thread; raises OSError as `work` does."""
        done: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                settle = partial(done.set_result, work())
            except OSError as error:
                settle = partial(done.set_exception, error)
            # The loop may have ended, and with it all waiters.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(lambda: None if done.done() else settle())

        self._work.put(run)
        return await done


_READ_BYTES = 256 * 1024
_QUIET_SECONDS = 3600.0
_FLUSH_SECONDS = 2.0
# Requests of the client at a time, without subscriptions; the next one is read when one of them has ended.
_MAX_RUNNING = 256


@dataclass(eq=False)
class StdioServer:
    """Serves the program that started the gateway."""

    _authenticator: Authenticator
    _router: MethodRouter
    _change_notifier: ChangeNotifier
    _max_line_bytes: int

    def __post_init__(self) -> None:
        self.identity = self._authenticator.identify_stdio()
        self._loop = asyncio.get_running_loop()
        self._outbound_queue = OutboundQueue()
        self._session = HandshakeSession(self._outbound_queue, self.identity)
        self._era: Era | None = None
        self._subscriptions: dict[ClientSubscription, asyncio.Task[None] | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._task_ended = asyncio.Event()

    async def serve(self, source: BinaryIO, sink: BinaryIO) -> None:
        """Serve until the input ends and every request is answered."""
        writing = self._loop.create_task(self._write_replies(sink))
        self._change_notifier.add_listener(self)
        try:
            async for line in self._read_lines(source):
                await self._handle_line(line)
            self._end_subscriptions()
            # The client can answer no server request any more, so calls must not wait for one.
            self._session.client_requests.close()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        except asyncio.CancelledError:
            await self._interrupt_requests()
            raise
        finally:
            self._change_notifier.remove_listener(self)
            self._session.client_requests.close()
            self._outbound_queue.end()
            # A client that does not read must not keep the gateway from ending.
            await asyncio.wait({writing}, timeout=_FLUSH_SECONDS)
            writing.cancel()

    async def _interrupt_requests(self) -> None:
        """Interrupt the requests in flight at shutdown; each still gets a reply."""
        self._end_subscriptions()
        tasks = list(self._tasks)
        # Those end by themselves, after their last message.
        listening = set(self._subscriptions.values())
        for task in tasks:
            if task not in listening:
                interrupt_task(task)
        if tasks:
            await asyncio.wait(tasks, timeout=_FLUSH_SECONDS)

    def _end_subscriptions(self) -> None:
        for subscription in list(self._subscriptions):
            subscription.ended.set()

    def list_changed(self, capability: str, visibility_groups: VisibilityGroups) -> None:
        if self._era is Era.HANDSHAKE:
            self._session.list_changed(capability, visibility_groups)

    def resource_updated(self, uri: str, params: bytes, owner: ClientSession | None) -> None:
        self._session.resource_updated(uri, params, owner)

    async def _read_lines(self, source: BinaryIO) -> AsyncIterator[bytes]:
        """The non-empty lines of the input; the last one needs no line break."""
        line: list[bytes] = []
        size = 0
        # Pipes, files and terminals all have blocking reads; a thread serves them all alike.
        thread = BlockingIoThread("stdin")
        while True:
            data = await thread.call(lambda: os.read(source.fileno(), _READ_BYTES))
            for piece in line_fragments(data or b"\n"):
                size += len(piece.data)
                if size <= self._max_line_bytes:
                    line.append(piece.data)
                if not piece.ends:
                    continue
                if size > self._max_line_bytes:
                    reason = f"The message is larger than {self._max_line_bytes} bytes"
                    refusal = ProtocolViolation(INVALID_REQUEST, reason)
                    await self._outbound_queue.put(Reply(refusal.encode()))
                elif text := b"".join(line).strip():
                    yield text
                line, size = [], 0
            if not data:
                return

    async def _handle_line(self, line: bytes) -> None:
        try:
            envelope = await read_message(line)
        except ProtocolViolation as violation:
            await self._outbound_queue.put(Reply(violation.encode()))
            return
        if self._era is None and envelope.id:
            self._era = _era_of_first_request(envelope)
        if envelope.method and envelope.id:
            # Read no further while the client does not read, because its replies take memory.
            await self._outbound_queue.wait_for_space()
            while len(self._tasks) - len(self._subscriptions) >= _MAX_RUNNING:
                self._task_ended.clear()
                await self._task_ended.wait()
            task = self._loop.create_task(self._handle_request(envelope))
            self._tasks.add(task)
            task.add_done_callback(self._on_task_done)
        else:
            handle_one_way_message(envelope, self._session, self._router)

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._task_ended.set()

    async def _handle_request(self, envelope: Envelope) -> None:
        # Old clients that probe for the new era go on with the handshake.
        if envelope.method == "initialize":
            self._era = Era.HANDSHAKE
        if self._era is Era.HANDSHAKE:
            work = handle_session_request(self._router, envelope, self._session)
        else:
            work = self._handle_stateless_request(envelope)
        reply = await reply_or_error(bytes(envelope.id), work)
        if reply is not None:
            await self._outbound_queue.put(reply)

    async def _handle_stateless_request(self, envelope: Envelope) -> Reply:
        check_metadata(envelope, None)
        id = bytes(envelope.id)
        self._session.running_requests.start(id, asyncio.current_task())
        try:
            if envelope.method == "subscriptions/listen":
                return await self._hold_subscription(envelope)
            context = ClientContext(era=Era.STATELESS, channel=self._session.channel, caller=self.identity)
            return await self._router.handle_request(envelope, context)
        finally:
            self._session.running_requests.finish(id)

    async def _hold_subscription(self, envelope: Envelope) -> Reply:
        subscription = ClientSubscription(envelope, self._outbound_queue, self.identity)
        async with open_subscription(subscription, self._router, self._change_notifier):
            self._outbound_queue.notify(subscription.acknowledgement)
            self._subscriptions[subscription] = asyncio.current_task()
            try:
                await subscription.ended.wait()
            finally:
                del self._subscriptions[subscription]
        return Reply(subscription.final_reply)

    async def _write_replies(self, sink: BinaryIO) -> None:
        thread = BlockingIoThread("stdout")
        broken = False
        while (reply := await self._outbound_queue.get(_QUIET_SECONDS)) is not None:
            try:
                if reply.size and not broken:
                    await thread.call(partial(_write_line, sink, reply))
            except OSError:
                # The client has closed its input; its output will end too.
                broken = True
            finally:
                reply.close()


def _write_line(sink: BinaryIO, reply: Reply) -> None:
    sink.writelines(reply.lines())
    sink.write(b"\n")
    sink.flush()


def _era_of_first_request(envelope: Envelope) -> Era:
    if envelope.method == "initialize":
        return Era.HANDSHAKE
    try:
        meta = decode_object(decode_object(envelope.params or b"{}").get("_meta", b"{}"))
    except (DecodeError, UnicodeDecodeError):
        return Era.HANDSHAKE
    return Era.STATELESS if META_VERSION in meta else Era.HANDSHAKE


def claim_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """The gateway's stdin and stdout; from now on other output goes to stderr."""
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return sys.stdin.buffer, sink


_LOOP_READ_BYTES = 64 * 1024
# More than the first message of a gateway has.
_LOOP_MAX_LINE_BYTES = 1024 * 1024


class _LoopedRequest(msgspec.Struct):
    id: Raw = Raw(b"")
    method: str = ""


def refuse_as_loop(source: BinaryIO, sink: BinaryIO, message: str) -> None:
    """Answer every request with that error until the input ends; it blocks."""
    rest = b""
    while data := os.read(source.fileno(), _LOOP_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if id := _looped_request_id(line):
                sink.write(encode_loop_error(id, message) + b"\n")
                sink.flush()
        if len(rest) > _LOOP_MAX_LINE_BYTES:
            return


def _looped_request_id(line: bytes) -> bytes:
    try:
        request = msgspec.json.decode(line, type=_LoopedRequest)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return b""
    return bytes(request.id) if request.method else b""
