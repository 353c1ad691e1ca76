"""A payload in an open file, and the durable writes that the stores share."""

import io
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from headgate.domain.payload import Payload

_CHUNK_BYTES = 256 * 1024


class PayloadFile:
    """A range of an open file, which stays readable when the name of the file is removed."""

    def __init__(self, file: io.FileIO, start: int, size: int) -> None:
        self._file = file
        self.start = start
        self.size = size

    @property
    def first(self) -> bytes:
        return os.pread(self.fileno(), min(1, self.size), self.start)

    def fileno(self) -> int:
        """The descriptor of the file; raises ValueError when it is closed."""
        return self._file.fileno()

    def chunks(self) -> Iterator[bytes]:
        end = self.start + self.size
        for start in range(self.start, end, _CHUNK_BYTES):
            yield os.pread(self.fileno(), min(_CHUNK_BYTES, end - start), start)

    def close(self) -> None:
        """Close the file; its disk space is free once no other reader has it open."""
        self._file.close()


def payload_chunks(payload: Payload) -> Iterator[bytes]:
    if isinstance(payload, bytes):
        for start in range(0, len(payload), _CHUNK_BYTES):
            yield payload[start : start + _CHUNK_BYTES]
    else:
        yield from payload.chunks()


def append_bytes(file: io.FileIO, data: bytes) -> None:
    """Write all of the data; raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(file.fileno(), view) :]


def write_unnamed(directory: Path, chunks: Iterable[bytes]) -> io.FileIO:
    """An unnamed file in the directory with these bytes; raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 (closed by the caller)
    try:
        for chunk in chunks:
            append_bytes(file, chunk)
    except BaseException:
        file.close()
        raise
    return file


def sync_directory(directory: Path) -> None:
    """Make the entries of a directory durable; raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
