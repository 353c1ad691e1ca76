"""The counters of knowledge.db, and the errors of a file that cannot be used."""

import errno
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from headgate.domain.errors import StoreFailed
from headgate.storage.sqlite.database_file import check_database_files, store_failure
from headgate.storage.sqlite.migrations import FOREIGN_FILE_MESSAGE, NEWER_VERSION_MESSAGE, Migrations

KNOWLEDGE_MIGRATIONS: Final = Migrations(Path(__file__).parent / "migrations")


def refuse_foreign(path: Path) -> None:
    """Raise StoreFailed for a database of something else, before our tables are added to it.

    Raises sqlite3.Error or OSError for a file that cannot be read.
    """
    check_database_files(path)
    if not path.exists() or path.stat().st_size == 0:
        return
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    finally:
        connection.close()
    if found and not {"meta", "postings", "chunks"} <= found:
        raise StoreFailed(FOREIGN_FILE_MESSAGE)


def json_list(values: Iterable[int | str]) -> str:
    """A list as one value, for `json_each`: the number of parameters of a statement is limited."""
    return msgspec.json.encode(list(values)).decode()


def read_counter(connection: sqlite3.Connection, key: str) -> int:
    """One of the numbers that the store keeps of itself; 0 when it was never set."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return int(row[0]) if row is not None else 0


def add_to_counter(connection: sqlite3.Connection, key: str, amount: int) -> int:
    """Let one of the numbers grow; returns what it was before."""
    (after,) = connection.execute(
        "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = value + ?2 RETURNING value",
        (key, amount),
    ).fetchone()
    return int(after) - amount


def new_ids(connection: sqlite3.Connection, of: str, count: int) -> range:
    """Ids that nothing has had yet, from 1."""
    if count == 0:
        return range(0)
    first = add_to_counter(connection, f"last_{of}", count) + 1
    return range(first, first + count)


def bump_revision(connection: sqlite3.Connection) -> None:
    """Invalidate what readers have cached."""
    add_to_counter(connection, "revision", 1)


def model_fingerprint(connection: sqlite3.Connection) -> str:
    """The fingerprint of the embedder whose vectors are kept."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'model'").fetchone()
    return str(row[0]) if row is not None else ""


REPLACED: Final = "the file was removed or replaced while this process uses it"

_ACCESS: Final = "let the user of this process read and write knowledge.db and its directory"
_ROOM: Final = "make room on the disk of the data directory"
_ANEW: Final = "move knowledge.db away and ingest again, or restore a copy of it"
_REMEDIES: Final = {
    "the disk is full": _ROOM,
    "another process keeps the file locked": "wait until it is done, or end it",
    "the file cannot be written": _ACCESS,
    "the file cannot be opened": _ACCESS,
    "the file is not a database": _ANEW,
    # A process that has it open would continue with the damaged file.
    "the file is damaged": f"end every process that uses it, {_ANEW}",
    "the file cannot be read or written": "see that knowledge.db is a file, and that its disk is well",
    NEWER_VERSION_MESSAGE: "update this Headgate, or name another --data-dir",
    FOREIGN_FILE_MESSAGE: "name another --data-dir",
    REPLACED: "restart this process",
}
# Errors of the system, before SQLite runs.
_OF_THE_SYSTEM: Final = {
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: _ACCESS,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EMFILE: "let this process open more files (ulimit -n)",
    errno.ENAMETOOLONG: "name a shorter --data-dir",
    errno.ENOTDIR: "name a --data-dir that is a directory",
}


def explain_error(error: Exception) -> str:
    """The problem and its remedy in one sentence, without paths and messages of SQLite."""
    failed = store_failure(error)
    message = str(failed)
    if message in _REMEDIES:
        return f"{message}; {_REMEDIES[message]}"
    cause = failed.__cause__ or error.__cause__
    if isinstance(cause, sqlite3.Error):
        return f"knowledge.db answers {getattr(cause, 'sqlite_errorname', None) or type(cause).__name__}"
    remedy = _OF_THE_SYSTEM.get(cause.errno or 0) if isinstance(cause, OSError) else None
    return f"{message}; {remedy}" if remedy else message
