"""Opens a durable SQLite file at its latest schema version, and turns SQLite errors into StoreFailed."""

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from sqlite3 import Connection

from headgate.delivery.ledger import LedgerDamaged
from headgate.domain.errors import StoreFailed
from headgate.domain.regular_file import check_regular
from headgate.storage.files.payload_file import sync_directory
from headgate.storage.sqlite.migrations import Migrations

# While another process creates the file.
_POLL_SECONDS = 0.01
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_TOOBIG}
)
# Messages of SQLite and of Python's module about a changed schema or text.
_DAMAGED_MESSAGES = ("no such table", "no such column", "no such index", "Could not decode to UTF-8")
_MESSAGES = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_BUSY: "another process keeps the file locked",
    sqlite3.SQLITE_READONLY: "the file cannot be written",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_NOTADB: "the file is not a database",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_IOERR: "the file cannot be read or written",
}


def open_database_file(
    path: Path,
    migrations: Migrations,
    busy_seconds: float,
    *,
    inspect: Callable[[Connection, int], None] = lambda connection, version: None,
) -> Connection:
    """A connection to the file, whose commits are durable and whose schema is the latest.

    `inspect` gets the schema version that the file has, before anything is changed.
    Raises StoreFailed, sqlite3.Error or OSError; the file is left as it is then.
    """
    check_database_files(path)
    # An empty file for its owner alone, because SQLite would use the umask.
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        sync_directory(path.parent)
    # Without implicit transactions.
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)
    try:
        inspect(connection, migrations.checked_version(connection))
        # With retries, because SQLite does not wait for another process that switches to WAL too.
        execute_unlocked(connection, "PRAGMA journal_mode = WAL", busy_seconds, _POLL_SECONDS)
        # A commit is on disk when it returns, not only in the page cache.
        connection.execute("PRAGMA synchronous = FULL")
        migrations.apply(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def store_failure(error: Exception) -> StoreFailed:
    """The failure with a message for operators; the error is its cause."""
    if isinstance(error, StoreFailed):
        return type(error)(str(error))
    if isinstance(error, sqlite3.Error):
        message = str(error)
    else:
        message = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
    kind = LedgerDamaged if is_damage(error) else StoreFailed
    if isinstance(error, UnicodeDecodeError):
        message = _MESSAGES[sqlite3.SQLITE_CORRUPT]
    failed = kind(_MESSAGES.get(_sqlite_code(error), message))
    failed.__cause__ = error
    return failed


def is_damage(error: Exception) -> bool:
    """Whether the error means that the content of the file was changed."""
    # UnicodeDecodeError: a changed text, or a message about a changed schema.
    if isinstance(error, LedgerDamaged | UnicodeDecodeError):
        return True
    return isinstance(error, sqlite3.Error) and (
        _sqlite_code(error) in _DAMAGED or str(error).startswith(_DAMAGED_MESSAGES)
    )


def check_database_files(path: Path) -> None:
    """Raise OSError if one of the files of a database is a pipe or a device, which would block SQLite."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        # SQLite itself refuses a directory.
        check_regular(f"{path}{suffix}", allowed=(stat.S_IFDIR,))


def execute_unlocked(
    connection: Connection, statement: str, busy_seconds: float, poll_seconds: float
) -> None:
    """Execute a statement once no other connection holds a lock; raises sqlite3.Error after so long."""
    give_up_at = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if _sqlite_code(error) not in _LOCKED or time.monotonic() > give_up_at:
                raise
        time.sleep(poll_seconds)


def _sqlite_code(error: Exception) -> int:
    """The primary result code of an SQLite error; 0 for other errors."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
