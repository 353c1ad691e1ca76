"""Which gateway processes are alive: each holds a lock on its own file until it ends."""

import fcntl
import os
import secrets
import threading
from contextlib import suppress
from pathlib import Path

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
                self._remove_dead()
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
        """Remove the file."""
        with self._lock:
            self._closed = True
            if self._descriptor is not None:
                (self._directory / self.id).unlink(missing_ok=True)
                os.close(self._descriptor)
                self._descriptor = None

    def _remove_dead(self) -> None:
        for path in self._directory.iterdir():
            _removed_if_dead(path)

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
