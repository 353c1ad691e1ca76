"""A SQLite file of any earlier version gets the schema of a new file."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from headgate.domain.errors import StoreFailed
from headgate.knowledge.stores.sqlite.schema import KNOWLEDGE_MIGRATIONS
from headgate.storage.sqlite.catalog_store import CATALOG_MIGRATIONS
from headgate.storage.sqlite.ledger_integrity import LEDGER_MIGRATIONS
from headgate.storage.sqlite.migrations import Migrations, schema_version, split_statements

OURS = {"ledger": LEDGER_MIGRATIONS, "catalog": CATALOG_MIGRATIONS, "knowledge": KNOWLEDGE_MIGRATIONS}
EARLIER_VERSIONS = [
    (name, version) for name, migrations in OURS.items() for version in range(migrations.latest_version)
]


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def schema_of(connection: sqlite3.Connection) -> list[str]:
    """Every table and index as SQL, without comments and spaces."""
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
    return [re.sub(r"--.*|\s", "", sql) for (sql,) in found]


def two_versions(directory: Path, second: str) -> Migrations:
    (directory / "0001_songs.sql").write_text("CREATE TABLE songs (name TEXT);\n")
    (directory / "0002_second.sql").write_text(second)
    return Migrations(directory)


@pytest.mark.parametrize("name", OURS)
def test_migrations_are_numbered_without_a_gap(name: str) -> None:
    versions = [migration.version for migration in OURS[name].all]
    assert versions == list(range(1, len(versions) + 1))


@pytest.mark.parametrize(("name", "version"), EARLIER_VERSIONS)
def test_a_file_of_each_earlier_version_gets_the_schema_of_a_new_one(
    name: str, version: int, connection: sqlite3.Connection
) -> None:
    migrations = OURS[name]
    if version:
        migrations.apply(connection, up_to=version)
    assert schema_version(connection) == version
    migrations.apply(connection)
    assert schema_version(connection) == migrations.latest_version
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        migrations.apply(new)
        assert schema_of(connection) == schema_of(new)


def test_a_migration_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, connection: sqlite3.Connection
) -> None:
    migrations = two_versions(tmp_path, "ALTER TABLE songs ADD COLUMN year;\nDROP TABLE missing;\n")
    migrations.apply(connection, up_to=1)
    before = schema_of(connection)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        migrations.apply(connection)
    assert (schema_version(connection), schema_of(connection)) == (1, before)
    assert not connection.in_transaction


def test_a_step_follows_the_statements_of_its_version(tmp_path: Path, connection: sqlite3.Connection) -> None:
    two_versions(tmp_path, "ALTER TABLE songs ADD COLUMN year;\n")

    def add_song(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO songs VALUES ('first', 1)")

    Migrations(tmp_path, {2: add_song}).apply(connection)
    assert connection.execute("SELECT * FROM songs").fetchall() == [("first", 1)]


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path, connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA user_version = 3")
    with pytest.raises(StoreFailed, match="newer version"):
        two_versions(tmp_path, "").apply(connection)
    assert schema_of(connection) == []


def test_a_database_of_something_else_is_refused(tmp_path: Path, connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE poems (name TEXT)")
    with pytest.raises(StoreFailed, match="something else"):
        two_versions(tmp_path, "").apply(connection)
    assert schema_of(connection) == ["CREATETABLEpoems(nameTEXT)"]


def test_several_processes_that_start_at_once_migrate_a_file_once(tmp_path: Path) -> None:
    migrations = two_versions(tmp_path, "INSERT INTO songs VALUES ('once');\n")

    def start() -> None:
        with closing(sqlite3.connect(tmp_path / "songs.db", isolation_level=None)) as connection:
            migrations.apply(connection)

    starts = [Thread(target=start) for _ in range(8)]
    for thread in starts:
        thread.start()
    for thread in starts:
        thread.join()
    with closing(sqlite3.connect(tmp_path / "songs.db")) as connection:
        assert connection.execute("SELECT * FROM songs").fetchall() == [("once",)]


def test_a_statement_may_hold_semicolons_in_texts_and_comments() -> None:
    script = "-- one; two\nINSERT INTO songs\nVALUES ('a;\nb');\n\nDROP TABLE songs; -- gone;\n"
    assert [statement.strip() for statement in split_statements(script)] == [
        "-- one; two\nINSERT INTO songs\nVALUES ('a;\nb');",
        "DROP TABLE songs; -- gone;",
    ]
