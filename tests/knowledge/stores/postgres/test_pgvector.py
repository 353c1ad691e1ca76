"""Of many vectors pgvector's graph finds the nearest; here of few, beside all of them compared."""

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial

import pytest

from headgate.knowledge.data_model import NO_FILTERS, DocumentFilters
from headgate.knowledge.stores.postgres import schema
from headgate.knowledge.stores.postgres.full_text import select_chunks
from headgate.knowledge.stores.postgres.schema import read_counters
from headgate.knowledge.stores.postgres.store import PostgresKnowledgeStore
from headgate.knowledge.stores.postgres.vector_index import nearest
from headgate.search.block_postings import ScoredChunk
from headgate.storage.postgres.connection_pool import Connection, ReplicatedDatabase, open_databases
from testkit.postgres import server
from tests.knowledge.stores.sample_documents import MODEL, START, document, phrase, vector

SOURCES = 6
CHUNKS = 100
DIMENSIONS = 8


@pytest.fixture
async def databases() -> AsyncIterator[ReplicatedDatabase]:
    """Return a database with some hundred chunks, each third of whose sources is of the category few."""
    chance = random.Random(8)
    database = await asyncio.to_thread(lambda: server().database())
    async with open_databases(database.url, None, schema.ensure_schema) as databases:
        store = PostgresKnowledgeStore(databases, lambda: START)
        await store.set_model(MODEL, DIMENSIONS)
        for number in range(SOURCES):
            texts = [f"text {place} {'odd' if place % 2 else 'even'} one" for place in range(CHUNKS)]
            await store.replace_document(
                document(f"{number}.md", *texts, category="few" if number % 3 == 0 else "many")
            )
        made = {id: _any(chance) for id in range(1, SOURCES * CHUNKS + 1)}
        assert await store.store_vectors(MODEL, made) == SOURCES * CHUNKS
        yield databases


def _any(chance: random.Random) -> bytes:
    return vector(*(chance.gauss(0, 1) for _ in range(DIMENSIONS)))


@pytest.mark.parametrize("filters", [NO_FILTERS, DocumentFilters(categories=("few",)), phrase("odd one")])
async def test_the_graph_finds_what_comparing_all_finds(
    databases: ReplicatedDatabase, filters: DocumentFilters
) -> None:
    async def find(connection: Connection, wanted: bytes, most_compared: int) -> list[ScoredChunk]:
        now, selection = await read_counters(connection), await select_chunks(connection, filters)
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
