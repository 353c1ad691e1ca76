"""A stdio upstream: a child process in a group of its own, one JSON message per line."""

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from headgate.catalog.turns import Turn
from headgate.domain.call import Answer
from headgate.domain.child_environment import inherited, withheld
from headgate.domain.errors import Exhausted, UpstreamUnreachable
from headgate.domain.known_secrets import known_secrets, without_values
from headgate.domain.server import ServerSpec
from headgate.upstream.assembly import Assembly, Garbled, Limits, TooLarge, read
from headgate.upstream.background import Background
from headgate.upstream.causes import ended, system_cause, with_stderr
from headgate.upstream.cork import Cork
from headgate.upstream.descendants import (
    DescendantSweeper,
    descendants_of,
    end_processes,
    marked_environment,
)
from headgate.upstream.inbox import Inbox
from headgate.upstream.link import Outgoing, Sending
from headgate.upstream.pending import Pending
from headgate.upstream.process import Pipe, Process
from headgate.upstream.watchdog import Watchdog, end_group
from headgate.wire.envelope import one_line
from headgate.wire.framing import Piece, pieces

log = logging.getLogger("headgate.upstream")

_NO_CHAIN: Mapping[str, str] = {}
# More than is shown of a line: half a secret would not be known as one.
_STDERR_LINE_CHARACTERS = 2000
# More than are shown, because the first lines of a private key say what the others are.
_STDERR_LINES = 60
_STDERR_BYTES = 16 * 1024
# A child that leaves this much unread has stopped reading.
_MOST_UNREAD_BYTES = 16 * 1024 * 1024
_UNREAD_SECONDS = 10.0
# How long a child may take to leave after its input ended, and after it was told to.
_GRACE_SECONDS = 2.0
# A child that ends closes its pipes before: on a busy machine its exit follows after a while.
_EXIT_SECONDS = 0.3
# What it wrote last is in the pipe already.
_LAST_OUTPUT_SECONDS = 0.1


class ChildLink:
    """The conversation with one child."""

    def __init__(
        self, spec: ServerSpec, process: Process, limits: Limits, inbox: Inbox, stderr: deque[str]
    ) -> None:
        self.pid: int | None = process.pid
        self._spec = spec
        self._process = process
        self._stderr = stderr
        # Of this child alone; others of the same server share the other one.
        self._last_lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self._half_line = b""
        self._loop = asyncio.get_running_loop()
        self.limits = limits
        self._assembly = Assembly(limits)
        self._pending = Pending(spec.name, self._send, inbox)
        self._lost: asyncio.Future[str] = self._loop.create_future()
        self._stdin: Cork | None = None
        self._written = 0
        self._unread: asyncio.TimerHandle | None = None
        # What has come and waits for the next turn.
        self._waiting: deque[Piece] = deque()
        self._resting = False
        self._output_ended = asyncio.Event()
        self._errors_ended = asyncio.Event()

    async def connect(self) -> None:
        """Connect the child's pipes, and watch over it."""
        await self._process.connect(
            Pipe(lambda data: None, lambda: self._closed("input")),
            Pipe(self._data, self._output_closed),
            Pipe(self._keep_stderr, self._stderr_ended),
        )
        if self._process.stdin is not None:
            self._stdin = Cork(self._process.stdin, self._process.stdin_pipe, self._loop, self._refused)

    async def watch(self) -> None:
        """Wait for the child's end."""
        await self._process.exited.wait()
        try:
            # What it said last may still be in the pipe, which others that it started can keep open.
            async with asyncio.timeout(_LAST_OUTPUT_SECONDS):
                await self._output_ended.wait()
                await self._errors_ended.wait()
        except TimeoutError:
            pass
        self._lose(self._explained(ended(self._process.code)))

    def _output_closed(self) -> None:
        self._output_ended.set()
        self._closed("output")

    def _closed(self, what: str) -> None:
        # Exit usually follows at once and knows more; a child that lives on without its pipes is of no use.
        self._loop.call_later(_EXIT_SECONDS, self._still_closed, what)

    def _still_closed(self, what: str) -> None:
        if not self._process.exited.is_set():
            self._lose(self._explained(f"it closed its {what}"))

    def _explained(self, reason: str) -> str:
        """The reason with what the child wrote to stderr last."""
        return with_stderr(reason, self._last_lines, known_secrets(self._spec))

    def request(self, outgoing: Outgoing) -> Coroutine[Any, Any, Answer]:
        """The child's answer; raises UpstreamError. Not a coroutine of its own: every call comes by here."""
        return self._pending.request(outgoing)

    async def notify(self, message: bytes) -> None:
        """Send a notification."""
        self._send(message)

    def adopt(self, version: str) -> None:
        """Nothing changes on a pipe."""

    async def lost(self) -> str:
        """Wait until the child is gone or of no use, and say why."""
        return await asyncio.shield(self._lost)

    def _send(self, message: bytes, sending: Sending | None = None, /) -> None:
        stdin = self._stdin
        if stdin is None or self._lost.done():
            raise UpstreamUnreachable(
                self._spec.name, self._lost.result() if self._lost.done() else "not started"
            )
        unread = stdin.get_write_buffer_size()
        if unread:
            self._mind_unread(unread)
        line = one_line(message) + b"\n"
        self._written += len(line)
        stdin.write(line, sending)

    def _refused(self, sendings: list[Sending]) -> None:
        self._pending.refuse(sendings, "it closed its input")

    def _mind_unread(self, unread: int) -> None:
        if unread > _MOST_UNREAD_BYTES:
            raise Exhausted(f"{self._spec.name!r} does not read what it is sent")
        if self._unread is None:
            taken = self._written - unread
            self._unread = self._loop.call_later(_UNREAD_SECONDS, self._still_unread, taken)

    def _still_unread(self, before: int) -> None:
        self._unread = None
        if self._stdin is None:
            return
        unread = self._stdin.get_write_buffer_size()
        if unread and self._written - unread <= before:
            self._lose(f"it has read nothing for {_UNREAD_SECONDS:g} s")
        elif unread:
            self._mind_unread(unread)

    def _lose(self, reason: str) -> None:
        if not self._lost.done():
            # Among what waits may be an answer.
            while self._waiting:
                self._take(self._waiting.popleft())
        if not self._lost.done():
            self._lost.set_result(reason)
        self._pending.fail_all(reason)

    def _data(self, data: bytes) -> None:
        if not self._waiting and not self._assembly and data.find(b"\n") == len(data) - 1:
            # The usual case: one line, and all of it.
            self._line(data)
            return
        behind = bool(self._waiting)
        self._waiting.extend(pieces(data))
        if not behind:
            self._work()

    def _work(self) -> None:
        """Take in what waits; a child that says very much is read on when others have had their turn."""
        turn, rested, self._resting = Turn(), self._resting, False
        while self._waiting and not self._resting:
            self._take(self._waiting.popleft())
            self._resting = turn.over
        if self._resting:
            self._process.stop_reading()
            self._loop.call_soon(self._work)
        elif rested and not self._lost.done():
            self._process.read_on()

    def _take(self, piece: Piece) -> None:
        try:
            self._assembly.add(piece.data)
            if piece.ends:
                self._line()
        except TooLarge as error:
            self._waiting.clear()
            self._process.stop_reading()
            self._lose(f"it sent {error}")

    def _line(self, whole: bytes = b"") -> None:
        """One line has come: `whole`, or what has been assembled of it."""
        if not self._assembly and (not whole or whole.isspace()):
            return
        try:
            accepts = self._pending.accepts_invalid_utf8
            message = read(whole, accepts) if whole else self._assembly.finish(accepts)
        except Garbled as error:
            self._pending.take_garbled(error)
        else:
            self._pending.take(message)

    def _keep_stderr(self, data: bytes) -> None:
        # Only the end of a flood can be of interest, so only that is decoded.
        *lines, self._half_line = (self._half_line + data)[-_STDERR_BYTES:].split(b"\n")
        for line in lines:
            if line.strip():
                text = line.decode(errors="replace").strip("\r")[:_STDERR_LINE_CHARACTERS]
                self._stderr.append(text)
                self._last_lines.append(text)

    def _stderr_ended(self) -> None:
        self._keep_stderr(b"\n")
        self._errors_ended.set()

    def close(self) -> None:
        """Forget what is under way."""
        self._lose("the gateway closed it")
        self._assembly.discard()
        if self._unread is not None:
            self._unread.cancel()


def environment(spec: ServerSpec, chain: Mapping[str, str] = _NO_CHAIN) -> dict[str, str]:
    """What the child gets: what reaches the network, what the operator gave it, and who started it."""
    held = withheld(os.environ, spec.inherit_env)
    if held:
        log.info("variables are not passed on", extra={"server": spec.name, "variables": ", ".join(held)})
    return {**inherited(os.environ, spec.inherit_env), **spec.env, **chain}


@asynccontextmanager
async def open_child(
    spec: ServerSpec,
    limits: Limits,
    watchdog: Watchdog,
    inbox: Inbox,
    stderr: deque[str],
    chain: Mapping[str, str] = _NO_CHAIN,
    files: int | None = None,
) -> AsyncIterator[ChildLink]:
    """Run the server's command for as long as the block lasts; raises UpstreamUnreachable.

    `chain` tells a gateway that is started which gateways have started it; `files` is the child's soft limit
    of open files, unless it is that of the gateway.
    """
    mark = watchdog.new_mark()
    try:
        command = [spec.command, *spec.args]
        variables = marked_environment(environment(spec, chain), mark)
        process = await Process.start(command, variables, spec.cwd, watchdog, files)
    except (OSError, ValueError) as error:
        raise UpstreamUnreachable(
            spec.name,
            f"its command did not start "
            f"({without_values(system_cause(error, str(error)), known_secrets(spec))})",
        ) from error
    link = ChildLink(spec, process, limits, inbox, stderr)
    try:
        async with Background() as background:
            try:
                await link.connect()
            except OSError as error:
                raise UpstreamUnreachable(
                    spec.name, f"it was not reached ({system_cause(error, str(error))})"
                ) from error
            background.start(link.watch())
            yield link
    finally:
        link.close()
        await asyncio.shield(_end(process, mark, watchdog.sweeper))
        watchdog.forget(process.pid)


async def _end(process: Process, mark: str, sweeper: DescendantSweeper) -> None:
    """Let the child go: its input ends, then it is asked, then it is made to, with all that it started."""
    # Once it has ended nothing leads from it to a process that left its group and its environment.
    alive = not process.exited.is_set()
    below = await asyncio.to_thread(descendants_of, process.pid) if alive else []
    if process.stdin is not None:
        process.stdin.close()
    for how in (signal.SIGTERM, signal.SIGKILL):
        if await _exits(process):
            break
        end_group(process.pid, how)
    # Whatever else lives in the group has lost its parent.
    end_group(process.pid, signal.SIGKILL)
    await _exits(process)
    await asyncio.to_thread(end_processes, below)
    await sweeper.end_marked(mark)
    process.close()


async def _exits(process: Process) -> bool:
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            await process.exited.wait()
    except TimeoutError:
        return False
    return True
