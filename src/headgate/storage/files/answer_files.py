"""Recorded answers too large for a row: files that are complete and durable before a row names them."""

import io
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from headgate.domain.errors import StoreFailed
from headgate.domain.payload import Payload, payload_size
from headgate.storage.files.directory_sync import sync_directory

_CHUNK_BYTES = 256 * 1024
# Of a file that an earlier version wrote.
UNKNOWN_CHECKSUM = -1


class AnswerFile:
    """The bytes of an answer in an open file, which stays readable when its name is removed."""

    def __init__(self, file: io.FileIO, size: int) -> None:
        self._file = file
        self.size = size
        # Where in the file they begin.
        self.start = 0

    @property
    def first(self) -> bytes:
        """Its first byte."""
        return os.pread(self.fileno(), min(1, self.size), 0)

    def fileno(self) -> int:
        """The descriptor of the file; raises ValueError when it is closed."""
        return self._file.fileno()

    def chunks(self) -> Iterator[bytes]:
        """Its bytes in order."""
        for start in range(0, self.size, _CHUNK_BYTES):
            yield os.pread(self.fileno(), min(_CHUNK_BYTES, self.size - start), start)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class AnswerFiles:
    """A directory of them. All methods block, and raise OSError unless they say otherwise."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, op_id: str, fence: int, payload: Payload) -> tuple[str, int]:
        """The name and the checksum of a file with a copy of it, durable; nothing is left of one that fails.

        No two have one name, so that what is written in vain spoils nothing.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"{op_id}.{fence}.{secrets.token_hex(8)}"
        path, checksum = self._directory / name, 0
        try:
            with _create_exclusive(path) as file:
                for chunk in (payload,) if isinstance(payload, bytes) else payload.chunks():
                    _append(file, chunk)
                    checksum = zlib.crc32(chunk, checksum)
                if os.fstat(file.fileno()).st_size != payload_size(payload):
                    raise OSError("the answer was cut off while it was copied")
                os.fsync(file.fileno())
            sync_directory(self._directory)
        except BaseException:
            self.remove(name)
            raise
        return name, checksum

    def open(self, name: str, size: int, checksum: int) -> AnswerFile:
        """The file of that name; raises StoreFailed when it is not as it was written."""
        try:
            file = io.FileIO(self._directory / name, "rb")
        except FileNotFoundError:
            raise StoreFailed("the file of the answer is gone") from None
        if os.fstat(file.fileno()).st_size != size:
            file.close()
            raise StoreFailed("the file of the answer is damaged")
        body = AnswerFile(file, size)
        if checksum not in (UNKNOWN_CHECKSUM, _checksum(body)):
            file.close()
            raise StoreFailed("the file of the answer is damaged")
        return body

    def remove(self, name: str) -> None:
        """Give its space back, once nobody has it open; raises nothing."""
        with suppress(OSError):
            (self._directory / name).unlink()

    def names(self) -> list[tuple[str, str, int]]:
        """Every file that is there: its name, its operation and the fence of who wrote it."""
        try:
            found = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        parts = [(name, name.split(".")) for name in found]
        return [
            (name, part[0], int(part[1])) for name, part in parts if len(part) == 3 and part[1].isdecimal()
        ]


def _checksum(body: AnswerFile) -> int:
    checksum = 0
    for chunk in body.chunks():
        checksum = zlib.crc32(chunk, checksum)
    return checksum


def _create_exclusive(path: Path) -> io.FileIO:
    return io.FileIO(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


def _append(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file.fileno(), view) :]
