"""Large messages on disk: a file without a name, so that a crash leaves nothing behind."""

import logging
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from headgate.domain.payload import Payload

log = logging.getLogger("headgate.upstream")

# Read and written at once: large enough to be cheap, small enough never to stall the loop.
CHUNK_BYTES = 256 * 1024
# What is left of a message that cannot be written: enough to tell which request it answers.
EDGE_BYTES = 4096
# A full disk loses many messages; the operator reads of it once in this time.
_REPORT_SECONDS = 60.0


class SpoolFile:
    """Bytes on disk, appended while a message arrives."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 (closed by its taker)
        self.size = 0

    def append(self, data: bytes) -> None:
        """Write at the end."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._file.fileno(), view) :]
        self.size += len(data)

    def overwrite(self, start: int, data: bytes) -> None:
        """Write over bytes that are there."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._file.fileno(), view, start)
            view, start = view[written:], start + written

    def read(self, start: int, length: int) -> bytes:
        """Some bytes, wherever they are."""
        return os.pread(self._file.fileno(), length, start)

    def fileno(self) -> int:
        """The descriptor of the file."""
        return self._file.fileno()

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()


class MessageEdges:
    """The first and last bytes of a message that cannot be written, read like a file."""

    def __init__(self, head: bytes = b"", tail: bytes = b"", size: int = 0) -> None:
        self._head = head
        self._tail = tail
        self.size = size

    @classmethod
    def of(cls, file: SpoolFile) -> "MessageEdges":
        """What was written before there was no room for more."""
        last = max(0, file.size - EDGE_BYTES)
        return cls(file.read(0, EDGE_BYTES), file.read(last, file.size - last), file.size)

    def append(self, data: bytes) -> None:
        """Keep the first and the last bytes."""
        self._head += data[: max(0, EDGE_BYTES - len(self._head))]
        self._tail = (self._tail + data[-EDGE_BYTES:])[-EDGE_BYTES:]
        self.size += len(data)

    def read(self, start: int, length: int) -> bytes:
        """Bytes near either end; nothing of what lies between."""
        if start + length <= len(self._head):
            return self._head[start : start + length]
        offset = start - (self.size - len(self._tail))
        return self._tail[offset : offset + length] if offset >= 0 else b""

    def close(self) -> None:
        """There is nothing to give back."""


class SpoolReports:
    """Tells the operator that large messages cannot be written, at most once a minute."""

    def __init__(self) -> None:
        self._lost = 0
        self._next_report = 0.0

    def record_lost(self, directory: Path, error: OSError) -> None:
        """One more message could not be written."""
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
    """What the system says, without the path."""
    return error.strerror or type(error).__name__


class SpooledValue:
    """One JSON value inside a spooled message; closing it closes the file."""

    def __init__(self, file: SpoolFile, start: int, end: int, *, marked: bool = False) -> None:
        self._file = file
        # Whether a key of `_meta` that ends at the gateway may stand in the message.
        self.marked = marked
        self.start = start
        self._end = end

    def overwrite(self, start: int, data: bytes) -> None:
        """Write over bytes of the value from `start` of it on; its size stays the same."""
        self._file.overwrite(self.start + start, data)

    def head_and_tail(self, length: int) -> bytes:
        """Its first and its last bytes, so many of each."""
        last = max(self.start, self._end - length)
        return self._file.read(self.start, min(length, self.size)) + self._file.read(last, self._end - last)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._end - self.start

    def fileno(self) -> int:
        """The descriptor of the file in which it begins at `start`."""
        return self._file.fileno()

    @property
    def first(self) -> bytes:
        """Its first byte."""
        return self._file.read(self.start, 1)

    def chunks(self) -> Iterator[bytes]:
        """Its bytes in order."""
        for start in range(self.start, self._end, CHUNK_BYTES):
            yield self._file.read(start, min(CHUNK_BYTES, self._end - start))

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()


def discard_payload(payload: Payload) -> None:
    """Nobody takes it: give back what it holds."""
    if not isinstance(payload, bytes):
        payload.close()
