"""Accepts connections, and answers 503 instead of serving them when file descriptors run out.

Not the event loop's own server: uvloop resets the backlog of a listening socket, and when descriptors run out
it closes new connections without an answer.
"""

import asyncio
import errno
import logging
import os
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from headgate.front.door import Door, House
from headgate.front.guard import Refused
from headgate.front.visit import JSON, RETRY_LATER, head
from headgate.wire.violations import INVALID_REQUEST, encode_error

log = logging.getLogger("headgate.front")

# Others get their turn after so many new connections.
_MOST_AT_ONCE = 64
# Descriptors that client connections may not take: servers, spooled answers and storage need some.
_LEAST_RESERVED, _MOST_RESERVED = 16, 256
# When not even the spare descriptor is left, the listener rests for so long.
_REST_SECONDS = 0.2
# How often the log says that connections are refused.
_LOG_SECONDS = 60.0
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_REASON = "the gateway has no file descriptor left for this connection; try again later"
_BODY = encode_error(b"null", INVALID_REQUEST, _REASON)
_REFUSAL = head(503, JSON, len(_BODY), RETRY_LATER, close=True) + _BODY


class Acceptor:
    """Accepts from one listening socket, from now until `close`."""

    def __init__(self, listener: socket.socket, house: House) -> None:
        self._listener = listener
        self._house = house
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[object]] = set()
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        self._resting: asyncio.TimerHandle | None = None
        self._expected = 1
        self._logged = -_LOG_SECONDS
        limit = _limit()
        reserved = min(max(limit // 8, _LEAST_RESERVED), _MOST_RESERVED)
        # The kernel gives the lowest free number: one above these says how many are in use.
        self._most_served = limit - reserved
        self._most_lingering = limit - reserved // 2
        self._loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Accept nothing more."""
        if self._resting is not None:
            self._resting.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _accept(self) -> None:
        # Usually one client comes at a time, and to try once more in vain is what costs most here.
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
                self._take(connection)
        self._expected = min(2 * expected, _MOST_AT_ONCE)

    def _take(self, connection: socket.socket) -> None:
        number = connection.fileno()
        if number < self._most_served:
            self._open(connection, lambda: Door(self._house))
            return
        self._count_refused()
        if number < self._most_lingering:
            # Closed once the client has read why, or soon after.
            self._open(connection, lambda: Door(self._house, refused=Refused(503, _REASON)))
        else:
            _answer_and_close(connection)

    def _open(self, connection: socket.socket, make: Callable[[], Door]) -> None:
        connection.setblocking(False)
        task: asyncio.Task[object] = self._loop.create_task(
            self._loop.connect_accepted_socket(make, connection)
        )
        self._tasks.add(task)
        task.add_done_callback(self._opened)

    def _opened(self, task: "asyncio.Task[object]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("connection not opened", extra={"reason": str(error)})

    def _refuse_on_spare(self) -> bool:
        """Answer one connection on the spare descriptor; whether it could be had again."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            with suppress(OSError):
                _answer_and_close(self._listener.accept()[0])
                self._count_refused()
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            # Something else has taken it. The listener stays readable, so it must not be asked meanwhile.
            self._loop.remove_reader(self._listener.fileno())
            self._resting = self._loop.call_later(_REST_SECONDS, self._wake)
            return False
        return True

    def _wake(self) -> None:
        self._resting = None
        if self._spare is None and not self._refuse_on_spare():
            return
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _count_refused(self) -> None:
        self._house.refused_connections += 1
        now = self._loop.time()
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            log.warning(
                "connections are refused because file descriptors run out; raise the limit (ulimit -n)",
                extra={"limit": _limit()},
            )


def _limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def _answer_and_close(connection: socket.socket) -> None:
    """Say why, at once; closing before what the client has sent is read would reset the connection."""
    with connection, suppress(OSError):
        connection.setblocking(False)
        connection.send(_REFUSAL)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(_DISCARDED_BYTES)


_DISCARDED_BYTES = 64 * 1024
