"""Two small files beside the ledger, which show that commits are lost and that damage was found.

`ledger.mark` has the id of the ledger and the number of its last commit. It is written after each commit and
before the caller continues, so it is never ahead of the ledger: a ledger with fewer commits has lost some.
`ledger.damaged` exists from the time damage is found until the operator has recovered the ledger.
"""

import os
import secrets
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headgate.delivery.ledger import LedgerDamaged
from headgate.domain.regular_file import open_regular, read_regular
from headgate.storage.files.payload_file import sync_directory

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
        if len(content) != _LAYOUT.size:
            raise _mark_damaged(self._path)
        form, id, commits, checksum = _LAYOUT.unpack(content)
        if form != _FORM or checksum != zlib.crc32(content[:-4]):
            raise _mark_damaged(self._path)
        return LedgerMark(id, commits)

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
        """Remove the file."""
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
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


def _mark_damaged(path: Path) -> LedgerDamaged:
    return LedgerDamaged(f"{path.name} is changed")
