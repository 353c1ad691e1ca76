"""A store in PostgreSQL is opened, or says in one sentence why it cannot be."""

import asyncio
import logging
import subprocess
import sys

import psycopg
import pytest
import uvloop

from headgate.domain.errors import ConfigError, StoreUnavailable
from headgate.knowledge.composition import open_postgres_store
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.stores.postgres import schema
from headgate.knowledge.stores.postgres.schema import fetch_rows
from headgate.knowledge.stores.postgres.store import PostgresKnowledgeStore
from headgate.storage.postgres.connection_pool import Connection, open_databases
from testkit.postgres import server
from tests.knowledge.stores.sample_documents import MODEL, all_chunks, document, found, near, vector


@pytest.mark.parametrize(
    "url",
    [
        "mysql://someone:s3cret@host/db",
        "host=somewhere password=s3cret",
        "s3cret",
        "postgresql://someone:s3cret@host:not-a-port/db?nonsense=1",
        "postgresql://someone:s3cret%zz@host/db",
    ],
)
@pytest.mark.parametrize("of_replica", [False, True])
async def test_a_url_that_cannot_be_used_is_not_repeated(url: str, *, of_replica: bool) -> None:
    urls = ("postgresql://host/db", url) if of_replica else (url, None)
    with pytest.raises(ConfigError) as refused:
        async with open_postgres_store(urls[0], replica_url=urls[1]):
            pass
    said = f"{refused.value} {refused.value.hint}"
    assert "postgresql://" in said
    assert "s3cret" not in said
    assert "s3cret" not in repr(refused.value.__cause__)


def test_without_the_driver_it_is_said_what_to_install() -> None:
    program = (
        "import asyncio, sys; sys.modules['psycopg'] = None\n"
        "from headgate.knowledge.composition import open_postgres_store\n"
        "async def main():\n"
        "    async with open_postgres_store('postgresql://host/db'): pass\n"
        "try: asyncio.run(main())\n"
        "except Exception as error: sys.stdout.write(type(error).__name__ + ' ' + error.hint)\n"
    )
    said = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=30)
    assert said == 'ConfigError pip install "headgate-mcp[postgres]"'


async def test_several_may_open_a_new_database_at_once() -> None:
    url = await asyncio.to_thread(server().new_database)

    async def open_and_store(number: int) -> None:
        async with open_postgres_store(url) as store:
            await store.replace_document(document(f"{number}.md", "a text"))

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(open_and_store(number))
    async with open_postgres_store(url) as store:
        assert await store.revision() == 4
        assert [chunk.id for chunk in await all_chunks(store)] == [1, 2, 3, 4]
        assert sorted(await store.source_digests()) == ["0.md", "1.md", "2.md", "3.md"]


async def test_documents_of_a_newer_headgate_are_left_alone() -> None:
    url = await asyncio.to_thread(server().new_database)
    async with open_postgres_store(url) as store:
        await store.replace_document(document("a.md", "a text"))
    await _do(url, "UPDATE knowledge_meta SET shape = shape + 1")
    async with open_postgres_store(url) as store:
        assert "newer Headgate; update this one" in await _refused(store)
        await _do(url, "UPDATE knowledge_meta SET shape = shape - 1")
        assert len(await all_chunks(store)) == 1


async def test_a_user_who_may_not_add_pgvector_is_told_who_may() -> None:
    url = await asyncio.to_thread(server().new_database)
    name = url.split("?")[0].rsplit("/", 1)[1]
    await _do(url, f"CREATE ROLE plain_{name} LOGIN PASSWORD 'none'")
    async with open_postgres_store(url.replace("postgres:@", f"plain_{name}:none@")) as store:
        assert "administrator run CREATE EXTENSION vector" in await _refused(store)
        # What was mended is found without a restart.
        await _do(url, f"CREATE EXTENSION vector; GRANT CREATE ON SCHEMA public TO plain_{name}")
        assert await store.revision() == 0


@pytest.mark.parametrize("made_by_another", [False, True])
async def test_a_user_who_may_not_make_or_read_the_tables_is_told_what_to_grant(
    *, made_by_another: bool
) -> None:
    url = await asyncio.to_thread(server().new_database)
    name = url.split("?")[0].rsplit("/", 1)[1]
    await _do(url, f"CREATE EXTENSION vector; CREATE ROLE plain_{name} LOGIN PASSWORD 'none'")
    if made_by_another:
        async with open_postgres_store(url):
            pass
    async with open_postgres_store(url.replace("postgres:@", f"plain_{name}:none@")) as store:
        told = await _refused(store)
    assert ("may not read" if made_by_another else "may not make") in told
    assert "grant" in told.lower()


@pytest.mark.parametrize("table", ["knowledge_meta", "knowledge_sources"])
async def test_tables_of_something_else_are_left_alone(table: str) -> None:
    url = await asyncio.to_thread(server().new_database)
    await _do(url, f"CREATE TABLE {table} (songs text)")
    async with open_postgres_store(url) as store:
        assert "give Headgate a database of its own" in await _refused(store)
    there = "SELECT relname FROM pg_class WHERE relname ~ '^knowledge_' AND relkind = 'r'"
    assert await _do(url, there) == [(table,)]


async def test_a_database_that_cannot_keep_every_text_is_refused_at_once() -> None:
    url = await asyncio.to_thread(server().new_database)
    name = url.split("?")[0].rsplit("/", 1)[1]
    await _do(url, f"CREATE DATABASE {name}_latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    async with open_postgres_store(url.replace(f"/{name}?", f"/{name}_latin?")) as store:
        told = await _refused(store)
    assert "the encoding LATIN1" in told
    assert "ENCODING 'UTF8'" in told


async def test_tables_that_somebody_emptied_are_not_taken_for_new_ones() -> None:
    url = await asyncio.to_thread(server().new_database)
    async with open_postgres_store(url) as store:
        await store.check()
        await _do(url, "DELETE FROM knowledge_meta")
        assert "drop them, and ingest again" in await _refused(store)
    async with open_postgres_store(url) as store:
        assert "drop them, and ingest again" in await _refused(store)


async def test_what_is_noticed_at_a_glance_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    url = await asyncio.to_thread(server().new_database)
    async with open_postgres_store(url) as store:
        await store.revision()
        await _do(url, "DELETE FROM knowledge_meta")
        with caplog.at_level(logging.WARNING), pytest.raises(StoreUnavailable):
            await store.revision()
    assert "drop them, and ingest again" in caplog.text


async def _refused(store: KnowledgeStore) -> str:
    """What the operator reads; a caller learns nothing of it."""
    with pytest.raises(StoreUnavailable) as away:
        await store.check()
    assert (str(away.value), away.value.hint) == ("Database unavailable, retry in 5s", "retry in 5 seconds")
    assert away.value.why not in str(away.value.error_data)
    return away.value.why


async def test_no_more_connections_are_open_than_allowed() -> None:
    database = await asyncio.to_thread(lambda: server().database())
    url = f"{database.url}&application_name=counted"
    async with open_postgres_store(url, fewest_connections=1, most_connections=2) as store:
        await asyncio.gather(*(store.revision() for _ in range(12)))
        counted = await _do(
            database.url, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'"
        )
        assert counted in ([(1,)], [(2,)])


async def test_nothing_is_prepared_on_the_server() -> None:
    # A pooler between us and the server hands the next transaction to another connection of its own.
    database = await asyncio.to_thread(lambda: server().database())
    async with open_databases(database.url, None, schema.ensure_schema) as databases:
        store = PostgresKnowledgeStore(databases, lambda: 0.0)
        for _ in range(12):
            await store.revision()
        for _ in range(10):
            assert await databases.read(_prepared) == [(0,)]


async def test_tables_that_were_dropped_are_made_again() -> None:
    url = await asyncio.to_thread(server().new_database)
    async with open_postgres_store(url) as store:
        await store.replace_document(document("a.md", "a text"))
        await _do(url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        with pytest.raises(StoreUnavailable):
            await store.revision()
        assert await store.revision() == 0
        await store.replace_document(document("b.md", "another text"))
        assert set(await found(store, "another")) == {1}


def test_it_works_on_the_loop_of_production() -> None:
    database = server().database()

    async def store_and_search() -> list[int]:
        async with open_postgres_store(database.url) as store:
            await store.replace_document(document("a.md", "a pump", "a valve"))
            await store.set_model(MODEL, 2)
            await store.store_vectors(MODEL, {1: vector(1, 0), 2: vector(0, 1)})
            assert set(await found(store, "valve")) == {2}
            return await near(store, 1, 0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(store_and_search()) == [1, 2]


async def _prepared(connection: Connection) -> list[tuple[object, ...]]:
    return await fetch_rows(connection, "SELECT count(*) FROM pg_prepared_statements")


async def _do(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    async with connection:
        cursor = await connection.execute(statement.encode())
        return await cursor.fetchall() if cursor.description else []
