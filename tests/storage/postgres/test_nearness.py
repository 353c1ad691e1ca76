"""Of many vectors pgvector's graph finds the nearest; here of few, beside all of them compared."""

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial

import pytest

from headgate.knowledge.values import ANYTHING, Filters, Found
from headgate.storage.postgres.knowledge import schema
from headgate.storage.postgres.knowledge.nearness import nearest
from headgate.storage.postgres.knowledge.rows import numbers
from headgate.storage.postgres.knowledge.selecting import select
from headgate.storage.postgres.knowledge.store import PostgresStore
from headgate.storage.postgres.pool import Connection, Databases, connected
from tests.postgres import server
from tests.storage.knowledge.documents import MODEL, START, document, phrase, vector

SOURCES = 6
CHUNKS = 100
DIMENSIONS = 8


@pytest.fixture
async def databases() -> AsyncIterator[Databases]:
    """Return a database with some hundred chunks, each third of whose sources is of the category few."""
    chance = random.Random(8)
    database = await asyncio.to_thread(lambda: server().database())
    async with connected(database.url, None, schema.ensure) as databases:
        store = PostgresStore(databases, lambda: START)
        await store.use_model(MODEL, DIMENSIONS)
        for number in range(SOURCES):
            texts = [f"text {place} {'odd' if place % 2 else 'even'} one" for place in range(CHUNKS)]
            await store.replace(
                document(f"{number}.md", *texts, category="few" if number % 3 == 0 else "many")
            )
        made = {id: _any(chance) for id in range(1, SOURCES * CHUNKS + 1)}
        assert await store.keep_vectors(MODEL, made) == SOURCES * CHUNKS
        yield databases


def _any(chance: random.Random) -> bytes:
    return vector(*(chance.gauss(0, 1) for _ in range(DIMENSIONS)))


@pytest.mark.parametrize("filters", [ANYTHING, Filters(categories=("few",)), phrase("odd one")])
async def test_the_graph_finds_what_comparing_all_finds(databases: Databases, filters: Filters) -> None:
    async def find(connection: Connection, wanted: bytes, most_compared: int) -> list[Found]:
        now, selection = await numbers(connection), await select(connection, filters)
        # So few would be compared, whatever we say.
        await connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        return await nearest(connection, now, wanted, 20, selection, most_compared=most_compared)

    chance = random.Random(9)
    same = 0
    for _ in range(10):
        wanted = _any(chance)
        by_graph = await databases.read(partial(find, wanted=wanted, most_compared=0))
        by_comparing = await databases.read(partial(find, wanted=wanted, most_compared=10_000))
        assert len(by_graph) == len(by_comparing) == 20
        same += by_graph == by_comparing
    assert same >= 9
