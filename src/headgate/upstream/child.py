"""A stdio upstream: a child process in a group of its own, one JSON message per line."""

import asyncio
import os
import signal
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from headgate.domain.call import Answer
from headgate.domain.errors import Exhausted, UpstreamUnreachable
from headgate.domain.server import ServerSpec
from headgate.upstream.assembly import Assembly, Garbled, Limits, TooLarge
from headgate.upstream.inbox import Inbox
from headgate.upstream.link import Outgoing
from headgate.upstream.pending import Pending
from headgate.upstream.watchdog import Watchdog, end_group
from headgate.wire.cork import Cork
from headgate.wire.envelope import one_line
from headgate.wire.framing import pieces

# What every program needs to run; everything else is the operator's to give.
_INHERITED = ("PATH", "HOME", "LANG")
_STDERR_LINE_CHARACTERS = 500
# A child that leaves this much unread has stopped reading.
_MOST_UNREAD_BYTES = 16 * 1024 * 1024
_UNREAD_SECONDS = 10.0
# How long a child may take to leave after its input ended, and after it was told to.
_GRACE_SECONDS = 2.0


class ChildLink(asyncio.SubprocessProtocol):
    """The conversation with one child."""

    def __init__(self, spec: ServerSpec, limits: Limits, inbox: Inbox, stderr: deque[str]) -> None:
        self.pid: int | None = None
        self._stderr = stderr
        self._spec = spec
        self._inbox = inbox
        self._loop = asyncio.get_running_loop()
        self._assembly = Assembly(limits)
        self._pending = Pending(spec.name, self._send, inbox)
        self._lost: asyncio.Future[str] = self._loop.create_future()
        self._stdin: Cork | None = None
        self._unread: asyncio.TimerHandle | None = None
        self.exited = asyncio.Event()

    async def request(self, outgoing: Outgoing) -> Answer:
        """The child's answer; raises UpstreamError."""
        return await self._pending.request(outgoing)

    async def notify(self, message: bytes) -> None:
        """Send a notification."""
        await self._send(message)

    def adopt(self, version: str) -> None:
        """Nothing changes on a pipe."""

    async def lost(self) -> str:
        """Wait until the child is gone or of no use, and say why."""
        return await asyncio.shield(self._lost)

    async def _send(self, message: bytes) -> None:
        stdin = self._stdin
        if stdin is None or self._lost.done():
            raise UpstreamUnreachable(
                self._spec.name, self._lost.result() if self._lost.done() else "not started"
            )
        unread = stdin.get_write_buffer_size()
        if unread:
            self._mind_unread(unread)
        stdin.write(one_line(message) + b"\n")

    def _mind_unread(self, unread: int) -> None:
        if unread > _MOST_UNREAD_BYTES:
            raise Exhausted(f"{self._spec.name!r} does not read what it is sent")
        if self._unread is None:
            self._unread = self._loop.call_later(_UNREAD_SECONDS, self._still_unread, unread)

    def _still_unread(self, before: int) -> None:
        self._unread = None
        if self._stdin is not None and self._stdin.get_write_buffer_size() >= before:
            self._lose(f"it has read nothing for {_UNREAD_SECONDS:g} s")

    def _lose(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)
        self._pending.fail_all(reason)

    # What the event loop tells us about the child.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        process = cast("asyncio.SubprocessTransport", transport)
        self.pid = process.get_pid()
        self._stdin = Cork(cast("asyncio.WriteTransport", process.get_pipe_transport(0)), self._loop)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._keep_stderr(data)
            return
        try:
            for piece in pieces(data):
                self._assembly.add(piece.data)
                if piece.ends:
                    self._line()
        except TooLarge as error:
            self._lose(f"it sent {error}")

    def _line(self) -> None:
        if not self._assembly:
            return
        try:
            message = self._assembly.finish()
        except Garbled as error:
            self._pending.take_garbled(error)
        else:
            self._pending.take(message)

    def _keep_stderr(self, data: bytes) -> None:
        # Only the end of a flood can be of interest, so only that is decoded.
        for line in data[-16 * 1024 :].decode(errors="replace").splitlines():
            if line.strip():
                self._stderr.append(line[:_STDERR_LINE_CHARACTERS])

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            # Exit usually follows at once and knows more; a child that lives on without output is of no use.
            self._loop.call_later(0.05, self._lose, "it closed its output")
        elif fd == 0:
            self._loop.call_later(0.05, self._lose, "it closed its input")

    def process_exited(self) -> None:
        self.exited.set()
        self._lose("it ended")

    def close(self) -> None:
        """Forget what is under way."""
        self._lose("the gateway closed it")
        self._assembly.discard()
        if self._unread is not None:
            self._unread.cancel()


def environment(spec: ServerSpec) -> dict[str, str]:
    """What the child may know: what every program needs, and what the operator gave it."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ} | spec.env


@asynccontextmanager
async def open_child(
    spec: ServerSpec, limits: Limits, watchdog: Watchdog, inbox: Inbox, stderr: deque[str]
) -> AsyncIterator[ChildLink]:
    """Run the server's command for as long as the block lasts; raises UpstreamUnreachable."""
    loop = asyncio.get_running_loop()
    link = ChildLink(spec, limits, inbox, stderr)
    try:
        transport, _ = await loop.subprocess_exec(
            lambda: link,
            spec.command,
            *spec.args,
            env=environment(spec),
            cwd=spec.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise UpstreamUnreachable(spec.name, f"its command did not start ({error})") from error
    group = transport.get_pid()
    watchdog.watch(group)
    try:
        yield link
    finally:
        link.close()
        await asyncio.shield(_end(link, transport, group))
        watchdog.forget(group)


async def _end(link: ChildLink, transport: asyncio.SubprocessTransport, group: int) -> None:
    """Let the child go: its input ends, then it is asked, then it is made to, with all that it started."""
    stdin = transport.get_pipe_transport(0)
    if stdin is not None:
        stdin.close()
    for how in (signal.SIGTERM, signal.SIGKILL):
        if await _exits(link):
            break
        end_group(group, how)
    # Whatever else lives in the group has lost its parent.
    end_group(group, signal.SIGKILL)
    await _exits(link)
    transport.close()


async def _exits(link: ChildLink) -> bool:
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            await link.exited.wait()
    except TimeoutError:
        return False
    return True
