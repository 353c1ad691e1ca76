"""Opens a durable SQLite file at its latest schema version, and turns SQLite errors into StoreFailed."""

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headgate.delivery.ledger import LedgerDamaged
from headgate.domain.errors import StoreFailed
from headgate.domain.regular_file import check_regular
from headgate.storage.files.payload_file import sync_directory
from headgate.storage.sqlite.migrations import Migrations

# While another process makes the file.
_LOOK_AGAIN_SECONDS = 0.01
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_TOOBIG}
)
# What SQLite and the module that calls it say of a schema or a text that is changed.
_DAMAGED_WORDS = ("no such table", "no such column", "no such index", "Could not decode to UTF-8")
_SENTENCES = {
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
    inspect: Callable[[sqlite3.Connection, int], None] = lambda connection, version: None,
) -> sqlite3.Connection:
    """A connection to the file, whose commits are durable and whose schema is the latest.

    `inspect` gets the schema version that the file has, before anything is changed.
    Raises StoreFailed, sqlite3.Error or OSError; the file is left as it is then.
    """
    _create_private_file(path)
    # Transactions are our own to begin and to end.
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)
    try:
        inspect(connection, migrations.checked_version(connection))
        _use_wal(connection, busy_seconds)
        # A commit is on the disk when it returns, not only with the system.
        connection.execute("PRAGMA synchronous = FULL")
        migrations.apply(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def store_failure(error: Exception) -> StoreFailed:
    """The sentence about it; what SQLite or the system said is its cause."""
    if isinstance(error, StoreFailed):
        return type(error)(str(error))
    if isinstance(error, sqlite3.Error):
        said = str(error)
    else:
        said = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
    kind = LedgerDamaged if is_damage(error) else StoreFailed
    if isinstance(error, UnicodeDecodeError):
        said = _SENTENCES[sqlite3.SQLITE_CORRUPT]
    failed = kind(_SENTENCES.get(_sqlite_code(error), said))
    failed.__cause__ = error
    return failed


def is_damage(error: Exception) -> bool:
    """Whether it says that the content of the file is not what SQLite wrote."""
    # The second comes of a text, or of a message of SQLite about its schema, with bytes that are changed.
    if isinstance(error, LedgerDamaged | UnicodeDecodeError):
        return True
    return isinstance(error, sqlite3.Error) and (
        _sqlite_code(error) in _DAMAGED or str(error).startswith(_DAMAGED_WORDS)
    )


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another connection is in the way, for now."""
    return _sqlite_code(error) in _LOCKED


def _create_private_file(path: Path) -> None:
    """An empty file that only its owner reads, before SQLite makes one that others do too; raises OSError."""
    check_database_files(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        sync_directory(path.parent)


def check_database_files(path: Path) -> None:
    """Raise OSError if SQLite would wait for one of the files of a database."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        # SQLite itself refuses a directory.
        check_regular(f"{path}{suffix}", allowed=(stat.S_IFDIR,))


def _use_wal(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Set once and for all who open the file; SQLite does not wait for others who do it too."""
    give_up_at = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_locked(error) or time.monotonic() > give_up_at:
                raise
        time.sleep(_LOOK_AGAIN_SECONDS)


def _sqlite_code(error: Exception) -> int:
    """What kind of failure it is, without the details in the upper bits."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
