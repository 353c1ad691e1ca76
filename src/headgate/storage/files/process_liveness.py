"""Which gateway processes are alive: each holds a lock on its own file until it ends."""

import fcntl
import os
import secrets
import threading
from contextlib import suppress
from pathlib import Path

# A file has its lock before it has its name.
_DRAFT = ".draft"
# Somebody else may clear a draft away before it has its lock, but hardly twice in a row.
_MAX_TRIES = 10


class ProcessLiveness:
    """The presence of one opened ledger, from its first use to `close` or the end of its process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._closed = False
        self.id = secrets.token_hex(16)

    def register(self) -> str:
        """Be there, and say under which id; raises OSError."""
        with self._lock:
            if self._closed:
                raise OSError("the ledger is closed")
            if self._descriptor is None:
                self._directory.mkdir(parents=True, exist_ok=True)
                self._remove_dead()
                self._descriptor = self._create_locked_file()
        return self.id

    def is_alive(self, id: str) -> bool:
        """Whether the process of that id still runs; the file of one that does not is removed."""
        if id == self.id:
            return self._descriptor is not None
        return not _removed_if_dead(self._directory / id)

    def any_other_alive(self) -> bool:
        """Whether any other process is there; raises OSError."""
        if not self._directory.exists():
            return False
        found = [path for path in self._directory.iterdir() if path.name != self.id]
        return any(not _removed_if_dead(path) for path in found if path.suffix != _DRAFT)

    def close(self) -> None:
        """Be gone."""
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
                # Somebody looks at the draft at this moment, and takes it for what a dead process left.
                os.close(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            else:
                return descriptor
        raise OSError(f"cannot lock a file in {self._directory.name!r}")


def _removed_if_dead(path: Path) -> bool:
    """Whether nobody has the lock of the file, which is gone then."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        # Shared, so that two who look at once do not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        # With the lock in hand, so that nobody takes it between the look and the removal.
        with suppress(FileNotFoundError):
            path.unlink()
        return True
    finally:
        os.close(descriptor)
