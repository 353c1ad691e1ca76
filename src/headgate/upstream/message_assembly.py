"""Assembles messages from the pieces in which they arrive: small ones in memory, large ones on disk."""

import codecs
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import DecodeError, Raw, ValidationError

from headgate.domain.errors import Effect, InvalidUpstreamResponse, ResponseNotStored, UpstreamError
from headgate.domain.payload import Payload
from headgate.protocol.json_scan import JsonObjectScanner, NotJsonObject, object_members
from headgate.protocol.jsonrpc import Envelope, decode_envelope
from headgate.protocol.message_meta import may_be_marked
from headgate.protocol.result_conversion import INPUT_REQUIRED

log = logging.getLogger("headgate.upstream")

# Read and written at once: large enough to be cheap, small enough not to stall the event loop.
CHUNK_BYTES = 256 * 1024
# Kept of a message that cannot be written: enough to tell which request it answers.
EDGE_BYTES = 4096
# Longer than any mark, which the end of a piece may cut.
_MARK_BYTES = 32
# A full disk loses many messages; that is logged at most this often.
_REPORT_SECONDS = 60.0


class SpoolFile:
    """An unnamed file, which a crash leaves no trace of, to which a message is appended as it arrives."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 (closed by its taker)
        self.size = 0

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file.fileno(), view) :]
        self.size += len(data)

    def overwrite(self, start: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._file.fileno(), view, start)
            view, start = view[written:], start + written

    def read(self, start: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, start)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()


class MessageEdges:
    """The first and last bytes of a message that cannot be written, read like a file."""

    def __init__(self, head: bytes = b"", tail: bytes = b"", size: int = 0) -> None:
        self._head = head
        self._tail = tail
        self.size = size

    @classmethod
    def of(cls, file: SpoolFile) -> "MessageEdges":
        """The edges of what was written before the disk was full."""
        last = max(0, file.size - EDGE_BYTES)
        return cls(file.read(0, EDGE_BYTES), file.read(last, EDGE_BYTES), file.size)

    def append(self, data: bytes) -> None:
        self._head += data[: max(0, EDGE_BYTES - len(self._head))]
        self._tail = (self._tail + data[-EDGE_BYTES:])[-EDGE_BYTES:]
        self.size += len(data)

    def read(self, start: int, length: int) -> bytes:
        """Bytes near either end; nothing of the rest."""
        if start + length <= len(self._head):
            return self._head[start : start + length]
        offset = start - (self.size - len(self._tail))
        return self._tail[offset : offset + length] if offset >= 0 else b""

    def close(self) -> None:
        pass


class SpoolReports:
    """Logs that large messages cannot be written, at most once a minute."""

    def __init__(self) -> None:
        self._lost = 0
        self._next_report = 0.0

    def record_lost(self, directory: Path, error: OSError) -> None:
        self._lost += 1
        now = time.monotonic()
        if now < self._next_report:
            return
        self._next_report = now + _REPORT_SECONDS
        log.error(
            "large answers are lost: they cannot be written; free disk space or make the directory writable",
            extra={"path": str(directory), "reason": os_error_reason(error), "lost": self._lost},
        )
        self._lost = 0


def os_error_reason(error: OSError) -> str:
    """The message of the system, without the path."""
    return error.strerror or type(error).__name__


class SpooledValue:
    """One JSON value inside a spooled message; closing it closes the file."""

    def __init__(self, file: SpoolFile, start: int, end: int, *, marked: bool = False) -> None:
        self._file = file
        # Whether the message may contain a `_meta` key that ends at the gateway.
        self.marked = marked
        self.start = start
        self._end = end

    def overwrite(self, start: int, data: bytes) -> None:
        """Overwrite bytes of the value from its `start` on; its size stays the same."""
        self._file.overwrite(self.start + start, data)

    def head_and_tail(self, length: int) -> bytes:
        last = max(self.start, self._end - length)
        return self._file.read(self.start, min(length, self.size)) + self._file.read(last, self._end - last)

    @property
    def size(self) -> int:
        return self._end - self.start

    def fileno(self) -> int:
        return self._file.fileno()

    @property
    def first(self) -> bytes:
        return self._file.read(self.start, 1)

    def chunks(self) -> Iterator[bytes]:
        for start in range(self.start, self._end, CHUNK_BYTES):
            yield self._file.read(start, min(CHUNK_BYTES, self._end - start))

    def close(self) -> None:
        self._file.close()


def discard_payload(payload: Payload) -> None:
    if not isinstance(payload, bytes):
        payload.close()


class MessageTooLarge(Exception):
    """A message that is larger than the gateway accepts."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a message of more than {limit // 2**20} MiB")


class MalformedMessage(ValueError):
    """Bytes that are not a message; `evidence` is their start and end, to tell whose answer they were."""

    def __init__(self, what: str, evidence: bytes = b"") -> None:
        super().__init__(what)
        self.evidence = evidence


def _evidence(data: bytes) -> bytes:
    return data if len(data) <= 2 * EDGE_BYTES else data[:EDGE_BYTES] + data[-EDGE_BYTES:]


class UpstreamMessage(msgspec.Struct):
    """A message of a server: its envelope, and its result if it has one."""

    envelope: Envelope
    result: Payload = b""


class MessageNotStored(MalformedMessage):
    """A message that is too large for memory and cannot be written to disk."""

    def __init__(self, error: OSError, envelope: Envelope, *, has_result: bool) -> None:
        self.reason = os_error_reason(error)
        super().__init__(f"a message that cannot be stored ({self.reason})")
        self.envelope = envelope
        self._has_result = has_result

    @property
    def effect(self) -> Effect:
        """A result means that the call was executed, unless it requires input first."""
        done = self._has_result and INPUT_REQUIRED not in self.evidence
        return Effect.DONE if done else Effect.UNKNOWN


def unusable_answer(server: str, what: str, error: Exception) -> UpstreamError:
    if isinstance(error, MessageNotStored):
        return ResponseNotStored(server, what, error.reason, effect=error.effect)
    return InvalidUpstreamResponse(server, what, str(error))


# Whether the request that an envelope answers accepts text that is not UTF-8.
AcceptsInvalidUtf8 = Callable[[Envelope], bool]


def _never(envelope: Envelope) -> bool:
    return False


class _ToolCallError(msgspec.Struct):
    code: int
    message: str


def fault_of_answer(message: UpstreamMessage) -> str:
    """Why clients cannot read the answer to a tool call; empty if they can."""
    result = message.result
    if result:
        first = result[:1] if isinstance(result, bytes) else result.first
        return "" if first == b"{" else "a result that is no object"
    if not message.envelope.error:
        return "neither a result nor an error"
    try:
        msgspec.json.decode(message.envelope.error, type=_ToolCallError)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "an error that is no object with a code and a message"
    return ""


class MessageLimits(msgspec.Struct, frozen=True):
    """How large a message may get, and from which size and where it is stored on disk."""

    largest: int
    spool_above: int
    spool_directory: Path
    reports: SpoolReports = msgspec.field(default_factory=SpoolReports)


class MessageAssembler:
    """Collects the pieces of one message at a time."""

    def __init__(self, limits: MessageLimits) -> None:
        self._limits = limits
        self._pieces: list[bytes] = []
        # How many bytes of the message have arrived.
        self.size = 0
        self._spool: _SpoolAssembler | None = None

    def add(self, piece: bytes) -> None:
        """Add the next bytes of the message; raises MessageTooLarge."""
        self.size += len(piece)
        if self.size > self._limits.largest:
            self.discard()
            raise MessageTooLarge(self._limits.largest)
        if self._spool is not None:
            self._spool.add(piece)
            return
        self._pieces.append(piece)
        if self.size > self._limits.spool_above:
            self._spool = _SpoolAssembler(self._limits)
            for kept in self._pieces:
                self._spool.add(kept)
            self._pieces.clear()

    def finish(self, accepts_invalid_utf8: AcceptsInvalidUtf8 = _never) -> UpstreamMessage:
        """The complete message; raises MalformedMessage."""
        pieces, spool = self._pieces, self._spool
        self._pieces, self._spool, self.size = [], None, 0
        if spool is not None:
            return spool.finish(accepts_invalid_utf8)
        return read_message(b"".join(pieces) if len(pieces) != 1 else pieces[0], accepts_invalid_utf8)

    def text(self) -> str:
        """What has arrived, of a short text that is no message."""
        return b"".join(self._pieces).decode("latin-1")

    def discard(self) -> None:
        if self._spool is not None:
            self._spool.close()
        self._pieces, self._spool, self.size = [], None, 0


def read_message(data: bytes, accepts_invalid_utf8: AcceptsInvalidUtf8 = _never) -> UpstreamMessage:
    """One whole message in memory; raises MalformedMessage."""
    try:
        if not data.isascii():
            data.decode()
    except UnicodeDecodeError as error:
        return _invalid_utf8(data, accepts_invalid_utf8, error)
    try:
        envelope = decode_envelope(data)
    except RecursionError:
        return _scanned_message(data)
    except ValidationError as error:
        raise MalformedMessage(f"JSON that is not a message ({error})", _evidence(data)) from error
    except DecodeError as error:
        # An escaped lone surrogate, which JavaScript writes and the parser refuses.
        text = data.decode()
        try:
            values = {member.key: text[member.start : member.end].encode() for member in object_members(text)}
        except (ValueError, RecursionError):
            raise MalformedMessage(f"text that is not JSON ({error})", _evidence(data)) from error
        return UpstreamMessage(_envelope(values), values.get("result", b""))
    return UpstreamMessage(envelope, bytes(envelope.result))


def _invalid_utf8(data: bytes, accepts: AcceptsInvalidUtf8, error: UnicodeDecodeError) -> UpstreamMessage:
    """A message that is not UTF-8, for a request that accepts it; the parser skips the members."""
    try:
        envelope = decode_envelope(data)
        if accepts(envelope):
            return UpstreamMessage(envelope, bytes(envelope.result))
    except (DecodeError, UnicodeDecodeError, RecursionError):
        pass
    raise MalformedMessage("text that is not UTF-8", _evidence(data)) from error


def _scanned_message(data: bytes) -> UpstreamMessage:
    """A message nested too deep for the parser, cut at its members."""
    scanner = JsonObjectScanner()
    try:
        for start in range(0, len(data), CHUNK_BYTES):
            scanner.feed(data[start : start + CHUNK_BYTES])
        spans = scanner.finish()
    except NotJsonObject as error:
        raise MalformedMessage(f"text that is not JSON ({error})", _evidence(data)) from error
    values = {key: data[start:end] for key, (start, end) in spans.items()}
    return UpstreamMessage(_envelope(values), values.get("result", b""))


def _envelope(values: dict[str, bytes]) -> Envelope:
    small = {key: Raw(value) for key, value in values.items() if key in ("id", "error", "params")}
    try:
        method = msgspec.json.decode(values.get("method", b'""'), type=str)
    except (DecodeError, UnicodeDecodeError) as error:
        raise MalformedMessage("a method that is not a text") from error
    # Another version is refused later, by its value.
    version = "2.0" if values.get("jsonrpc", b'"2.0"') == b'"2.0"' else ""
    return Envelope(jsonrpc=version, method=method, **small)


class _SpoolAssembler:
    """Writes one message to disk, and scans and checks it on the way."""

    # The largest error or params that are read.
    _MOST_IN_MEMORY = 1024 * 1024

    def __init__(self, limits: MessageLimits) -> None:
        self._limits = limits
        self._failure: OSError | None = None
        self._file: SpoolFile | MessageEdges
        try:
            self._file = SpoolFile(limits.spool_directory)
        except OSError as error:
            self._file = self._spool_failed(error, MessageEdges())
        self._skimmer = JsonObjectScanner()
        self._text = codecs.getincrementaldecoder("utf-8")()
        self._is_utf8 = True
        self._marked = False
        self._last = b""
        self._problem: str | None = None

    def _spool_failed(self, error: OSError, edges: MessageEdges) -> MessageEdges:
        """The message cannot be stored; the rest is read only to find the request that it answers."""
        self._failure = error
        self._limits.reports.record_lost(self._limits.spool_directory, error)
        return edges

    def add(self, piece: bytes) -> None:
        try:
            self._file.append(piece)
        except OSError as error:
            assert isinstance(self._file, SpoolFile)
            file, self._file = self._file, self._spool_failed(error, MessageEdges.of(self._file))
            # The freed space may be enough for another message.
            file.close()
            self._file.append(piece)
        if self._problem is None:
            try:
                self._skimmer.feed(piece)
            except NotJsonObject as error:
                self._problem = f"text that is not JSON ({error})"
        if not self._marked:
            self._marked = may_be_marked(piece) or may_be_marked(self._last + piece[:_MARK_BYTES])
            self._last = piece[-_MARK_BYTES:]
        if self._is_utf8:
            try:
                if not piece.isascii() or self._text.getstate()[0]:
                    self._text.decode(piece)
            except UnicodeDecodeError:
                self._is_utf8 = False

    def finish(self, accepts_invalid_utf8: AcceptsInvalidUtf8) -> UpstreamMessage:
        try:
            return self._message(accepts_invalid_utf8)
        except MalformedMessage as error:
            last = max(0, self._file.size - EDGE_BYTES)
            error.evidence = self._file.read(0, EDGE_BYTES) + self._file.read(last, EDGE_BYTES)
            self.close()
            raise

    def _message(self, accepts_invalid_utf8: AcceptsInvalidUtf8) -> UpstreamMessage:
        if self._problem is not None:
            raise MalformedMessage(self._problem if self._is_utf8 else "text that is not UTF-8")
        try:
            spans = self._skimmer.finish()
        except NotJsonObject as error:
            raise MalformedMessage(f"text that is not JSON ({error})") from error
        envelope = _envelope(self._small_members(spans))
        if self._failure is not None:
            raise MessageNotStored(self._failure, envelope, has_result="result" in spans) from self._failure
        if not self._is_utf8 and not accepts_invalid_utf8(envelope):
            raise MalformedMessage("text that is not UTF-8")
        assert isinstance(self._file, SpoolFile)
        if "result" not in spans:
            self.close()
            return UpstreamMessage(envelope)
        return UpstreamMessage(envelope, SpooledValue(self._file, *spans["result"], marked=self._marked))

    def _small_members(self, spans: dict[str, tuple[int, int]]) -> dict[str, bytes]:
        """The members beside the result; raises MalformedMessage."""
        small: dict[str, bytes] = {}
        for key in ("id", "method", "error", "params"):
            start, end = spans.get(key, (0, 0))
            if end - start > self._MOST_IN_MEMORY:
                raise MalformedMessage(f"a {key} of {(end - start) // 2**20} MiB")
            if part := self._file.read(start, end - start):
                small[key] = part
        return small

    def close(self) -> None:
        self._file.close()


def payload_bytes(payload: Payload) -> bytes:
    """All bytes of a payload, which is closed."""
    if isinstance(payload, bytes):
        return payload
    try:
        return b"".join(payload.chunks())
    finally:
        payload.close()
