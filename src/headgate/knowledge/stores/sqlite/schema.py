"""The tables of knowledge.db, and the numbers that the store keeps of itself."""

import sqlite3
from pathlib import Path
from typing import Final

from headgate.domain.errors import StoreFailed
from headgate.knowledge.stores.sqlite.error_messages import FOREIGN
from headgate.storage.sqlite.database_file import check_database_files

KNOWLEDGE_NAME: Final = "knowledge.db"

TABLES: Final = (
    # Counters, and the model that the vectors are of.
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    """CREATE TABLE IF NOT EXISTS sources (
        id INTEGER PRIMARY KEY, file TEXT NOT NULL UNIQUE, category TEXT NOT NULL, doc_type TEXT NOT NULL,
        title TEXT NOT NULL, date TEXT NOT NULL, digest TEXT NOT NULL, size_bytes INTEGER NOT NULL,
        chunks INTEGER NOT NULL, tokens INTEGER NOT NULL, ingested REAL NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS chunks (
        id INTEGER PRIMARY KEY, source_id INTEGER NOT NULL, place INTEGER NOT NULL, tokens INTEGER NOT NULL,
        digest TEXT NOT NULL, header TEXT NOT NULL, text TEXT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS chunks_of_source ON chunks (source_id, place)",
    # The number grows with each vector, so that whoever has those before it reads only the new ones.
    """CREATE TABLE IF NOT EXISTS vectors (
        number INTEGER PRIMARY KEY, chunk_id INTEGER NOT NULL UNIQUE, vector BLOB NOT NULL)""",
    # The signs of each vector, which are read into memory.
    """CREATE TABLE IF NOT EXISTS codes (
        number INTEGER PRIMARY KEY, chunk_id INTEGER NOT NULL, code BLOB NOT NULL)""",
    # Chunks that have no vector yet.
    "CREATE TABLE IF NOT EXISTS waiting (chunk_id INTEGER PRIMARY KEY)",
    """CREATE TABLE IF NOT EXISTS postings (
        stem TEXT NOT NULL, block INTEGER NOT NULL, entries BLOB NOT NULL,
        PRIMARY KEY (stem, block)) WITHOUT ROWID""",
    # Words come cut and in lower case already: this tokenizer leaves everything beyond ASCII as it is.
    "CREATE VIRTUAL TABLE IF NOT EXISTS plain USING fts5(words, content='', columnsize=0, tokenize='ascii')",
    """CREATE TABLE IF NOT EXISTS entities (
        id INTEGER PRIMARY KEY, type TEXT NOT NULL, name TEXT NOT NULL, aliases TEXT NOT NULL,
        confidence REAL NOT NULL, mentions INTEGER NOT NULL, attributes TEXT NOT NULL,
        external_id TEXT NOT NULL, imported INTEGER NOT NULL, updated REAL NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS names (
        key TEXT, entity_id INTEGER, PRIMARY KEY (key, entity_id)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS names_of_entity ON names (entity_id)",
    # What a document, or else an import, says of an entity; document is 0 for imports.
    """CREATE TABLE IF NOT EXISTS entity_claims (
        number INTEGER PRIMARY KEY, entity_id INTEGER NOT NULL, document INTEGER NOT NULL,
        origin TEXT NOT NULL, said TEXT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS entity_claims_of_entity ON entity_claims (entity_id)",
    "CREATE INDEX IF NOT EXISTS entity_claims_of_owner ON entity_claims (document, origin)",
    """CREATE TABLE IF NOT EXISTS mentions (
        chunk_id INTEGER, entity_id INTEGER, start INTEGER, stop INTEGER, confidence REAL NOT NULL,
        PRIMARY KEY (chunk_id, entity_id, start, stop)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS mentions_of_entity ON mentions (entity_id)",
    """CREATE TABLE IF NOT EXISTS relationships (
        id INTEGER PRIMARY KEY, source_id INTEGER NOT NULL, target_id INTEGER NOT NULL, type TEXT NOT NULL,
        confidence REAL NOT NULL, attributes TEXT NOT NULL, updated REAL NOT NULL,
        UNIQUE (source_id, target_id, type))""",
    "CREATE INDEX IF NOT EXISTS relationships_of_target ON relationships (target_id)",
    """CREATE TABLE IF NOT EXISTS relationship_claims (
        number INTEGER PRIMARY KEY, relationship_id INTEGER NOT NULL, document INTEGER NOT NULL,
        origin TEXT NOT NULL, said TEXT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS relationship_claims_of_one ON relationship_claims (relationship_id)",
    "CREATE INDEX IF NOT EXISTS relationship_claims_of_owner ON relationship_claims (document, origin)",
)


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
        raise StoreFailed(FOREIGN)


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
