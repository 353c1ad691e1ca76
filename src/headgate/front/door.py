"""The HTTP server's door: uvicorn's protocol with the limits that it lacks.

A peer that sends its head or body too slowly, a head that is too large, or a reader that does not read is
shown out; and a client that leaves cancels what it asked for, without a task per request that watches for it.
"""

import asyncio
from typing import Any, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from headgate.wire.cork import Cork


class DoorLimits(msgspec.Struct, frozen=True):
    """How much and how slowly a client may send."""

    header_bytes: int = 32 * 1024
    headers: int = 100
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    # A client that takes nothing of its answer for so long is gone.
    write_seconds: float = 30.0


class Door(HttpToolsProtocol):
    """One connection of a client."""

    limits = DoorLimits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._in_body = False
        self._refused = False
        self._reading_timer: asyncio.TimerHandle | None = None
        self._writing_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Head and body of a response in one system call: they cost more here than anything else.
        self.transport = cast("asyncio.Transport", Cork(transport, self.loop))
        self._time_reading(self.limits.header_seconds)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > self.limits.header_bytes:
            self._refuse(431)
        elif self._in_head and self._head_bytes:
            self._time_reading(self.limits.header_seconds)
        elif self._in_body:
            self._time_reading(self.limits.body_seconds)
        elif self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None

    def _time_reading(self, seconds: float) -> None:
        """Start the clock, once per head and once per body: sending slowly must not wind it up again."""
        if self._reading_timer is None:
            self._reading_timer = self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._reading_timer = None
        if self._in_body:
            self._refuse(408)
        elif not self.transport.is_closing():
            self._refused = True
            self.transport.close()

    def _refuse(self, status: int) -> None:
        self._refused = True
        if not self.transport.is_closing():
            cycle: RequestResponseCycle | None = self.cycle
            if cycle is None or not cycle.response_started:
                self.transport.write(STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()

    # What the parser tells us.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        size = sum(len(name) + len(value) for name, value in self.headers)
        if len(self.headers) > self.limits.headers or size > self.limits.header_bytes:
            self._refuse(431)
            return
        if self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None
        self._in_body = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        # Between two requests no head is being read.
        self._in_head = True
        if not self._refused:
            super().on_message_complete()

    # What happens to the client.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        self._task = task

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._reading_timer, self._writing_timer):
            if timer is not None:
                timer.cancel()
        if self._task is not None and not self._task.done() and not self.cycle.response_complete:
            self._task.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing_timer is None:
            self._writing_timer = self.loop.call_later(self.limits.write_seconds, self._never_read)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing_timer is not None:
            self._writing_timer.cancel()
            self._writing_timer = None

    def _never_read(self) -> None:
        self._writing_timer = None
        self.transport.abort()


def door_with(limits: DoorLimits) -> type[Door]:
    """The protocol class that uvicorn is to use."""
    return type("Door", (Door,), {"limits": limits})
