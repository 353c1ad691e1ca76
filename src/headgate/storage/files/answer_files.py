"""Recorded answers that are too large for a row: files that are durable before a row names them."""

import io
import os
import secrets
import zlib
from contextlib import suppress
from pathlib import Path

from headgate.domain.errors import StoreFailed
from headgate.domain.payload import Payload, payload_size
from headgate.storage.files.payload_file import PayloadFile, append_bytes, payload_chunks, sync_directory

# The checksum of a file that an earlier version wrote.
UNKNOWN_CHECKSUM = -1


class AnswerFiles:
    """A directory of answer files. All methods block, and raise OSError unless they say otherwise."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, op_id: str, fence: int, payload: Payload) -> tuple[str, int]:
        """Write a durable copy under a new name: its name and checksum. A copy that fails is removed."""
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"{op_id}.{fence}.{secrets.token_hex(8)}"
        path, checksum = self._directory / name, 0
        try:
            with _create_exclusive(path) as file:
                for chunk in payload_chunks(payload):
                    append_bytes(file, chunk)
                    checksum = zlib.crc32(chunk, checksum)
                if os.fstat(file.fileno()).st_size != payload_size(payload):
                    raise OSError("the answer was cut off while it was copied")
                os.fsync(file.fileno())
            sync_directory(self._directory)
        except BaseException:
            self.remove(name)
            raise
        return name, checksum

    def open(self, name: str, size: int, checksum: int) -> PayloadFile:
        """The file of that name; raises StoreFailed when it is missing or changed."""
        try:
            file = io.FileIO(self._directory / name, "rb")
        except FileNotFoundError:
            raise StoreFailed("the file of the answer is gone") from None
        if os.fstat(file.fileno()).st_size != size:
            file.close()
            raise StoreFailed("the file of the answer is damaged")
        body = PayloadFile(file, 0, size)
        if checksum not in (UNKNOWN_CHECKSUM, _checksum(body)):
            file.close()
            raise StoreFailed("the file of the answer is damaged")
        return body

    def remove(self, name: str) -> None:
        """Remove the file; raises nothing."""
        with suppress(OSError):
            (self._directory / name).unlink()

    def names(self) -> list[tuple[str, str, int]]:
        """The name, the operation and the fence of every file."""
        try:
            found = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        parts = [(name, name.split(".")) for name in found]
        return [
            (name, part[0], int(part[1])) for name, part in parts if len(part) == 3 and part[1].isdecimal()
        ]


def _checksum(body: PayloadFile) -> int:
    checksum = 0
    for chunk in body.chunks():
        checksum = zlib.crc32(chunk, checksum)
    return checksum


def _create_exclusive(path: Path) -> io.FileIO:
    return io.FileIO(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
