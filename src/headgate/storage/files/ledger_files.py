"""The files beside the ledger.

`ledger/` has answers that are too large for a row, and `owners/` one locked file per running gateway.
`ledger.mark` has the id of the ledger and the number of its last commit. It is written after each commit and
before the caller continues, so it is never ahead of the ledger: a ledger with fewer commits has lost some.
`ledger.damaged` exists from the time damage is found until the operator has recovered the ledger.
"""

import fcntl
import io
import os
import secrets
import struct
import threading
import zlib
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headgate.delivery.ledger import LedgerDamaged
from headgate.domain.errors import StoreFailed
from headgate.domain.payload import Payload, payload_size
from headgate.domain.regular_file import open_regular, read_regular
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
            with io.FileIO(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
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
        body = PayloadFile(file, 0, size)
        whole = os.fstat(file.fileno()).st_size == size
        if whole and checksum != UNKNOWN_CHECKSUM:
            whole = checksum == reduce(lambda found, chunk: zlib.crc32(chunk, found), body.chunks(), 0)
        if not whole:
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


# A file gets its lock before its final name.
_DRAFT = ".draft"
# Another process may remove a draft before it is locked, but hardly twice in a row.
_MAX_TRIES = 10


class ProcessLiveness:
    """The lock file of one open ledger, from its first use to `close` or the end of its process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._closed = False
        self.id = secrets.token_hex(16)

    def register(self) -> str:
        """Create and lock the file on first use: the id of this process; raises OSError."""
        with self._lock:
            if self._closed:
                raise OSError("the ledger is closed")
            if self._descriptor is None:
                self._directory.mkdir(parents=True, exist_ok=True)
                for path in self._directory.iterdir():
                    _removed_if_dead(path)
                self._descriptor = self._create_locked_file()
        return self.id

    def is_alive(self, id: str) -> bool:
        """Whether the process of that id runs; the file of one that does not is removed."""
        if id == self.id:
            return self._descriptor is not None
        return not _removed_if_dead(self._directory / id)

    def any_other_alive(self) -> bool:
        """Whether any other process runs; raises OSError."""
        if not self._directory.exists():
            return False
        found = [path for path in self._directory.iterdir() if path.name != self.id]
        return any(not _removed_if_dead(path) for path in found if path.suffix != _DRAFT)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._descriptor is not None:
                (self._directory / self.id).unlink(missing_ok=True)
                os.close(self._descriptor)
                self._descriptor = None

    def _create_locked_file(self) -> int:
        for _ in range(_MAX_TRIES):
            draft = self._directory / (self.id + _DRAFT)
            descriptor = os.open(draft, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.rename(self._directory / self.id)
            except (BlockingIOError, FileNotFoundError):
                # Another process checks the draft at this moment, and takes it for that of a dead one.
                os.close(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            else:
                return descriptor
        raise OSError(f"cannot lock a file in {self._directory.name!r}")


def _removed_if_dead(path: Path) -> bool:
    """Remove the file if no process has its lock; True when it is gone."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        # Shared, so that two processes that check at once do not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        # While locked, so that no process takes the lock between check and removal.
        with suppress(FileNotFoundError):
            path.unlink()
        return True
    finally:
        os.close(descriptor)


ID_BYTES: Final = 16
_FORM: Final = b"headgate ledger 1"
_LAYOUT: Final = struct.Struct(f">{len(_FORM)}s{ID_BYTES}sQI")


class LedgerMark(NamedTuple):
    """The id of a ledger and the number of its commits."""

    id: bytes
    commits: int


class LedgerMarkFile:
    """`ledger.mark`. All methods block, and raise OSError unless they say otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def read(self) -> LedgerMark | None:
        """The mark; None without a file. Raises LedgerDamaged when it is changed."""
        try:
            content = read_regular(self._path)
        except FileNotFoundError:
            return None
        if len(content) == _LAYOUT.size:
            form, id, commits, checksum = _LAYOUT.unpack(content)
            if form == _FORM and checksum == zlib.crc32(content[:-4]):
                return LedgerMark(id, commits)
        raise LedgerDamaged(f"{self._path.name} is changed")

    def create(self, mark: LedgerMark) -> None:
        """Write the mark, durable, unless another gateway has written one."""
        draft = self._path.with_suffix(f".mark.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.write(descriptor, _packed_mark(mark))
            os.fsync(descriptor)
            with suppress(FileExistsError):
                os.link(draft, self._path)
        finally:
            os.close(descriptor)
            draft.unlink()
        sync_directory(self._path.parent)

    def advance(self, mark: LedgerMark) -> None:
        """Write the mark of a commit, without waiting for the disk; raises nothing."""
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
            os.pwrite(self._descriptor, _packed_mark(mark), 0)
        except OSError:
            # The next commit retries it.
            return

    def remove(self) -> None:
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class DamageReport(msgspec.Struct, frozen=True):
    """The damage that was found; `at` is in seconds since the epoch."""

    reason: str
    at: float


class DamageFile:
    """`ledger.damaged`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> DamageReport | None:
        """The damage that was found; None without any. Raises OSError."""
        try:
            return msgspec.json.decode(read_regular(self._path), type=DamageReport)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            return DamageReport("damage was found before this start", self._path.stat().st_mtime)

    def write(self, report: DamageReport) -> None:
        """Write the report, durable; raises nothing, because the caller reports the damage as well."""
        with suppress(OSError):
            with open_regular(self._path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY) as file:
                file.write(msgspec.json.encode(report))
                file.flush()
                os.fsync(file.fileno())
            sync_directory(self._path.parent)

    def remove(self) -> None:
        """Remove the file after a recovery; raises OSError."""
        self._path.unlink(missing_ok=True)
        sync_directory(self._path.parent)


def _packed_mark(mark: LedgerMark) -> bytes:
    content = b"%s%s%s" % (_FORM, mark.id, mark.commits.to_bytes(8))
    return content + zlib.crc32(content).to_bytes(4)
