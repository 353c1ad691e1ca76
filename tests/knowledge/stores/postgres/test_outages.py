"""A server goes away and comes back: no restart is needed, and no internal detail is shown."""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from psycopg import sql

from headgate.domain.errors import StoreUnavailable
from headgate.knowledge.composition import open_postgres_store
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.stores.postgres import schema
from headgate.storage.postgres.connection_pool import MOST_CONNECTIONS, Connection, open_databases
from testkit.postgres import Database, server
from tests.knowledge.stores.sample_documents import document, found

PASSWORD = "canary-of-the-password"
BOUND_SECONDS = 20.0


@pytest.fixture
async def database() -> Database:
    """Return a database without documents."""
    return await asyncio.to_thread(lambda: server().database())


@pytest.fixture
def running() -> Iterator[None]:
    """Return nothing; the server of all tests runs again afterwards."""
    yield
    server().start()


async def test_a_server_that_stops_is_away_until_it_runs_again(database: Database, running: None) -> None:
    async with asyncio.timeout(BOUND_SECONDS), open_postgres_store(database.url) as store:
        await store.replace_document(document("a.md", "a pump"))
        await asyncio.to_thread(server().stop)
        with pytest.raises(StoreUnavailable) as away:
            await store.revision()
        assert str(away.value) == "Database unavailable, retry in 5s"
        with pytest.raises(StoreUnavailable):
            await store.replace_document(document("b.md", "a valve"))
        await asyncio.to_thread(server().start)
        assert await store.revision() == 1
        assert set(await found(store, "pump")) == {1}
        await store.replace_document(document("b.md", "a valve"))
        assert set(await found(store, "valve")) == {2}


async def test_a_store_may_be_opened_before_its_server_runs(database: Database, running: None) -> None:
    await asyncio.to_thread(server().stop)
    async with asyncio.timeout(BOUND_SECONDS), open_postgres_store(database.url) as store:
        with pytest.raises(StoreUnavailable):
            await store.source_digests()
        await asyncio.to_thread(server().start)
        await store.replace_document(document("a.md", "a pump"))
        assert await store.revision() == 1


async def test_connections_that_were_ended_are_replaced_unseen(database: Database) -> None:
    async with open_postgres_store(database.url) as store:
        await store.replace_document(document("a.md", "a pump"))
        assert await _end_connections(database.url) >= 1
        assert await store.revision() == 1


async def test_a_write_that_loses_its_connection_has_not_happened(database: Database) -> None:
    async with (
        open_databases(database.url, None, schema.ensure_schema) as databases,
        open_postgres_store(database.url) as store,
    ):

        async def write(connection: Connection) -> None:
            await connection.execute("UPDATE knowledge_meta SET revision = 77")
            await _end_connections(database.url)
            await connection.execute("SELECT 1")

        with pytest.raises(StoreUnavailable):
            await databases.primary.write(write)
        assert await store.revision() == 0


async def test_there_are_never_more_connections_than_ten(database: Database) -> None:
    together = asyncio.Barrier(MOST_CONNECTIONS)
    seen: set[int] = set()

    async def read(connection: Connection) -> None:
        seen.add(connection.pgconn.backend_pid)
        await together.wait()

    async with (
        asyncio.timeout(BOUND_SECONDS),
        open_databases(database.url, None, schema.ensure_schema) as databases,
    ):
        await asyncio.gather(*(databases.primary.read(read) for _ in range(3 * MOST_CONNECTIONS)))
    assert len(seen) == MOST_CONNECTIONS


async def _end_connections(url: str) -> int:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    async with connection:
        ended = await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return len(await ended.fetchall())


# No internal detail is shown.


@pytest.fixture
async def locked(database: Database) -> AsyncIterator[str]:
    """Return the URL of a user with a password, who may open the store and do nothing with it."""
    async with open_postgres_store(database.url) as store:
        await store.replace_document(document("a.md", "a pump"))
    name = "user_" + database.url.split("?")[0].rsplit("_", 1)[1]
    connection = await psycopg.AsyncConnection.connect(database.url, autocommit=True)
    async with connection:
        await connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), PASSWORD)
        )
        await connection.execute(sql.SQL("GRANT SELECT ON knowledge_meta TO {}").format(sql.Identifier(name)))
        yield database.url.replace("postgres:@", f"{name}:{PASSWORD}@")
        await connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
        await connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


async def test_neither_errors_nor_the_log_tell_anything_internal(
    locked: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_postgres_store(locked) as store:
        for refused in (store.source_digests(), store.replace_document(document("b.md", "x")), _first(store)):
            with pytest.raises(StoreUnavailable) as away:
                await refused
            assert "grant him all on them" in away.value.why
            told = "".join(traceback.format_exception(away.value)).splitlines()[-1]
            _is_silent(f"{told} {away.value} {away.value.hint} {away.value.__cause__!r}")
    _is_silent(caplog.text)
    assert "may not use the tables of the documents; let an administrator grant" in caplog.text


async def test_a_server_that_cannot_be_reached_is_not_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_postgres_store(
        f"postgresql://someone:{PASSWORD}@/nowhere?host=/nonexistent/SELECT"
    ) as store:
        with pytest.raises(StoreUnavailable):
            await store.revision()
    _is_silent(caplog.text)
    assert caplog.text.count("cannot be used: no server listens where the store's URL points to") == 1


@pytest.mark.parametrize(
    ("part", "other", "meant"),
    [
        ("postgres:@", "nobody_of_this_name:@", "the user or the password of the store's URL is wrong"),
        ("/postgres?", "/no_such_base?", "the database of the store's URL does not exist"),
    ],
)
async def test_the_log_tells_why_a_server_lets_nobody_in(
    part: str, other: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = await asyncio.to_thread(lambda: server().url())
    assert part in url
    async with open_postgres_store(url.replace(part, other)) as store:
        with pytest.raises(StoreUnavailable) as away:
            await store.check()
        assert away.value.why.startswith(f"{meant}; ")
    assert caplog.text.count(f"cannot be used: {meant}") == 1
    assert not any(name in caplog.text for name in ("nobody_of_this_name", "no_such_base", "FATAL"))


async def _first(store: KnowledgeStore) -> object:
    return [chunk async for chunk in store.iter_chunks()]


def _is_silent(told: str) -> None:
    for secret in (PASSWORD, "knowledge_", "SELECT", "/tmp", "/nonexistent", "socket", "someone"):
        assert secret not in told
