"""Large messages on disk: a file without a name, so that a crash leaves nothing behind."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headgate.domain.payload import Payload

# Read and written at once: large enough to be cheap, small enough never to stall the loop.
CHUNK_BYTES = 256 * 1024


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

    def read(self, start: int, length: int) -> bytes:
        """Some bytes, wherever they are."""
        return os.pread(self._file.fileno(), length, start)

    def fileno(self) -> int:
        """The descriptor of the file."""
        return self._file.fileno()

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()


class SpooledValue:
    """One JSON value inside a spooled message; closing it closes the file."""

    def __init__(self, file: SpoolFile, start: int, end: int) -> None:
        self._file = file
        self.start = start
        self._end = end

    def edges(self, length: int) -> bytes:
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


def discard(payload: Payload) -> None:
    """Nobody takes it: give back what it holds."""
    if not isinstance(payload, bytes):
        payload.close()
