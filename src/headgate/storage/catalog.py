"""proxy.db: what every server listed the last time, so that a gateway that starts can answer at once.

The file is a cache: without it nothing is lost but the first seconds.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from headgate.catalog.fingerprint import definition_hash
from headgate.catalog.hints import CacheHint
from headgate.domain.kind import Kind

log = logging.getLogger("headgate.storage")

T = TypeVar("T")

# Another number means another shape, and the file is made anew.
_SHAPE = 1
_SCHEMA = """
CREATE TABLE servers (
  name  TEXT PRIMARY KEY,
  spec  TEXT NOT NULL
);
CREATE TABLE tools (
  id           INTEGER PRIMARY KEY,
  server_name  TEXT NOT NULL,
  position     INTEGER NOT NULL,
  name         TEXT NOT NULL,
  description  TEXT,
  hash         TEXT NOT NULL,
  definition   BLOB NOT NULL,
  first_seen   REAL NOT NULL,
  last_seen    REAL NOT NULL,
  calls        INTEGER NOT NULL DEFAULT 0,
  last_called  REAL,
  UNIQUE (server_name, name)
);
CREATE INDEX idx_tools_hash ON tools(hash);
CREATE TABLE listings (
  server_name  TEXT NOT NULL,
  kind         TEXT NOT NULL,
  definitions  BLOB NOT NULL,
  ttl_ms       INTEGER NOT NULL,
  public       INTEGER NOT NULL,
  PRIMARY KEY (server_name, kind)
);
CREATE TABLE vectors (
  hash    TEXT NOT NULL,
  model   TEXT NOT NULL,
  vector  BLOB NOT NULL,
  PRIMARY KEY (hash, model)
) WITHOUT ROWID;
"""


class StoredListing(msgspec.Struct, frozen=True):
    """What one server listed of one kind."""

    server: str
    kind: Kind
    definitions: list[bytes]
    hint: CacheHint


class _Name(msgspec.Struct):
    name: str = ""
    description: str | None = None


class CatalogFile:
    """The file, written by one thread in the order of the changes."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalog")
        self._connection: sqlite3.Connection | None = None

    # What was known.

    async def load(self, specs: dict[str, str]) -> list[StoredListing]:
        """What the servers of these definitions listed the last time; everything else is forgotten."""
        return await self._do(lambda: self._load_or_start_over(specs), [])

    def _load_or_start_over(self, specs: dict[str, str]) -> list[StoredListing]:
        try:
            return self._load(specs)
        except (sqlite3.DatabaseError, msgspec.DecodeError, KeyError) as error:
            self._complain("made anew", error)
            self._close()
            self._connection = self._made_anew()
            return []

    def _load(self, specs: dict[str, str]) -> list[StoredListing]:
        connection = self._opened()
        known = dict(connection.execute("SELECT name, spec FROM servers"))
        with connection:
            for server in [name for name, spec in known.items() if specs.get(name) != spec]:
                _forget(connection, server)
        rows = connection.execute("SELECT server_name, kind, definitions, ttl_ms, public FROM listings")
        return [
            StoredListing(
                server,
                Kind[kind],
                msgspec.msgpack.decode(definitions, type=list[bytes]),
                CacheHint(ttl_ms, bool(public)),
            )
            for server, kind, definitions, ttl_ms, public in rows
        ]

    # What is known now.

    def keep(
        self, server: str, spec: str, kind: Kind, definitions: list[bytes], hint: CacheHint
    ) -> "asyncio.Future[None]":
        """Remember what a server lists, soon."""
        return self._later(lambda: self._keep(server, spec, kind, definitions, hint))

    def _keep(self, server: str, spec: str, kind: Kind, definitions: list[bytes], hint: CacheHint) -> None:
        connection = self._opened()
        with connection:
            connection.execute("INSERT OR REPLACE INTO servers VALUES (?, ?)", (server, spec))
            connection.execute(
                "INSERT OR REPLACE INTO listings VALUES (?, ?, ?, ?, ?)",
                (server, kind.name, msgspec.msgpack.encode(definitions), hint.ttl_ms, hint.public),
            )
            if kind is Kind.TOOLS:
                self._keep_tools(connection, server, definitions)

    def _keep_tools(self, connection: sqlite3.Connection, server: str, definitions: list[bytes]) -> None:
        now = self._now()
        rows = [
            (server, position, named.name, named.description, definition_hash(definition), definition, now)
            for position, definition in enumerate(definitions)
            if (named := _named(definition)).name
        ]
        connection.executemany(
            """
            INSERT INTO tools
              (server_name, position, name, description, hash, definition, first_seen, last_seen)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)
            ON CONFLICT (server_name, name) DO UPDATE SET
              position = ?2, description = ?4, hash = ?5, definition = ?6, last_seen = ?7
            """,
            rows,
        )
        connection.execute("DELETE FROM tools WHERE server_name = ? AND last_seen < ?", (server, now))

    def count_calls(self, calls: dict[tuple[str, str], int]) -> "asyncio.Future[None]":
        """Remember how often each tool was called, by its server and its name there."""
        rows = [(count, self._now(), server, name) for (server, name), count in calls.items()]
        return self._later(lambda: self._count_calls(rows))

    def _count_calls(self, rows: list[tuple[int, float, str, str]]) -> None:
        with self._opened() as connection:
            connection.executemany(
                "UPDATE tools SET calls = calls + ?, last_called = ? WHERE server_name = ? AND name = ?", rows
            )

    def forget(self, servers: Iterable[str]) -> "asyncio.Future[None]":
        """These servers are no more."""
        gone = list(servers)

        def forget() -> None:
            with self._opened() as connection:
                for server in gone:
                    _forget(connection, server)

        return self._later(forget)

    # Vectors, once per text and model.

    async def vectors(self, model: str) -> dict[str, bytes]:
        """Every vector of a model by the hash of its tool."""
        return await self._do(lambda: self._vectors(model), {})

    def _vectors(self, model: str) -> dict[str, bytes]:
        return dict(self._opened().execute("SELECT hash, vector FROM vectors WHERE model = ?", (model,)))

    def keep_vectors(self, model: str, vectors: dict[str, bytes]) -> "asyncio.Future[None]":
        """Remember vectors of a model."""
        rows = [(digest, model, vector) for digest, vector in vectors.items()]

        def keep() -> None:
            with self._opened() as connection:
                connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

        return self._later(keep)

    async def flush(self) -> None:
        """Write what has not been written yet, and close the file."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._close)
        self._writer.shutdown(wait=False)

    # The file itself.

    def _later(self, work: Callable[[], None]) -> "asyncio.Future[None]":
        return asyncio.ensure_future(self._do(work, None))

    async def _do(self, work: Callable[[], T], otherwise: T) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writer, work)
        except (sqlite3.Error, OSError) as error:
            self._complain("not kept", error)
            return otherwise

    def _complain(self, what: str, error: Exception) -> None:
        log.warning("catalog %s", what, extra={"path": str(self._path), "reason": str(error)})

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = self._fitting() or self._made_anew()
        return self._connection

    def _fitting(self) -> sqlite3.Connection | None:
        """The file as it is, if it has the shape of this version."""
        connection = _connect(self._path)
        try:
            (shape,) = connection.execute("PRAGMA user_version").fetchone()
            if shape == _SHAPE:
                return connection
        except sqlite3.DatabaseError as error:
            self._complain("made anew", error)
        connection.close()
        return None

    def _made_anew(self) -> sqlite3.Connection:
        remove(self._path)
        connection = _connect(self._path)
        connection.executescript(f"{_SCHEMA} PRAGMA user_version = {_SHAPE};")
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def remove(path: Path) -> None:
    """Delete the catalog with what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    with closing(connection.cursor()) as cursor, suppress(sqlite3.DatabaseError):
        cursor.execute("PRAGMA journal_mode = WAL")
        # A crash of the machine may cost the last listing, never the file.
        cursor.execute("PRAGMA synchronous = NORMAL")
    return connection


def _forget(connection: sqlite3.Connection, server: str) -> None:
    for table, column in (("servers", "name"), ("tools", "server_name"), ("listings", "server_name")):
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (server,))


def _named(definition: bytes) -> _Name:
    try:
        return msgspec.json.decode(definition, type=_Name)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Name()
