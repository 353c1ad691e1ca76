"""The stdio transport: a child process, one JSON message on each line, writes coalesced."""

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from headgate.domain.child_environment import inherited_environment, withheld_variables
from headgate.domain.errors import ResourceExhausted, UpstreamUnreachable
from headgate.domain.known_secrets import known_secrets, redact_values
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
from headgate.upstream.transport import SendAttempt
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

log = logging.getLogger("headgate.upstream")

_NO_CHAIN: Mapping[str, str] = {}
# A larger batch is written at once.
_MOST_BUFFERED_BYTES = 64 * 1024
# More than is shown of a line: redaction would not recognise half a secret.
_STDERR_LINE_CHARACTERS = 2000
# More than are shown, because the first lines of a private key tell what the others are.
_STDERR_LINES = 60
_STDERR_BYTES = 16 * 1024
# A child that leaves this much unread has stopped reading.
_MOST_UNREAD_BYTES = 16 * 1024 * 1024
_UNREAD_SECONDS = 10.0
# How long a child may take to exit after its input ended, and after SIGTERM.
_GRACE_SECONDS = 2.0
# A child that exits closes its pipes first: on a busy machine its exit follows after a while.
_EXIT_SECONDS = 0.7
# The last output is in the pipe already.
_LAST_OUTPUT_SECONDS = 0.1


@dataclass(eq=False)
class StdioTransport:
    """The connection to one child process over its pipes."""

    _spec: ServerSpec
    _process: ChildProcess
    limits: MessageLimits
    _router: NotificationRouter
    _stderr: deque[str]

    def __post_init__(self) -> None:
        self.pid: int | None = self._process.pid
        # Of this child alone; `_stderr` is shared by all children of the server.
        self._last_lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self._half_line = b""
        self._loop = asyncio.get_running_loop()
        self._pending = PendingRequests(self._spec.name, self._write_line, self._router)
        # Correlation by id is all that a call needs on a pipe.
        self.round_trip = self._pending.send_correlated
        self._lost: asyncio.Future[str] = self._loop.create_future()
        self._stdin: WriteCoalescer | None = None
        self._stdout = LineReader(
            self._process, MessageAssembler(self.limits), self._pending, self._mark_lost, self._output_closed
        )
        self._written = 0
        self._unread_check: asyncio.TimerHandle | None = None
        self._output_ended = asyncio.Event()
        self._errors_ended = asyncio.Event()

    async def connect(self) -> None:
        """Connect the pipes of the child; raises OSError."""
        await self._process.connect(
            PipeProtocol(lambda data: None, lambda: self._closed("input")),
            self._stdout,
            PipeProtocol(self._keep_stderr, self._stderr_ended),
        )
        if self._process.stdin is not None:
            on_unsent = partial(self._pending.fail_unsent, "it closed its input")
            self._stdin = WriteCoalescer(
                self._process.stdin, self._process.stdin_pipe, self._loop.call_soon, on_unsent
            )

    async def watch(self) -> None:
        """Wait for the exit of the child, and mark the connection as lost."""
        await self._process.exited.wait()
        # Its last output may still be in the pipe, which its own children can keep open.
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_OUTPUT_SECONDS):
                await self._output_ended.wait()
                await self._errors_ended.wait()
        self._mark_lost(self._reason_with_stderr(exit_reason(self._process.exit_code)))

    def _output_closed(self) -> None:
        self._output_ended.set()
        self._closed("output")

    def _closed(self, what: str) -> None:
        # The exit usually follows at once and knows more; a child without its pipes is of no use.
        self._loop.call_later(_EXIT_SECONDS, self._still_closed, what)

    def _still_closed(self, what: str) -> None:
        if not self._process.exited.is_set():
            self._mark_lost(self._reason_with_stderr(f"it closed its {what}"))

    def _reason_with_stderr(self, reason: str) -> str:
        return with_stderr(reason, self._last_lines, known_secrets(self._spec))

    async def send_notification(self, message: bytes) -> None:
        self._write_line(message)

    def set_protocol_version(self, version: str) -> None:
        """Nothing changes on a pipe."""

    async def wait_lost(self) -> str:
        return await asyncio.shield(self._lost)

    def _write_line(self, message: bytes, sending: SendAttempt | None = None, /) -> None:
        stdin = self._stdin
        if stdin is None or self._lost.done():
            reason = self._lost.result() if self._lost.done() else "not started"
            raise UpstreamUnreachable(self._spec.name, reason)
        if stdin.is_backlogged:
            self._check_unread(stdin.unread_bytes())
        if b"\n" in message or b"\r" in message:
            message = one_line(message)
        self._written += len(message) + 1
        stdin.write(message + b"\n", sending)

    def _check_unread(self, unread: int) -> None:
        if unread > _MOST_UNREAD_BYTES:
            raise ResourceExhausted(f"{self._spec.name!r} does not read what it is sent")
        if unread and self._unread_check is None:
            read = self._written - unread
            self._unread_check = self._loop.call_later(_UNREAD_SECONDS, self._still_unread, read)

    def _still_unread(self, read_before: int) -> None:
        self._unread_check = None
        if self._stdin is None:
            return
        unread = self._stdin.unread_bytes()
        if unread and self._written - unread <= read_before:
            self._mark_lost(f"it has read nothing for {_UNREAD_SECONDS:g} s")
        elif unread:
            self._check_unread(unread)

    def _mark_lost(self, reason: str) -> None:
        if not self._lost.done():
            # An answer may be among what is still queued.
            self._stdout.drain()
        if not self._lost.done():
            self._lost.set_result(reason)
        self._stdout.ended = True
        self._pending.fail_all(reason)

    def _keep_stderr(self, data: bytes) -> None:
        # Only the end of a flood is of interest, so only that is decoded.
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
        self._mark_lost("the gateway closed it")
        self._stdout.discard()
        if self._unread_check is not None:
            self._unread_check.cancel()


@dataclass(eq=False)
class LineReader(asyncio.Protocol):
    """Reads the messages that a child writes to its output, one on each line."""

    _process: ChildProcess
    _assembly: MessageAssembler
    _pending: PendingRequests
    _on_too_large: Callable[[str], None]
    _on_end: Callable[[], None]
    # What has arrived and waits for the next time slice.
    _fragments: deque[LineFragment] = field(default_factory=deque)
    _reading_paused = False
    # Set when the connection is lost: reading does not resume.
    ended = False

    def data_received(self, data: bytes) -> None:
        if not self._fragments and not self._assembly.size and data.find(b"\n") == len(data) - 1:
            # The usual case: one whole line.
            self._handle_line(data)
            return
        behind = bool(self._fragments)
        self._fragments.extend(line_fragments(data))
        if not behind:
            self._process_fragments()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()

    def _process_fragments(self) -> None:
        """Handle what is queued; after a time slice the child is paused until other work was done."""
        time_slice, was_paused, self._reading_paused = TimeSlice(), self._reading_paused, False
        while self._fragments and not self._reading_paused:
            self._add_fragment(self._fragments.popleft())
            self._reading_paused = time_slice.expired
        if self._reading_paused:
            self._process.pause_reading()
            asyncio.get_running_loop().call_soon(self._process_fragments)
        elif was_paused and not self.ended:
            self._process.resume_reading()

    def _add_fragment(self, fragment: LineFragment) -> None:
        try:
            self._assembly.add(fragment.data)
            if fragment.ends:
                self._handle_line()
        except MessageTooLarge as error:
            self._fragments.clear()
            self._process.pause_reading()
            self._on_too_large(f"it sent {error}")

    def _handle_line(self, whole: bytes = b"") -> None:
        if not self._assembly.size and (not whole or whole.isspace()):
            return
        try:
            accepts = self._pending.accepts_invalid_utf8
            message = read_message(whole, accepts) if whole else self._assembly.finish(accepts)
        except MalformedMessage as error:
            self._pending.handle_malformed(error)
        else:
            self._pending.handle_message(message)

    def drain(self) -> None:
        while self._fragments:
            self._add_fragment(self._fragments.popleft())

    def discard(self) -> None:
        self._assembly.discard()


@dataclass(eq=False, slots=True)
class WriteCoalescer:
    """Gathers the messages of one iteration of the event loop into one write to a pipe."""

    _transport: asyncio.WriteTransport
    _pipe: int
    _call_soon: Callable[[Callable[[], None]], object]
    # Called with requests of which the pipe took no byte.
    _on_refused: Callable[[list[SendAttempt]], None]
    _parts: list[bytes] = field(default_factory=list)
    _sendings: list[SendAttempt] = field(default_factory=list)
    _size: int = 0
    # Whether the pipe was full at the last write.
    is_backlogged: bool = False

    def write(self, data: bytes, sending: SendAttempt | None) -> None:
        """Write `data` together with everything else of this iteration."""
        if not self._parts:
            self._call_soon(self.flush)
        self._parts.append(data)
        if sending is not None:
            self._sendings.append(sending)
        self._size += len(data)
        if self._size > _MOST_BUFFERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what has been gathered."""
        # The pipe is written to here, because the transport does not tell whether a failed write had begun.
        if not self._parts:
            return
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        sendings = self._sendings
        self._parts, self._sendings, self._size = [], [], 0
        written = 0
        try:
            if self._transport.is_closing():
                self._on_refused(sendings)
                return
            if not self._transport.get_write_buffer_size():
                written = os.write(self._pipe, data)
        except BlockingIOError:
            # The pipe is full: the transport waits until there is room.
            written = 0
        except OSError:
            # The other end is closed.
            self._transport.abort()
            self._on_refused(sendings)
            return
        self.is_backlogged = written < len(data)
        if self.is_backlogged:
            self._transport.write(memoryview(data)[written:])

    def unread_bytes(self) -> int:
        """How many bytes the child has not read yet, beyond the capacity of the pipe."""
        return self._size + self._transport.get_write_buffer_size()


def stdio_environment(spec: ServerSpec, chain: Mapping[str, str] = _NO_CHAIN) -> dict[str, str]:
    """The environment of the child: inherited variables, those of its configuration, and `chain`."""
    withheld = withheld_variables(os.environ, spec.inherit_env)
    if withheld:
        log.info("variables are not passed on", extra={"server": spec.name, "variables": ", ".join(withheld)})
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

    `chain` names the gateways that started this one, for a child that is a gateway too; `files` is the soft
    limit of open files of the child, where it differs from the gateway's own.
    """
    mark = watchdog.new_mark()
    try:
        command = [spec.command, *spec.args]
        variables = marked_environment(stdio_environment(spec, chain), mark)
        process = await ChildProcess.start(command, variables, spec.cwd, watchdog, files)
    except (OSError, ValueError) as error:
        reason = redact_values(system_error_reason(error, str(error)), known_secrets(spec))
        raise UpstreamUnreachable(spec.name, f"its command did not start ({reason})") from error
    transport = StdioTransport(spec, process, limits, router, stderr)
    try:
        async with BackgroundTasks() as background:
            try:
                await transport.connect()
            except OSError as error:
                reason = system_error_reason(error, str(error))
                raise UpstreamUnreachable(spec.name, f"it was not reached ({reason})") from error
            background.start(transport.watch(), name=f"exit of {spec.name}")
            yield transport
    finally:
        transport.close()
        await asyncio.shield(_end_process(process, mark, watchdog.sweeper))
        watchdog.forget(process.pid)


async def _end_process(process: ChildProcess, mark: str, sweeper: DescendantSweeper) -> None:
    """End the child and its descendants: close its input, then SIGTERM, then SIGKILL."""
    # After its exit nothing leads to a descendant that left its group and its environment.
    alive = not process.exited.is_set()
    below = await asyncio.to_thread(descendants_of, process.pid) if alive else []
    if process.stdin is not None:
        process.stdin.close()
    for how in (signal.SIGTERM, signal.SIGKILL):
        if await _exits_in_time(process):
            break
        end_group(process.pid, how)
    # What is left of the group has lost its parent.
    end_group(process.pid, signal.SIGKILL)
    await _exits_in_time(process)
    await asyncio.to_thread(end_processes, below)
    await sweeper.end_marked(mark)
    process.close()


async def _exits_in_time(process: ChildProcess) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_SECONDS):
            await process.exited.wait()
            return True
    return False
