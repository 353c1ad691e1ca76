"""proxy.db: the last listings of every server, so that a gateway answers at once after a start.

The file is a cache: without it only the first seconds and the call counts are lost. Gateways with different
configurations may share it, so a row belongs to the name and the definition of a server (`spec`, a hash), and
is deleted only when no gateway has used that definition for a while.
"""

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from sqlite3 import Connection
from typing import TypeVar

import msgspec

from headgate.catalog.paged_listing import CacheHint
from headgate.catalog.stored_listing import DefinitionPosition, StoredListing, tool_hashes
from headgate.domain.errors import StoreFailed
from headgate.domain.item import ItemKind
from headgate.domain.payload import decode_or
from headgate.domain.regular_file import check_regular
from headgate.storage.sqlite.migrations import MIGRATIONS_DIRECTORY, Migrations

log = logging.getLogger("headgate.storage")

T = TypeVar("T")

CATALOG_MIGRATIONS = Migrations(MIGRATIONS_DIRECTORY / "catalog")

# The error codes of a file that is damaged, has another schema or is no database.
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT)
# A server that renames its tools all the time must not fill the disk.
_MOST_CALLED = 20_000
# How long unused definitions and calls of unlisted tools are kept: a server may be in another configuration,
# come back, or get a new token.
_UNUSED_RETENTION_SECONDS = 30 * 24 * 3600.0
# Per server name: a token that changes at every start must not fill the disk.
_MOST_DEFINITIONS = 8

# The definitions that each server listed last, for the server definitions in use.
_SELECT_LISTINGS = """
    SELECT server_name, kind, definitions, ttl_ms, public, places, listings.spec
    FROM listings JOIN servers ON servers.name = server_name AND servers.spec = listings.spec
"""
_UPSERT_LISTING = """
    INSERT OR REPLACE INTO listings (server_name, spec, kind, definitions, places, ttl_ms, public)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_UPSERT_TOOL = """
    INSERT INTO tools
      (server_name, spec, position, name, description, hash, approval_hash, definition, first_seen, last_seen)
    VALUES (?1, ?9, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)
    ON CONFLICT (server_name, spec, name) DO UPDATE SET
      position = ?2, description = ?4, hash = ?5, approval_hash = ?6, definition = ?7, last_seen = ?8
"""
_MARK_USED = "UPDATE servers SET last_used = ? WHERE name = ? AND spec = ?"
_COUNT_CALLS = """
    INSERT INTO calls (server_name, name, calls, last_called) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (server_name, name) DO UPDATE SET calls = calls + ?3, last_called = ?4
"""
_DELETE_UNUSED_CALLS = """
    DELETE FROM calls WHERE last_called < ? AND NOT EXISTS (
      SELECT 1 FROM tools WHERE tools.server_name = calls.server_name AND tools.name = calls.name
    )
"""
_DELETE_EXCESS_CALLS = """
    DELETE FROM calls WHERE (server_name, name) IN (
      SELECT server_name, name FROM calls ORDER BY last_called DESC, calls DESC LIMIT -1 OFFSET ?
    )
"""
_DELETE_VECTOR = """
    DELETE FROM vectors WHERE hash = ?1 AND model = ?2
    AND NOT EXISTS (SELECT 1 FROM tools WHERE tools.hash = ?1)
"""


class _NamedDefinition(msgspec.Struct):
    name: str = ""
    description: str | None = None


_NO_NAME = _NamedDefinition()


class SqliteCatalogStore:
    """The file, which one thread writes in the order of the changes."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalog")
        self._connection: Connection | None = None

    async def load(self, specs: dict[str, str], *, forget: bool = True) -> list[StoredListing]:
        """The last listings of these servers; `forget` deletes what is long unused, and marks these."""

        def load() -> list[StoredListing]:
            try:
                return self._load(specs, forget=forget)
            except (TypeError, ValueError, KeyError) as error:
                self._recreate(error)
                return []

        return await self._run(load, [])

    def _load(self, specs: dict[str, str], *, forget: bool) -> list[StoredListing]:
        connection = self._opened()
        if forget:
            with connection:
                self._drop_unused(connection, specs)
        rows = connection.execute(_SELECT_LISTINGS)
        return [
            StoredListing(
                server,
                ItemKind[kind],
                msgspec.msgpack.decode(definitions, type=list[bytes]),
                CacheHint(int(ttl_ms), bool(public)),
                msgspec.msgpack.decode(places, type=list[DefinitionPosition | None]),
            )
            for server, kind, definitions, ttl_ms, public, places, spec in rows
            if specs.get(server) == spec
        ]

    def _drop_unused(self, connection: Connection, specs: dict[str, str]) -> None:
        """Mark these definitions as used, and delete those that no gateway has used for a while."""
        now = self._now()
        connection.executemany(_MARK_USED, [(now, name, spec) for name, spec in specs.items()])
        newest_first = connection.execute(
            "SELECT name, spec, last_used FROM servers ORDER BY last_used DESC"
        ).fetchall()
        kept: Counter[str] = Counter()
        for name, spec, last_used in newest_first:
            kept[name] += 1
            if specs.get(name) == spec:
                continue
            if last_used < now - _UNUSED_RETENTION_SECONDS or kept[name] > _MOST_DEFINITIONS:
                connection.execute("DELETE FROM servers WHERE name = ? AND spec = ?", (name, spec))
                for table in ("tools", "listings"):
                    connection.execute(
                        f"DELETE FROM {table} WHERE server_name = ? AND spec = ?", (name, spec)
                    )

    def keep(
        self,
        server: str,
        spec: str,
        kind: ItemKind,
        definitions: list[bytes],
        hint: CacheHint,
        places: Sequence[DefinitionPosition | None] = (),
    ) -> "asyncio.Future[None]":
        """Store a listing in the background."""
        listing = StoredListing(server, kind, definitions, hint, list(places))
        return self._run(lambda: self._keep(spec, listing), None)

    def _keep(self, spec: str, listing: StoredListing) -> None:
        connection, server = self._opened(), listing.server
        with connection:
            connection.execute("INSERT OR REPLACE INTO servers VALUES (?, ?, ?)", (server, spec, self._now()))
            connection.execute(
                _UPSERT_LISTING,
                (
                    server,
                    spec,
                    listing.kind.name,
                    msgspec.msgpack.encode(listing.definitions),
                    msgspec.msgpack.encode(listing.places),
                    listing.hint.ttl_ms,
                    listing.hint.public,
                ),
            )
            if listing.kind is ItemKind.TOOLS:
                self._keep_tools(connection, server, spec, listing.definitions)

    def _keep_tools(self, connection: Connection, server: str, spec: str, definitions: list[bytes]) -> None:
        now = self._now()
        rows = [
            (server, position, named.name, named.description, *_hashes(definition), definition, now, spec)
            for position, definition in enumerate(definitions)
            if (named := decode_or(definition, _NamedDefinition, _NO_NAME)).name
        ]
        connection.executemany(_UPSERT_TOOL, rows)
        # Compared by name, because a clock may be set back.
        names = {name for _, _, name, *_ in rows}
        where = "server_name = ? AND spec = ?"
        known = connection.execute(f"SELECT name FROM tools WHERE {where}", (server, spec)).fetchall()
        gone = [(server, spec, name) for (name,) in known if name not in names]
        connection.executemany(f"DELETE FROM tools WHERE {where} AND name = ?", gone)

    def see(self, server: str, spec: str) -> "asyncio.Future[None]":
        """Record in the background that a server has listed the same tools again."""
        row = (self._now(), server, spec)
        return self._change(
            ("UPDATE tools SET last_seen = ? WHERE server_name = ? AND spec = ?", [row]), (_MARK_USED, [row])
        )

    def count_calls(self, calls: dict[tuple[str, str], int]) -> "asyncio.Future[None]":
        """Add calls per server and tool, in the background."""
        now = self._now()
        return self._change(
            (_COUNT_CALLS, [(server, name, count, now) for (server, name), count in calls.items()]),
            (_DELETE_UNUSED_CALLS, [(now - _UNUSED_RETENTION_SECONDS,)]),
            (_DELETE_EXCESS_CALLS, [(_MOST_CALLED,)]),
        )

    async def usage(self) -> dict[tuple[str, str], int]:
        """How often each tool was called, by server and tool."""

        def usage() -> dict[tuple[str, str], int]:
            rows = self._opened().execute("SELECT server_name, name, calls FROM calls")
            return {(str(server), str(name)): int(calls) for server, name, calls in rows}

        return await self._run(usage, {})

    async def vectors(self, model: str) -> dict[str, bytes]:
        select = "SELECT hash, vector FROM vectors WHERE model = ?"
        return await self._run(lambda: dict(self._opened().execute(select, (model,))), {})

    def store_vectors(self, model: str, vectors: dict[str, bytes]) -> "asyncio.Future[None]":
        """Store vectors of a model in the background."""
        rows = [(digest, model, vector) for digest, vector in vectors.items()]
        return self._change(("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows))

    def delete_vectors(self, model: str, digests: Iterable[str]) -> "asyncio.Future[None]":
        """Delete vectors of a model in the background, except those of tools that the file still has."""
        return self._change((_DELETE_VECTOR, [(digest, model) for digest in digests]))

    def _change(self, *changes: tuple[str, Sequence[tuple[object, ...]]]) -> "asyncio.Future[None]":
        """Run each statement with each of its rows, all in one transaction in the background."""

        def change() -> None:
            with self._opened() as connection:
                for statement, rows in changes:
                    connection.executemany(statement, rows)

        return self._run(change, None)

    async def flush(self) -> None:
        """Write all changes, and close the file."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._close)
        self._writer.shutdown(wait=False)

    def _run(self, work: Callable[[], T], otherwise: T) -> "asyncio.Future[T]":
        """Queue work at once, so that later work, and `flush`, come after it."""
        loop = asyncio.get_running_loop()
        submitted = loop.run_in_executor(self._writer, self._run_or_recreate, work)
        return asyncio.ensure_future(self._outcome(submitted, otherwise))

    async def _outcome(self, submitted: "asyncio.Future[T]", otherwise: T) -> T:
        try:
            return await submitted
        except (sqlite3.Error, OSError) as error:
            self._log_failure("not kept", error)
            return otherwise

    def _run_or_recreate(self, work: Callable[[], T]) -> T:
        """Run the work, with a new file if this one is broken."""
        try:
            return work()
        except sqlite3.DatabaseError as error:
            if not _is_broken(error):
                raise
            self._recreate(error)
            return work()

    def _recreate(self, error: Exception) -> None:
        self._log_failure("made anew", error)
        self._close()
        self._connection = self._create_new()

    def _log_failure(self, what: str, error: Exception) -> None:
        log.warning("catalog %s", what, extra={"path": str(self._path), "reason": str(error)})

    def _opened(self) -> Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = self._open_migrated() or self._create_new()
        return self._connection

    def _open_migrated(self) -> Connection | None:
        """The file at its latest schema version; None for a newer, foreign or broken one."""
        connection = _connect(self._path)
        try:
            # Not removed first: another gateway that starts now may have it open.
            CATALOG_MIGRATIONS.apply(connection)
            return connection
        except StoreFailed:
            pass
        except sqlite3.DatabaseError as error:
            if not _is_broken(error):
                connection.close()
                raise
            self._log_failure("made anew", error)
        connection.close()
        return None

    def _create_new(self) -> Connection:
        remove_catalog_files(self._path)
        connection = _connect(self._path)
        CATALOG_MIGRATIONS.apply(connection)
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def remove_catalog_files(path: Path) -> None:
    """Delete the catalog with the files that SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _connect(path: Path) -> Connection:
    # Readable by its owner alone: it has the tools of servers and a hash of their definitions.
    for suffix in ("", "-wal", "-shm", "-journal"):
        check_regular(f"{path}{suffix}")
    path.touch(mode=0o600)
    connection = sqlite3.connect(path, check_same_thread=False)
    with closing(connection.cursor()) as cursor, suppress(sqlite3.DatabaseError):
        cursor.execute("PRAGMA journal_mode = WAL")
        # A crash of the machine may lose the last listing, never the file.
        cursor.execute("PRAGMA synchronous = NORMAL")
    return connection


def _is_broken(error: sqlite3.DatabaseError) -> bool:
    """Whether the file is broken; a lock, a full disk or a missing permission is temporary."""
    # An error without a code means that Python could not decode a value.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _BROKEN


def _hashes(definition: bytes) -> tuple[str, str]:
    both = tool_hashes(definition)
    return both.search, both.approval
