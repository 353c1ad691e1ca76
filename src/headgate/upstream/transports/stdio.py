"""The stdio transport: a child process in its own process group, one JSON message per line, writes
coalesced.
"""

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from headgate.domain.child_environment import inherited_environment, withheld_variables
from headgate.domain.errors import ResourceExhausted, UpstreamUnreachable
from headgate.domain.known_secrets import known_secrets, redact_values
from headgate.domain.mcp_request import McpResponse
from headgate.domain.server_spec import ServerSpec
from headgate.event_loop import BackgroundTasks, TimeSlice
from headgate.protocol.framing import LineFragment, line_fragments
from headgate.protocol.jsonrpc import one_line
from headgate.upstream.errors import exit_reason, system_error_reason, with_stderr
from headgate.upstream.message_assembly import (
    MalformedMessage,
    MessageAssembler,
    MessageLimits,
    MessageTooLarge,
    read_message,
)
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.pending_requests import PendingRequests
from headgate.upstream.transport import OutgoingRequest, SendAttempt
from headgate.upstream.transports.child_process import (
    ChildProcess,
    DescendantSweeper,
    PipeProtocol,
    Watchdog,
    descendants_of,
    end_group,
    end_processes,
    marked_environment,
)

# More than this leaves at once.
_MOST_BUFFERED_BYTES = 64 * 1024


class WriteCoalescer:
    """Stands in front of a pipe; a message in two parts, or many messages at once, become one write."""

    __slots__ = ("_call_soon", "_on_refused", "_parts", "_pipe", "_sendings", "_size", "_transport")

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        pipe: int,
        loop: asyncio.AbstractEventLoop,
        on_refused: Callable[[list[SendAttempt]], None],
    ) -> None:
        """`on_refused` is told of requests of which not a single byte was taken."""
        self._transport = transport
        self._pipe = pipe
        self._call_soon = loop.call_soon
        self._on_refused = on_refused
        self._parts: list[bytes] = []
        self._sendings: list[SendAttempt] = []
        self._size = 0

    def write(self, data: bytes, sending: SendAttempt | None) -> None:
        """Send `data` with everything else that is written in this turn."""
        if not self._parts:
            self._call_soon(self.flush)
        self._parts.append(data)
        if sending is not None:
            self._sendings.append(sending)
        self._size += len(data)
        if self._size > _MOST_BUFFERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what has been gathered."""
        if not self._parts:
            return
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        sendings = self._sendings
        self._parts, self._sendings, self._size = [], [], 0
        if not self._write_to_pipe(data) and sendings:
            self._on_refused(sendings)

    def _write_to_pipe(self, data: bytes) -> bool:
        """Whether the pipe took it, or may still.

        Written here and not by the transport, which does not tell whether a write that failed had begun.
        """
        if self._transport.is_closing():
            return False
        taken = 0
        if not self._transport.get_write_buffer_size():
            try:
                taken = os.write(self._pipe, data)
            except BlockingIOError:
                # The pipe is full: the transport waits until there is room.
                taken = 0
            except OSError:
                # Nobody reads the other end any more.
                self._transport.abort()
                return False
        if taken < len(data):
            self._transport.write(memoryview(data)[taken:])
        return True

    def get_write_buffer_size(self) -> int:
        """How many bytes wait for the reader."""
        return self._size + self._transport.get_write_buffer_size()


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


class StdioTransport:
    """The conversation with one child."""

    def __init__(
        self,
        spec: ServerSpec,
        process: ChildProcess,
        limits: MessageLimits,
        router: NotificationRouter,
        stderr: deque[str],
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
        self._assembly = MessageAssembler(limits)
        self._pending = PendingRequests(spec.name, self._write_line, router)
        self._lost: asyncio.Future[str] = self._loop.create_future()
        self._stdin: WriteCoalescer | None = None
        self._written = 0
        self._unread: asyncio.TimerHandle | None = None
        # What has come and waits for the next turn.
        self._fragments: deque[LineFragment] = deque()
        self._reading_paused = False
        self._output_ended = asyncio.Event()
        self._errors_ended = asyncio.Event()

    async def connect(self) -> None:
        """Connect the child's pipes, and watch over it."""
        await self._process.connect(
            PipeProtocol(lambda data: None, lambda: self._closed("input")),
            PipeProtocol(self._on_stdout, self._output_closed),
            PipeProtocol(self._keep_stderr, self._stderr_ended),
        )
        if self._process.stdin is not None:
            self._stdin = WriteCoalescer(
                self._process.stdin, self._process.stdin_pipe, self._loop, self._on_unsent
            )

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
        self._mark_lost(self._reason_with_stderr(exit_reason(self._process.exit_code)))

    def _output_closed(self) -> None:
        self._output_ended.set()
        self._closed("output")

    def _closed(self, what: str) -> None:
        # Exit usually follows at once and knows more; a child that lives on without its pipes is of no use.
        self._loop.call_later(_EXIT_SECONDS, self._still_closed, what)

    def _still_closed(self, what: str) -> None:
        if not self._process.exited.is_set():
            self._mark_lost(self._reason_with_stderr(f"it closed its {what}"))

    def _reason_with_stderr(self, reason: str) -> str:
        """The reason with what the child wrote to stderr last."""
        return with_stderr(reason, self._last_lines, known_secrets(self._spec))

    def round_trip(self, outgoing: OutgoingRequest) -> Coroutine[Any, Any, McpResponse]:
        """The child's answer; raises UpstreamError. Not a coroutine of its own: every call comes by here."""
        return self._pending.send_correlated(outgoing)

    async def send_notification(self, message: bytes) -> None:
        """Send a notification."""
        self._write_line(message)

    def set_protocol_version(self, version: str) -> None:
        """Nothing changes on a pipe."""

    async def wait_lost(self) -> str:
        """Wait until the child is gone or of no use, and say why."""
        return await asyncio.shield(self._lost)

    def _write_line(self, message: bytes, sending: SendAttempt | None = None, /) -> None:
        stdin = self._stdin
        if stdin is None or self._lost.done():
            raise UpstreamUnreachable(
                self._spec.name, self._lost.result() if self._lost.done() else "not started"
            )
        unread = stdin.get_write_buffer_size()
        if unread:
            self._check_unread(unread)
        line = one_line(message) + b"\n"
        self._written += len(line)
        stdin.write(line, sending)

    def _on_unsent(self, sendings: list[SendAttempt]) -> None:
        self._pending.fail_unsent(sendings, "it closed its input")

    def _check_unread(self, unread: int) -> None:
        if unread > _MOST_UNREAD_BYTES:
            raise ResourceExhausted(f"{self._spec.name!r} does not read what it is sent")
        if self._unread is None:
            taken = self._written - unread
            self._unread = self._loop.call_later(_UNREAD_SECONDS, self._still_unread, taken)

    def _still_unread(self, before: int) -> None:
        self._unread = None
        if self._stdin is None:
            return
        unread = self._stdin.get_write_buffer_size()
        if unread and self._written - unread <= before:
            self._mark_lost(f"it has read nothing for {_UNREAD_SECONDS:g} s")
        elif unread:
            self._check_unread(unread)

    def _mark_lost(self, reason: str) -> None:
        if not self._lost.done():
            # Among what waits may be an answer.
            while self._fragments:
                self._add_fragment(self._fragments.popleft())
        if not self._lost.done():
            self._lost.set_result(reason)
        self._pending.fail_all(reason)

    def _on_stdout(self, data: bytes) -> None:
        if not self._fragments and not self._assembly and data.find(b"\n") == len(data) - 1:
            # The usual case: one line, and all of it.
            self._handle_line(data)
            return
        behind = bool(self._fragments)
        self._fragments.extend(line_fragments(data))
        if not behind:
            self._process_fragments()

    def _process_fragments(self) -> None:
        """Take in what waits; a child that says very much is read on when others have had their turn."""
        time_slice, rested, self._reading_paused = TimeSlice(), self._reading_paused, False
        while self._fragments and not self._reading_paused:
            self._add_fragment(self._fragments.popleft())
            self._reading_paused = time_slice.expired
        if self._reading_paused:
            self._process.pause_reading()
            self._loop.call_soon(self._process_fragments)
        elif rested and not self._lost.done():
            self._process.resume_reading()

    def _add_fragment(self, piece: LineFragment) -> None:
        try:
            self._assembly.add(piece.data)
            if piece.ends:
                self._handle_line()
        except MessageTooLarge as error:
            self._fragments.clear()
            self._process.pause_reading()
            self._mark_lost(f"it sent {error}")

    def _handle_line(self, whole: bytes = b"") -> None:
        """One line has come: `whole`, or what has been assembled of it."""
        if not self._assembly and (not whole or whole.isspace()):
            return
        try:
            accepts = self._pending.accepts_invalid_utf8
            message = read_message(whole, accepts) if whole else self._assembly.finish(accepts)
        except MalformedMessage as error:
            self._pending.handle_malformed(error)
        else:
            self._pending.handle_message(message)

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
        self._mark_lost("the gateway closed it")
        self._assembly.discard()
        if self._unread is not None:
            self._unread.cancel()


def stdio_environment(spec: ServerSpec, chain: Mapping[str, str] = _NO_CHAIN) -> dict[str, str]:
    """What the child gets: what reaches the network, what the operator gave it, and who started it."""
    held = withheld_variables(os.environ, spec.inherit_env)
    if held:
        log.info("variables are not passed on", extra={"server": spec.name, "variables": ", ".join(held)})
    return {**inherited_environment(os.environ, spec.inherit_env), **spec.env, **chain}


@asynccontextmanager
async def open_stdio(
    spec: ServerSpec,
    limits: MessageLimits,
    watchdog: Watchdog,
    router: NotificationRouter,
    stderr: deque[str],
    chain: Mapping[str, str] = _NO_CHAIN,
    files: int | None = None,
) -> AsyncIterator[StdioTransport]:
    """Run the server's command for as long as the block lasts; raises UpstreamUnreachable.

    `chain` tells a gateway that is started which gateways have started it; `files` is the child's soft limit
    of open files, unless it is that of the gateway.
    """
    mark = watchdog.new_mark()
    try:
        command = [spec.command, *spec.args]
        variables = marked_environment(stdio_environment(spec, chain), mark)
        process = await ChildProcess.start(command, variables, spec.cwd, watchdog, files)
    except (OSError, ValueError) as error:
        raise UpstreamUnreachable(
            spec.name,
            f"its command did not start "
            f"({redact_values(system_error_reason(error, str(error)), known_secrets(spec))})",
        ) from error
    transport = StdioTransport(spec, process, limits, router, stderr)
    try:
        async with BackgroundTasks() as background:
            try:
                await transport.connect()
            except OSError as error:
                raise UpstreamUnreachable(
                    spec.name, f"it was not reached ({system_error_reason(error, str(error))})"
                ) from error
            background.start(transport.watch(), name=f"exit of {spec.name}")
            yield transport
    finally:
        transport.close()
        await asyncio.shield(_end_process(process, mark, watchdog.sweeper))
        watchdog.forget(process.pid)


async def _end_process(process: ChildProcess, mark: str, sweeper: DescendantSweeper) -> None:
    """Let the child go: its input ends, then it is asked, then it is made to, with all that it started."""
    # Once it has ended nothing leads from it to a process that left its group and its environment.
    alive = not process.exited.is_set()
    below = await asyncio.to_thread(descendants_of, process.pid) if alive else []
    if process.stdin is not None:
        process.stdin.close()
    for how in (signal.SIGTERM, signal.SIGKILL):
        if await _exits_in_time(process):
            break
        end_group(process.pid, how)
    # Whatever else lives in the group has lost its parent.
    end_group(process.pid, signal.SIGKILL)
    await _exits_in_time(process)
    await asyncio.to_thread(end_processes, below)
    await sweeper.end_marked(mark)
    process.close()


async def _exits_in_time(process: ChildProcess) -> bool:
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            await process.exited.wait()
    except TimeoutError:
        return False
    return True
