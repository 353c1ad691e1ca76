"""A PostgreSQL database of any earlier schema version gets the schema of a new one."""

import asyncio

import pytest

from headgate.knowledge.composition import open_postgres_store
from headgate.knowledge.stores.postgres import schema
from headgate.storage.postgres.connection_pool import Connection, open_databases
from testkit.postgres import server
from tests.knowledge.stores.sample_documents import document

COLUMNS = (
    "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns"
    " WHERE starts_with(table_name, 'knowledge_') ORDER BY table_name, column_name"
)
INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE starts_with(tablename, 'knowledge_') ORDER BY 1"


async def schema_of(connection: Connection) -> list[tuple[object, ...]]:
    return [
        row
        for statement in (COLUMNS, INDEXES)
        for row in await (await connection.execute(statement)).fetchall()
    ]


def test_migrations_are_numbered_without_a_gap() -> None:
    numbers = [int(path.name.split("_")[0]) for path in schema.MIGRATIONS]
    assert numbers == list(range(1, schema.SCHEMA_VERSION + 1))


@pytest.mark.parametrize("version", range(schema.SCHEMA_VERSION))
async def test_a_database_of_each_earlier_version_gets_the_schema_of_a_new_one(version: int) -> None:
    async def migrate_partly(connection: Connection) -> None:
        if version:
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            await schema.migrate(connection, 0, version)

    async def nothing(connection: Connection) -> None:
        """The tables are made by the test."""

    async def revision(connection: Connection) -> int:
        return 0

    old, new = [await asyncio.to_thread(server().new_database) for _ in range(2)]
    found = []
    for url, prepare in ((old, migrate_partly), (new, nothing)):
        async with open_databases(url, None, nothing, version=revision, connections=(1, 2)) as databases:
            await databases.primary.write(prepare)
            await databases.primary.write(schema.ensure_schema)
            found.append(await databases.primary.read(schema_of))
    assert found[0] == found[1]
    async with open_postgres_store(old) as store:
        await store.replace_document(document("a.md", "a text"))
        assert await store.revision() == 1
