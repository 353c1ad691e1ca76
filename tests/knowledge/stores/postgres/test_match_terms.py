"""A search by words among many documents looks at the best first, and finds the same."""

import asyncio

import pytest

from headgate.knowledge.data_model import DocumentFilters
from headgate.knowledge.stores.postgres import full_text, schema
from headgate.knowledge.stores.postgres.store import PostgresKnowledgeStore
from headgate.search.block_postings import ScoredChunk
from headgate.storage.postgres.connection_pool import Connection, open_databases
from testkit.postgres import server
from tests.knowledge.stores.sample_documents import START, document


@pytest.mark.parametrize("looked_at", [2, 4, 100])
async def test_it_finds_the_same_however_many_it_looks_at_first(looked_at: int) -> None:
    database = await asyncio.to_thread(lambda: server().database())
    async with open_databases(database.url, None, schema.ensure_schema) as databases:
        store = PostgresKnowledgeStore(databases, lambda: START)
        await store.replace_document(document("a.md", "pump pump", "pump hose", "valve", category="one"))
        await store.replace_document(document("b.md", "pump pump pump", "pump", "pump valve", category="two"))
        for category, limit in (("one", 2), ("two", 2), ("two", 50), ("none", 2)):
            filters = DocumentFilters(categories=(category,))
            plainly = await store.match_terms(["pump", "valv"], limit, filters)

            async def find(
                connection: Connection, filters: DocumentFilters = filters, limit: int = limit
            ) -> list[ScoredChunk]:
                return await full_text.match_terms(
                    connection, ["pump", "valv"], limit, filters, most_allowed=0, looked_at=looked_at
                )

            assert await databases.read(find) == plainly
