"""Which chunks pass a filter is remembered in bounds, and asked anew when the store has changed."""

from pathlib import Path

from headgate.knowledge.data_model import DocumentFilters
from headgate.knowledge.stores.sql_store import replace_document
from headgate.knowledge.stores.sqlite.full_text import FilterCache
from headgate.knowledge.stores.sqlite.schema import KNOWLEDGE_MIGRATIONS
from headgate.knowledge.stores.sqlite.store import SqliteConnection
from headgate.knowledge.stores.store_connection import complete
from headgate.storage.sqlite.database_file import open_database_file
from tests.knowledge.stores.sample_documents import START, document


def test_large_answers_are_not_kept_beside_each_other(tmp_path: Path) -> None:
    connection = open_database_file(tmp_path / "knowledge.db", KNOWLEDGE_MIGRATIONS, 5.0)
    for name in "ab":
        complete(
            replace_document(
                SqliteConnection(connection, START),
                document(f"{name}.md", "one", "two", "three", category=name),
            )
        )
    first, second = (DocumentFilters(categories=(name,)) for name in "ab")
    wide, narrow = FilterCache(most_ids=6), FilterCache(most_ids=5)
    for sieve in (wide, narrow):
        assert sieve.matching_chunks(connection, first) == frozenset({1, 2, 3})
        assert sieve.matching_chunks(connection, second) == frozenset({4, 5, 6})
    # An evicted filter is computed again, with the same result.
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    wide.matching_chunks(connection, first)
    kept = len(asked)
    assert narrow.matching_chunks(connection, first) == frozenset({1, 2, 3})
    assert len(asked) > 2 * kept
    connection.close()


def test_one_answer_that_is_too_large_is_still_an_answer(tmp_path: Path) -> None:
    connection = open_database_file(tmp_path / "knowledge.db", KNOWLEDGE_MIGRATIONS, 5.0)
    complete(
        replace_document(SqliteConnection(connection, START), document("a.md", "one", "two", category="x"))
    )
    sieve = FilterCache(most_ids=1)
    for _ in range(2):
        assert sieve.matching_chunks(connection, DocumentFilters(categories=("X",))) == frozenset({1, 2})
    connection.close()
