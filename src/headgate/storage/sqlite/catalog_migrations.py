"""The tables of proxy.db, and the migration of a file of an earlier version."""

import sqlite3

# Another number means another shape. The first had the calls of a tool beside its definition, the second
# one definition of each server.
_SCHEMA_VERSION = 3
_FIRST_SCHEMA_VERSION = 1
_EARLIER_SCHEMA_VERSIONS = (1, 2)
_CALLS = """
CREATE TABLE IF NOT EXISTS calls (
  server_name  TEXT NOT NULL,
  name         TEXT NOT NULL,
  calls        INTEGER NOT NULL,
  last_called  REAL NOT NULL,
  PRIMARY KEY (server_name, name)
) WITHOUT ROWID
"""
_TABLES = (
    """
    CREATE TABLE servers (
      name       TEXT NOT NULL,
      spec       TEXT NOT NULL,
      last_used  REAL NOT NULL,
      PRIMARY KEY (name, spec)
    )
    """,
    """
    CREATE TABLE tools (
      id           INTEGER PRIMARY KEY,
      server_name  TEXT NOT NULL,
      spec         TEXT NOT NULL,
      position     INTEGER NOT NULL,
      name         TEXT NOT NULL,
      description  TEXT,
      hash         TEXT NOT NULL,
      approval_hash TEXT NOT NULL,
      definition   BLOB NOT NULL,
      first_seen   REAL NOT NULL,
      last_seen    REAL NOT NULL,
      UNIQUE (server_name, spec, name)
    )
    """,
    """
    CREATE TABLE listings (
      server_name  TEXT NOT NULL,
      spec         TEXT NOT NULL,
      kind         TEXT NOT NULL,
      definitions  BLOB NOT NULL,
      places       BLOB NOT NULL,
      ttl_ms       INTEGER NOT NULL,
      public       INTEGER NOT NULL,
      PRIMARY KEY (server_name, spec, kind)
    )
    """,
    _CALLS,
    """
    CREATE TABLE IF NOT EXISTS vectors (
      hash    TEXT NOT NULL,
      model   TEXT NOT NULL,
      vector  BLOB NOT NULL,
      PRIMARY KEY (hash, model)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX idx_tools_hash ON tools(hash)",
)


def migrate(connection: sqlite3.Connection) -> bool:
    """Whether the file has the tables of this version; new ones and those of an earlier shape get them."""
    if _schema_version(connection) == _SCHEMA_VERSION:
        return True
    # In one step: several gateways may start at once and share their directory.
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        # Asked again, because another one may have been quicker.
        shape = _schema_version(connection)
        if shape in _EARLIER_SCHEMA_VERSIONS:
            _keep_calls_alone(connection, shape)
        elif connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return shape == _SCHEMA_VERSION
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    return True


def _schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _keep_calls_alone(connection: sqlite3.Connection, shape: int) -> None:
    """Drop all but calls and vectors: what servers listed, they have to tell another version anew anyway."""
    connection.execute(_CALLS)
    if shape == _FIRST_SCHEMA_VERSION:
        connection.execute(
            """
            INSERT OR IGNORE INTO calls
            SELECT server_name, name, calls, coalesce(last_called, last_seen) FROM tools WHERE calls > 0
            """
        )
    for table in ("servers", "tools", "listings"):
        connection.execute(f"DROP TABLE {table}")
