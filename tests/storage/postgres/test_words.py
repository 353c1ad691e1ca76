"""A search by words among many documents looks at the best first, and finds the same."""

import asyncio

import pytest

from headgate.knowledge.values import Filters, Found
from headgate.storage.postgres.knowledge import passages, schema
from headgate.storage.postgres.knowledge.store import PostgresStore
from headgate.storage.postgres.pool import Connection, connected
from tests.postgres import server
from tests.storage.knowledge.documents import START, document


@pytest.mark.parametrize("looked_at", [2, 4, 100])
async def test_it_finds_the_same_however_many_it_looks_at_first(looked_at: int) -> None:
    database = await asyncio.to_thread(lambda: server().database())
    async with connected(database.url, None, schema.ensure) as databases:
        store = PostgresStore(databases, lambda: START)
        await store.replace(document("a.md", "pump pump", "pump hose", "valve", category="one"))
        await store.replace(document("b.md", "pump pump pump", "pump", "pump valve", category="two"))
        for category, limit in (("one", 2), ("two", 2), ("two", 50), ("none", 2)):
            filters = Filters(categories=(category,))
            plainly = await store.containing(["pump", "valv"], limit, filters)

            async def find(
                connection: Connection, filters: Filters = filters, limit: int = limit
            ) -> list[Found]:
                return await passages.containing(
                    connection, ["pump", "valv"], limit, filters, most_allowed=0, looked_at=looked_at
                )

            assert await databases.read(find) == plainly
