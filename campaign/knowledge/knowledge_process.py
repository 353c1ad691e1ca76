"""Where the documents of a case are kept, and `headgate knowledge` as a process that works on them."""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.trial import Trial
from headgate.knowledge.composition import open_postgres_store as open_postgres
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.stores.sqlite.store import open_sqlite_store as open_file
from testkit import postgres

FILE = "knowledge.db"
WORDS_ALONE = {"HEADGATE_EMBEDDER": "BM25"}
# A command that takes longer hangs, also where a machine does much else.
_MOST_SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document that it printed; empty when it printed none."""
        with contextlib.suppress(ValueError):
            found = json.loads(self.out)
            if isinstance(found, dict):
                return found
        return {}


@dataclass(frozen=True, slots=True)
class Place:
    """A data directory, or a database of PostgreSQL, and the embedder that is used with it."""

    data: Path
    url: str = ""
    environment: dict[str, str] = field(default_factory=lambda: dict(WORDS_ALONE))

    @property
    def kind(self) -> str:
        """What a table calls the store."""
        return "PostgreSQL" if self.url else "SQLite"

    def open(self) -> AbstractAsyncContextManager[KnowledgeStore]:
        """The store, in this process."""
        return open_postgres(self.url) if self.url else open_file(self.data / FILE)

    async def run(self, *arguments: str) -> Ended:
        """Run `headgate knowledge` to its end."""
        started = time.monotonic()
        async with self.started(*arguments) as child:
            async with asyncio.timeout(_MOST_SECONDS):
                out, err = await child.communicate()
        took = time.monotonic() - started
        return Ended(child.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"), took)

    @contextlib.asynccontextmanager
    async def started(self, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """`headgate knowledge` with these arguments; what is left of it at the end is killed."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headgate", "knowledge", *arguments, *self._options(),
            env=os.environ | self.environment, cwd=self.data.parent, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=1 << 26,
        )  # fmt: skip
        try:
            yield child
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()

    def _options(self) -> list[str]:
        return ["--data-dir", str(self.data), *(["--store", self.url] if self.url else [])]

    def entry(self) -> dict[str, Any]:
        """The object `knowledge` of a gateway's settings."""
        embedder = self.environment.get("HEADGATE_EMBEDDER", "BM25")
        own: dict[str, Any] = {"embedder": embedder, "tokenBudget": 0}
        return own | ({"store": self.url} if self.url else {})


def places(trial: Trial, environment: dict[str, str] | None = None) -> list[Place]:
    """A new place in each of the stores."""
    return [file_place(trial, environment=environment), database_place(trial, environment=environment)]


def file_place(trial: Trial, name: str = "file", environment: dict[str, str] | None = None) -> Place:
    """A new data directory."""
    data = trial.directory / f"{name}-data"
    data.mkdir()
    return Place(data, "", dict(environment or WORDS_ALONE))


def database_place(trial: Trial, name: str = "database", environment: dict[str, str] | None = None) -> Place:
    """A new database of the campaign's PostgreSQL."""
    data = trial.directory / f"{name}-data"
    data.mkdir()
    return Place(data, postgres.server().new_database(), dict(environment or WORDS_ALONE))
