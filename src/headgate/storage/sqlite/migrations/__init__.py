"""Applies numbered SQL migrations, so that a SQLite file of any earlier version gets the current schema."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from sqlite3 import Connection
from typing import Final, NamedTuple

from headgate.domain.errors import StoreFailed

NEWER_VERSION_MESSAGE: Final = "the file was written by a newer version of headgate"
FOREIGN_FILE_MESSAGE: Final = "the file is a database of something else"

# Each database of this package has a directory here.
MIGRATIONS_DIRECTORY: Final = Path(__file__).parent

MigrationStep = Callable[[Connection], None]


class Migration(NamedTuple):
    """One numbered file of SQL statements; the number is the schema version that it leads to."""

    version: int
    path: Path


class Migrations:
    """The migrations of one database, in files such as `0001_operations.sql` of one directory.

    A new file is at version 0 and gets all of them, so that its schema has one definition.
    """

    def __init__(self, directory: Path, steps: Mapping[int, MigrationStep] | None = None) -> None:
        """`steps` holds, by version, work that SQL cannot do; it follows the statements of that version."""
        self._directory = directory
        self._steps = steps or {}

    @cached_property
    def all(self) -> tuple[Migration, ...]:
        """Every migration, in order of version."""
        # Not `glob`, whose first use takes milliseconds of a start.
        names = sorted(name for name in os.listdir(self._directory) if name.endswith(".sql"))
        return tuple(Migration(int(name.split("_")[0]), self._directory / name) for name in names)

    @property
    def latest_version(self) -> int:
        return self.all[-1].version

    def checked_version(self, connection: Connection) -> int:
        """The schema version that the file has; raises StoreFailed when a newer Headgate wrote it."""
        version = schema_version(connection)
        if version > self.latest_version:
            raise StoreFailed(NEWER_VERSION_MESSAGE)
        return version

    def apply(self, connection: Connection, *, up_to: int | None = None) -> None:
        """Bring the file to the latest version, or to `up_to`, in one transaction.

        Raises sqlite3.Error, and StoreFailed for a newer or foreign file; the file is left as it is then.
        """
        version = self.latest_version if up_to is None else up_to
        if self.checked_version(connection) == version:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Read again: another process with the same directory may have migrated the file meanwhile.
            current = self.checked_version(connection)
            if current == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise StoreFailed(FOREIGN_FILE_MESSAGE)
            for migration in self.all:
                if current < migration.version <= version:
                    # Not `executescript`, which commits first.
                    for statement in split_statements(migration.path.read_text("utf-8")):
                        connection.execute(statement)
                    step = self._steps.get(migration.version)
                    if step is not None:
                        step(connection)
                    connection.execute(f"PRAGMA user_version = {migration.version}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def schema_version(connection: Connection) -> int:
    """The version that a file has; 0 for a new one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def split_statements(script: str) -> Iterator[str]:
    """The statements of a script, each of which ends with its line."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
