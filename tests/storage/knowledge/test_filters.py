"""Which chunks pass a filter is remembered in bounds, and asked anew when the store has changed."""

from pathlib import Path

from headgate.knowledge.values import Filters
from headgate.storage.knowledge.passages import Sieve
from headgate.storage.knowledge.schema import TABLES
from headgate.storage.knowledge.writing import replace
from headgate.storage.sqlite.database_file import open_database_file
from tests.storage.knowledge.documents import START, document


def test_large_answers_are_not_kept_beside_each_other(tmp_path: Path) -> None:
    connection = open_database_file(tmp_path / "knowledge.db", TABLES, 5.0)
    for name in "ab":
        replace(connection, document(f"{name}.md", "one", "two", "three", category=name), START)
    first, second = (Filters(categories=(name,)) for name in "ab")
    wide, narrow = Sieve(most_ids=6), Sieve(most_ids=5)
    for sieve in (wide, narrow):
        assert sieve.passing(connection, first) == frozenset({1, 2, 3})
        assert sieve.passing(connection, second) == frozenset({4, 5, 6})
    # What was forgotten is asked again, and nobody sees a difference but the time it takes.
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    wide.passing(connection, first)
    kept = len(asked)
    assert narrow.passing(connection, first) == frozenset({1, 2, 3})
    assert len(asked) > 2 * kept
    connection.close()


def test_one_answer_that_is_too_large_is_still_an_answer(tmp_path: Path) -> None:
    connection = open_database_file(tmp_path / "knowledge.db", TABLES, 5.0)
    replace(connection, document("a.md", "one", "two", category="x"), START)
    sieve = Sieve(most_ids=1)
    for _ in range(2):
        assert sieve.passing(connection, Filters(categories=("X",))) == frozenset({1, 2})
    connection.close()
