"""The migrations of knowledge.db, and the numbers that the store keeps of itself."""

import sqlite3
from pathlib import Path
from typing import Final

from headgate.domain.errors import StoreFailed
from headgate.storage.sqlite.database_file import check_database_files
from headgate.storage.sqlite.migrations import FOREIGN_FILE_MESSAGE, Migrations

KNOWLEDGE_NAME: Final = "knowledge.db"

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
    """Tell whoever has read something that it may be otherwise now."""
    add_to_counter(connection, "revision", 1)


def model_fingerprint(connection: sqlite3.Connection) -> str:
    """The fingerprint of the embedder whose vectors are kept."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'model'").fetchone()
    return str(row[0]) if row is not None else ""
