"""Accepts HTTP connections, refuses them when file descriptors run out, enforces deadlines and drains at
shutdown.
"""

import asyncio
import errno
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from headgate.protocol.jsonrpc_errors import INVALID_REQUEST, encode_error
from headgate.server.guard import HttpRefusal
from headgate.server.http_connection import HttpConnection, ServerContext
from headgate.server.http_request import JSON, RETRY_LATER, response_head

log = logging.getLogger("headgate.server")

# After so many new connections other work of the event loop is done.
_MAX_ACCEPTS = 64
# Descriptors that client connections may not take: servers, spooled answers and storage need some.
_MIN_RESERVED, _MAX_RESERVED = 16, 256
# How long the listener pauses when not even the spare descriptor is left.
_PAUSE_SECONDS = 0.2
# Seconds between two log entries about refused connections.
_LOG_SECONDS = 60.0
_DISCARDED_BYTES = 64 * 1024
_DEADLINE_CHECK_SECONDS = 1.0
_POLL_SECONDS = 0.02
# A client that does not read must not keep the gateway from ending.
_INTERRUPTED_REPLY_SECONDS = 2.0
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_DESCRIPTOR_REASON = "the gateway has no file descriptor left for this connection; try again later"
_NO_DESCRIPTOR_BODY = encode_error(b"null", INVALID_REQUEST, _NO_DESCRIPTOR_REASON)
_NO_DESCRIPTOR_RESPONSE = (
    response_head(503, JSON, len(_NO_DESCRIPTOR_BODY), RETRY_LATER, close=True) + _NO_DESCRIPTOR_BODY
)


class ConnectionAcceptor:
    """Accepts from one listening socket, from now until `close`."""

    def __init__(self, listener: socket.socket, context: ServerContext) -> None:
        self._listener = listener
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[object]] = set()
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        self._paused: asyncio.TimerHandle | None = None
        self._expected = 1
        self._logged = -_LOG_SECONDS
        limit = _descriptor_limit()
        reserved = min(max(limit // 8, _MIN_RESERVED), _MAX_RESERVED)
        # The kernel assigns the lowest free number, so a number above these means that many are in use.
        self._max_served = limit - reserved
        self._max_lingering = limit - reserved // 2
        self._loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _accept(self) -> None:
        # Usually one client connects at a time, and a failed second accept() would cost most here.
        expected, self._expected = self._expected, 1
        for _ in range(expected):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                # The client has left meanwhile.
                continue
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    log.warning("connection not accepted", extra={"reason": str(error)})
                    return
                if not self._refuse_on_spare():
                    return
            else:
                self._serve_or_refuse(connection)
        self._expected = min(2 * expected, _MAX_ACCEPTS)

    def _serve_or_refuse(self, connection: socket.socket) -> None:
        number = connection.fileno()
        if number < self._max_served:
            self._open(connection)
            return
        self._count_refused()
        if number < self._max_lingering:
            # Closed once the client has read why, or soon after.
            self._open(connection, HttpRefusal(503, _NO_DESCRIPTOR_REASON))
        else:
            _respond_and_close(connection)

    def _open(self, connection: socket.socket, refused: HttpRefusal | None = None) -> None:
        connection.setblocking(False)
        make = partial(HttpConnection, self._context, refused=refused)
        work = self._loop.connect_accepted_socket(make, connection)
        task: asyncio.Task[object] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._opened)

    def _opened(self, task: "asyncio.Task[object]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("connection not opened", extra={"reason": str(error)})

    def _refuse_on_spare(self) -> bool:
        """Refuse one connection on the spare descriptor; returns whether it could be reopened."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            with suppress(OSError):
                _respond_and_close(self._listener.accept()[0])
                self._count_refused()
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            # Other code has taken it. The listener stays readable, so it is not polled meanwhile.
            self._loop.remove_reader(self._listener.fileno())
            self._paused = self._loop.call_later(_PAUSE_SECONDS, self._resume)
            return False
        return True

    def _resume(self) -> None:
        self._paused = None
        if self._spare is None and not self._refuse_on_spare():
            return
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _count_refused(self) -> None:
        self._context.connections.refused += 1
        now = self._loop.time()
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            log.warning(
                "connections are refused because file descriptors run out; raise the limit (ulimit -n)",
                extra={"limit": _descriptor_limit()},
            )


def _descriptor_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def _respond_and_close(connection: socket.socket) -> None:
    """Respond and close; the request is read first, because closing earlier would reset the connection."""
    with connection, suppress(OSError):
        connection.setblocking(False)
        connection.send(_NO_DESCRIPTOR_RESPONSE)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(_DISCARDED_BYTES)


class HttpServer:
    """Serves HTTP on one listening socket."""

    def __init__(self, context: ServerContext, drain_seconds: float) -> None:
        self._context = context
        self._drain_seconds = drain_seconds
        self._loop = asyncio.get_running_loop()
        self._signal: asyncio.Future[signal.Signals] = self._loop.create_future()

    async def serve(
        self,
        listener: socket.socket,
        on_open: Callable[[], None],
        on_closing: Callable[[], None],
        on_overdue: Callable[[], None] = lambda: None,
    ) -> signal.Signals:
        """Serve until a signal arrives, which is returned.

        `on_closing` is called before the last answers are sent, `on_overdue` when the drain is over.
        Connections are accepted until then, so that a load balancer can read that it is not ready any more.
        """
        for sign in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(sign, self._on_signal, sign)
        acceptor = ConnectionAcceptor(listener, self._context)
        looking = self._loop.create_task(self._check_deadlines(), name="connection deadlines")
        try:
            on_open()
            sign = await self._signal
            self._context.closing = True
            on_closing()
            await self._wait_until_idle(self._drain_seconds)
            on_overdue()
            for http_connection in list(self._context.connections):
                http_connection.interrupt_request()
            await self._wait_until_idle(_INTERRUPTED_REPLY_SECONDS)
            for http_connection in list(self._context.connections):
                http_connection.abort()
            return sign
        finally:
            acceptor.close()
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def _on_signal(self, sign: signal.Signals) -> None:
        if not self._signal.done():
            self._signal.set_result(sign)

    async def _check_deadlines(self) -> None:
        while True:
            await asyncio.sleep(_DEADLINE_CHECK_SECONDS)
            now = self._loop.time()
            for http_connection in list(self._context.connections):
                http_connection.check_deadlines(now)

    async def _wait_until_idle(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(http_connection.busy for http_connection in self._context.connections):
                    for http_connection in list(self._context.connections):
                        http_connection.close_if_idle()
                    await asyncio.sleep(_POLL_SECONDS)
