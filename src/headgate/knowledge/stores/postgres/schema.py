"""The tables of the documents and of their graph in PostgreSQL: migrations, statements, and the counters."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import psycopg

from headgate.domain.errors import StoreUnavailable
from headgate.knowledge.stores.store_connection import IdKind, Row, read_statements
from headgate.storage.postgres.connection_pool import Connection

T = TypeVar("T")

POSTGRES_SQL: Final = read_statements(Path(__file__).with_name("statements.sql"))
# PostgreSQL's index takes no more than a few thousand bytes.
_LONGEST_STEM: Final = 100

TABLES_EMPTIED: Final = "tables of the documents in this database were emptied; drop them, and ingest again"


@dataclass(slots=True)
class StoreCounters:
    """The counters of the store: one row, which every change locks first."""

    revision: int
    # The ids that were given last; none is ever given again.
    last_source: int
    last_chunk: int
    last_entity: int
    last_relationship: int
    chunks: int
    # How many stems the chunks have in all.
    length: int
    vectors: int
    model: str
    dimensions: int
    # How the words of all chunks were cut.
    words_edition: int

    def new_ids(self, of: IdKind, count: int) -> range:
        """Ids that nothing has had yet, from 1."""
        first = int(getattr(self, f"last_{of}")) + 1
        setattr(self, f"last_{of}", first + count - 1)
        return range(first, first + count)


_COUNTER_COLUMNS: Final = tuple(field.name for field in fields(StoreCounters))


async def fetch_rows(
    connection: Connection, statement: str, *values: object, binary: bool = False
) -> list[tuple[Any, ...]]:
    async with connection.cursor(binary=binary) as cursor:
        await cursor.execute(statement, values)
        return await cursor.fetchall()


async def execute(connection: Connection, statement: str, *values: object) -> int:
    """How many rows a statement has changed."""
    return (await connection.execute(statement, values)).rowcount


async def read_counters(connection: Connection, *, lock: bool = False) -> StoreCounters:
    """The current counters; with `lock` other writers wait until this transaction ends."""
    statement = f"SELECT {', '.join(_COUNTER_COLUMNS)} FROM knowledge_meta"
    found = await fetch_rows(connection, statement + (" FOR UPDATE" if lock else ""))
    if not found:
        raise StoreUnavailable(TABLES_EMPTIED)
    return StoreCounters(*found[0])


async def read_revision(connection: Connection) -> int:
    """The revision alone, which every search reads."""
    found = await fetch_rows(connection, "SELECT revision FROM knowledge_meta")
    if not found:
        raise StoreUnavailable(TABLES_EMPTIED)
    return int(found[0][0])


async def save_counters(connection: Connection, now: StoreCounters) -> None:
    """Save the counters with a new revision, which invalidates what readers have cached."""
    now.revision += 1
    assignments = ", ".join(f"{name} = %s" for name in _COUNTER_COLUMNS)
    await execute(connection, f"UPDATE knowledge_meta SET {assignments}", *astuple(now))


def storable(value: T) -> T:
    """The same with texts that PostgreSQL can keep: there is no room for the character NUL in them."""
    if b"\\u0000" not in msgspec.json.encode(value):
        return value
    return msgspec.convert(_without_nul(msgspec.to_builtins(value)), type(value))


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, list | tuple):
        return [_without_nul(one) for one in value]
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(one) for key, one in value.items()}
    return value


class PostgresConnection:
    """A StoreConnection; the columns of rows and keys are arrays."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        return await fetch_rows(self._connection, POSTGRES_SQL[statement], *values, binary=True)

    async def fetch_matching(self, statement: str, keys: Sequence[Row]) -> list[Row]:
        return await self.fetch(statement, *map(list, zip(*keys, strict=True))) if keys else []

    async def execute(self, statement: str, *values: object) -> None:
        await execute(self._connection, POSTGRES_SQL[statement], *values)

    async def execute_rows(self, statement: str, rows: Sequence[Row]) -> None:
        if rows:
            await self.execute(statement, *map(list, zip(*rows, strict=True)))

    def posting_key(self, stem: str) -> str:
        # No stem has a blank in it.
        return stem if len(stem) <= _LONGEST_STEM else f"long {hashlib.sha256(stem.encode()).hexdigest()}"

    def listed(self, values: Iterable[int | str]) -> object:
        return [storable(one) if isinstance(one, str) else one for one in values]

    async def compute(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.to_thread(function, *arguments)


# Numbered files of statements; the number is the schema version that a file leads to.
MIGRATIONS: Final = tuple(sorted((Path(__file__).parent / "migrations").glob("*.sql")))
SCHEMA_VERSION: Final = len(MIGRATIONS)
# With fewer it cannot search on until enough chunks have passed a filter.
_OLDEST_PGVECTOR: Final = (0, 8)
# Any fixed number; concurrent openers migrate one after the other.
_LOCK: Final = 7_430_119_028
_OTHER_TABLES: Final = (
    "this database has tables of something else under the names that the documents need;"
    " give Headgate a database of its own"
)


async def ensure_schema(connection: Connection) -> None:
    """Bring the tables to the current schema; raises StoreUnavailable with the reason and what to do."""
    if await _schema_version(connection) == SCHEMA_VERSION:
        return
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    # Read again: another process may have migrated the tables meanwhile.
    version = await _schema_version(connection)
    if version > SCHEMA_VERSION:
        raise StoreUnavailable(
            "the documents in this database were stored by a newer Headgate;"
            " update this one, or give it a database of its own"
        )
    if version == 0:
        [(encoding,)] = await fetch_rows(connection, "SHOW server_encoding")
        if encoding != "UTF8":
            raise StoreUnavailable(
                f"this database has the encoding {encoding}, which cannot keep every text;"
                " make one with CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
            )
        await _create_extension(connection)
    await migrate(connection, version, SCHEMA_VERSION)


async def migrate(connection: Connection, version: int, target: int) -> None:
    """Apply the migrations after `version` up to `target`; raises StoreUnavailable."""
    try:
        for path in MIGRATIONS[version:target]:
            await connection.execute(await asyncio.to_thread(path.read_text, "utf-8"))
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidSchemaName):
        # Since PostgreSQL 15 only the owner of a database may, unless it is granted.
        raise StoreUnavailable(
            "the user of the store's URL may not make tables in this database; let its owner run"
            " GRANT CREATE ON SCHEMA public TO that user, or make that user its owner"
        ) from None
    except psycopg.errors.DuplicateTable:
        raise StoreUnavailable(_OTHER_TABLES) from None
    if version == 0:
        await connection.execute("INSERT INTO knowledge_meta (shape) VALUES (%s)", (target,))
    else:
        await connection.execute("UPDATE knowledge_meta SET shape = %s", (target,))


async def _schema_version(connection: Connection) -> int:
    """0 for a database without our tables."""
    [(is_there,)] = await fetch_rows(connection, "SELECT to_regclass('knowledge_meta') IS NOT NULL")
    if not is_there:
        return 0
    try:
        found = await fetch_rows(connection, "SELECT shape FROM knowledge_meta")
    except psycopg.errors.InsufficientPrivilege:
        raise StoreUnavailable(
            "the user of the store's URL may not read the tables of the documents in this database;"
            " give the URL of the user who made them, or let an administrator grant him all on them"
        ) from None
    except psycopg.errors.UndefinedColumn:
        raise StoreUnavailable(_OTHER_TABLES) from None
    # The row is made together with the tables.
    if not found:
        raise StoreUnavailable(TABLES_EMPTIED)
    return int(found[0][0])


async def _create_extension(connection: Connection) -> None:
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except psycopg.errors.InsufficientPrivilege:
        raise StoreUnavailable(
            "the user of the store's URL may not add the extension vector to this database;"
            " let an administrator run CREATE EXTENSION vector in it once"
        ) from None
    except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile):
        raise StoreUnavailable(
            "this PostgreSQL server does not have the extension pgvector;"
            " install it on the server, or leave --store away to keep documents in a file"
        ) from None
    [(version,)] = await fetch_rows(
        connection, "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    )
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_PGVECTOR:
        raise StoreUnavailable(
            f"this database has pgvector {version}, and the store needs 0.8 or newer;"
            " update it on the server, and run ALTER EXTENSION vector UPDATE in this database"
        )
