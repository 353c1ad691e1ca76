"""Searches read from a replica as long as it answers, and from the primary otherwise."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

from headgate.knowledge.composition import open_postgres_store
from headgate.knowledge.data_model import NO_FILTERS
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.stores.postgres import schema
from headgate.knowledge.stores.postgres.schema import read_revision
from headgate.knowledge.stores.postgres.store import PostgresKnowledgeStore
from headgate.storage.postgres.connection_pool import open_databases
from testkit.postgres import Server, server
from tests.knowledge.stores.sample_documents import MODEL, Clock, document, found, near, vector

BOUND_SECONDS = 20.0


@pytest.fixture(scope="module")
def replica() -> Iterator[Server]:
    """Return a server that follows the one of all tests."""
    follower = server().replica()
    yield follower
    follower.end()


@pytest.fixture
async def url() -> str:
    """Return where a database with nothing in it is."""
    return await asyncio.to_thread(server().new_database)


def on(follower: Server, url: str) -> str:
    """Where the replica has the database."""
    return follower.url(urlsplit(url).path.strip("/"))


async def follows(reader: KnowledgeStore, revision: int) -> None:
    """Wait until what was written has arrived."""
    async with asyncio.timeout(BOUND_SECONDS):
        while await reader.revision() < revision:
            await asyncio.sleep(0.02)


async def replicated(follower: Server, url: str, revision: int) -> None:
    """Wait until the replica has this revision; a store whose clock stands still would not look again."""

    def read() -> int:
        with psycopg.connect(on(follower, url)) as connection:
            row = connection.execute("SELECT revision FROM knowledge_meta").fetchone()
        return int(row[0]) if row else 0

    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            with contextlib.suppress(psycopg.Error):
                if await asyncio.to_thread(read) >= revision:
                    return
            await asyncio.sleep(0.02)


async def test_what_is_written_to_the_primary_is_read_from_the_replica(url: str, replica: Server) -> None:
    async with open_postgres_store(url, replica_url=on(replica, url)) as store:
        await store.replace_document(document("a.md", "a pump", "a valve"))
        await store.set_model(MODEL, 2)
        await store.store_vectors(MODEL, {1: vector(1, 0), 2: vector(0, 1)})
        await follows(store, 3)
        assert set(await found(store, "valve")) == {2}
        assert await near(store, 1, 0) == [1, 2]
        assert await store.source_ids(NO_FILTERS) == [1]
        assert (await store.statistics()).chunks == 2


@pytest.fixture
async def other(url: str) -> str:
    """Return where a database is that tells by its content that it is read instead of the first one."""
    elsewhere = await asyncio.to_thread(server().new_database)
    async with open_postgres_store(elsewhere) as store:
        for text in ("a valve", "a hose", "a pump"):
            await store.replace_document(document("of-the-replica.md", text))
    async with open_postgres_store(url) as store:
        await store.replace_document(document("of-the-primary.md", "a pump"))
        await store.replace_document(document("of-the-primary.md", "a valve"))
    return elsewhere


async def test_searches_read_there_and_ingestion_does_not(url: str, other: str) -> None:
    async with open_postgres_store(url, replica_url=other) as store:
        assert await store.revision() == 3
        assert (await store.sources([1]))[1].file == "of-the-replica.md"
        assert set(await found(store, "pump")) == {3}
        assert list(await store.source_digests()) == ["of-the-primary.md"]
        assert [id for id, _ in await store.chunks_without_vector(10)] == [2]
        await store.remove_sources(["of-the-primary.md"])
        assert (await store.statistics()).sources == 1
        assert await store.source_digests() == {}


async def test_a_replica_that_is_away_is_not_missed_and_read_again_when_it_is_back(
    url: str, other: str, replica: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    time = Clock()
    await replicated(replica, other, 3)
    async with asyncio.timeout(BOUND_SECONDS), _connected(url, on(replica, other), time) as store:
        await follows(store, 3)
        assert (await store.sources([1]))[1].file == "of-the-replica.md"
        await asyncio.to_thread(replica.stop)
        for _ in range(3):
            assert (await store.sources([1]))[1].file == "of-the-primary.md"
            assert await store.revision() == 2
        assert caplog.text.count("replica of that database cannot be used") == 1
        await asyncio.to_thread(replica.start)
        assert await store.revision() == 2
        time.time += 10.0
        assert (await store.sources([1]))[1].file == "of-the-replica.md"
        assert await store.revision() == 3
        assert caplog.text.count("replica of that database answers again") == 1


async def test_a_replica_that_is_back_is_read_when_it_has_caught_up(
    url: str, other: str, replica: Server
) -> None:
    time = Clock()
    await replicated(replica, other, 3)
    async with (
        asyncio.timeout(BOUND_SECONDS),
        open_postgres_store(url) as primary,
        open_postgres_store(other) as behind,
        _connected(url, on(replica, other), time) as store,
    ):
        await follows(store, 3)
        await asyncio.to_thread(replica.stop)
        for text in ("one", "two"):
            await primary.replace_document(document("of-the-primary.md", text))
        assert await store.revision() == 4
        await asyncio.to_thread(replica.start)
        for _ in range(2):
            time.time += 10.0
            assert await store.revision() == 4, "nobody goes back to what was there before"
            assert (await store.sources([1]))[1].file == "of-the-primary.md"
        for text in ("one", "two"):
            await behind.replace_document(document("of-the-replica.md", text))
        while await store.revision() < 5:
            time.time += 10.0
            await asyncio.sleep(0.02)
        assert (await store.sources([1]))[1].file == "of-the-replica.md"


@asynccontextmanager
async def _connected(url: str, replica_url: str, clock: Clock) -> AsyncIterator[KnowledgeStore]:
    async with open_databases(
        url, replica_url, schema.ensure_schema, version=read_revision, clock=clock
    ) as databases:
        yield PostgresKnowledgeStore(databases, clock)
