"""The tables of the documents and of their graph in PostgreSQL."""

from typing import Final

import psycopg

from headgate.domain.errors import StoreUnavailable
from headgate.knowledge.stores.postgres.statements import TABLES_EMPTIED
from headgate.storage.postgres.connection_pool import Connection

SCHEMA_VERSION: Final = 1
# With fewer it cannot search on until enough chunks have passed a filter.
_OLDEST_PGVECTOR: Final = (0, 8)
# Any number that nobody else takes; all who open a store at once make its tables one after the other.
_LOCK: Final = 7_430_119_028
_OTHER_TABLES: Final = (
    "this database has tables of something else under the names that the documents need;"
    " give Headgate a database of its own"
)

# Text is compared byte by byte, as SQLite does. What may be long has an index of hashes, which has no limit.
_TABLES: Final = (
    """CREATE TABLE knowledge_meta (
        single boolean PRIMARY KEY DEFAULT true CHECK (single),
        shape integer NOT NULL,
        revision bigint NOT NULL DEFAULT 0,
        last_source bigint NOT NULL DEFAULT 0,
        last_chunk bigint NOT NULL DEFAULT 0,
        last_entity bigint NOT NULL DEFAULT 0,
        last_relationship bigint NOT NULL DEFAULT 0,
        chunks bigint NOT NULL DEFAULT 0,
        length bigint NOT NULL DEFAULT 0,
        vectors bigint NOT NULL DEFAULT 0,
        model text NOT NULL DEFAULT '',
        dimensions integer NOT NULL DEFAULT 0,
        words_edition integer NOT NULL DEFAULT 0)""",
    """CREATE TABLE knowledge_sources (
        id bigint PRIMARY KEY,
        file text COLLATE "C" NOT NULL,
        category text NOT NULL,
        category_key text COLLATE "C" NOT NULL,
        doc_type text NOT NULL,
        doc_type_key text COLLATE "C" NOT NULL,
        title text NOT NULL,
        date text COLLATE "C" NOT NULL,
        digest text NOT NULL,
        size_bytes bigint NOT NULL,
        chunks integer NOT NULL,
        tokens bigint NOT NULL,
        ingested double precision NOT NULL)""",
    "CREATE INDEX knowledge_sources_file ON knowledge_sources USING hash (file)",
    # `words` are those of header and text with blanks around each of them, `lexemes` the same for the index.
    """CREATE TABLE knowledge_chunks (
        id bigint PRIMARY KEY,
        source_id bigint NOT NULL,
        place integer NOT NULL,
        header text NOT NULL,
        text text NOT NULL,
        tokens integer NOT NULL,
        digest text NOT NULL,
        words text COLLATE "C" NOT NULL,
        lexemes tsvector NOT NULL)""",
    "CREATE INDEX knowledge_chunks_source ON knowledge_chunks (source_id, place)",
    "CREATE INDEX knowledge_chunks_lexemes ON knowledge_chunks USING gin (lexemes)",
    # Apart from the chunks: a vector that comes later would write the chunk and all its indexes once more.
    """CREATE TABLE knowledge_vectors (
        chunk_id bigint PRIMARY KEY,
        source_id bigint NOT NULL,
        embedding vector NOT NULL)""",
    "CREATE INDEX knowledge_vectors_source ON knowledge_vectors (source_id)",
    # Chunks that have no vector yet.
    "CREATE TABLE knowledge_waiting (chunk_id bigint PRIMARY KEY)",
    """CREATE TABLE knowledge_postings (
        stem text COLLATE "C" NOT NULL,
        block integer NOT NULL,
        entries bytea STORAGE EXTERNAL NOT NULL,
        PRIMARY KEY (stem, block))""",
    """CREATE TABLE knowledge_entities (
        id bigint PRIMARY KEY,
        type text COLLATE "C" NOT NULL,
        name text NOT NULL,
        aliases text NOT NULL,
        confidence double precision NOT NULL,
        mentions integer NOT NULL,
        attributes text NOT NULL,
        external_id text NOT NULL,
        imported boolean NOT NULL,
        updated double precision NOT NULL)""",
    """CREATE TABLE knowledge_names (
        key text COLLATE "C" NOT NULL,
        entity_id bigint NOT NULL)""",
    "CREATE INDEX knowledge_names_key ON knowledge_names USING hash (key)",
    "CREATE INDEX knowledge_names_entity ON knowledge_names (entity_id)",
    # What a document, or else an import, says of an entity; document is 0 for imports.
    """CREATE TABLE knowledge_entity_claims (
        number bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        entity_id bigint NOT NULL,
        document bigint NOT NULL,
        origin text COLLATE "C" NOT NULL,
        said text NOT NULL)""",
    "CREATE INDEX knowledge_entity_claims_entity ON knowledge_entity_claims (entity_id, number)",
    "CREATE INDEX knowledge_entity_claims_document ON knowledge_entity_claims (document)",
    """CREATE TABLE knowledge_mentions (
        chunk_id bigint,
        entity_id bigint,
        start integer,
        stop integer,
        confidence double precision NOT NULL,
        PRIMARY KEY (chunk_id, entity_id, start, stop))""",
    "CREATE INDEX knowledge_mentions_entity ON knowledge_mentions (entity_id)",
    """CREATE TABLE knowledge_relationships (
        id bigint PRIMARY KEY,
        source_id bigint NOT NULL,
        target_id bigint NOT NULL,
        type text COLLATE "C" NOT NULL,
        confidence double precision NOT NULL,
        attributes text NOT NULL,
        updated double precision NOT NULL)""",
    "CREATE INDEX knowledge_relationships_source ON knowledge_relationships (source_id, target_id)",
    "CREATE INDEX knowledge_relationships_target ON knowledge_relationships (target_id)",
    """CREATE TABLE knowledge_relationship_claims (
        number bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        relationship_id bigint NOT NULL,
        document bigint NOT NULL,
        origin text COLLATE "C" NOT NULL,
        said text NOT NULL)""",
    "CREATE INDEX knowledge_relationship_claims_one ON knowledge_relationship_claims (relationship_id)",
    "CREATE INDEX knowledge_relationship_claims_document ON knowledge_relationship_claims (document)",
)


async def ensure_schema(connection: Connection) -> None:
    """Make what is missing; raises StoreAway that says why, where a database will not do."""
    if await _schema_version(connection) == SCHEMA_VERSION:
        return
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    shape = await _schema_version(connection)
    if shape == 0:
        await _check_encoding(connection)
        await _create_extension(connection)
        await _create_tables(connection)
    elif shape != SCHEMA_VERSION:
        raise StoreUnavailable(
            "the documents in this database were stored by a newer Headgate;"
            " update this one, or give it a database of its own"
        )


async def _schema_version(connection: Connection) -> int:
    """0 where there is nothing of ours yet."""
    found = await (await connection.execute("SELECT to_regclass('knowledge_meta') IS NOT NULL")).fetchone()
    if found is None or not found[0]:
        return 0
    try:
        row = await (await connection.execute("SELECT shape FROM knowledge_meta")).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        raise StoreUnavailable(
            "the user of the store's URL may not read the tables of the documents in this database;"
            " give the URL of the user who made them, or let an administrator grant him all on them"
        ) from None
    except psycopg.errors.UndefinedColumn:
        raise StoreUnavailable(_OTHER_TABLES) from None
    # The row is made together with the tables.
    if row is None:
        raise StoreUnavailable(TABLES_EMPTIED)
    return int(row[0])


async def _check_encoding(connection: Connection) -> None:
    row = await (await connection.execute("SHOW server_encoding")).fetchone()
    if row is not None and row[0] != "UTF8":
        raise StoreUnavailable(
            f"this database has the encoding {row[0]}, which cannot keep every text;"
            " make one with CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
        )


async def _create_tables(connection: Connection) -> None:
    try:
        for statement in _TABLES:
            await connection.execute(statement)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidSchemaName):
        # Since PostgreSQL 15 nobody but the owner of a database may, unless he is allowed to.
        raise StoreUnavailable(
            "the user of the store's URL may not make tables in this database; let its owner run"
            " GRANT CREATE ON SCHEMA public TO that user, or make that user its owner"
        ) from None
    except psycopg.errors.DuplicateTable:
        raise StoreUnavailable(_OTHER_TABLES) from None
    await connection.execute("INSERT INTO knowledge_meta (shape) VALUES (%s)", (SCHEMA_VERSION,))


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
    row = await (
        await connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    ).fetchone()
    version = str(row[0]) if row else "0"
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_PGVECTOR:
        raise StoreUnavailable(
            f"this database has pgvector {version}, and the store needs 0.8 or newer;"
            " update it on the server, and run ALTER EXTENSION vector UPDATE in this database"
        )
