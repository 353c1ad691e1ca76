"""knowledge.db when it cannot be used: a sentence for the caller, a reason in the log, the file untouched."""

import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headgate.domain.errors import StoreAway
from headgate.knowledge.values import ANYTHING
from headgate.storage.knowledge.store import open_store
from tests.storage.knowledge.documents import MODEL, all_chunks, document, found

SENTENCE = "Database unavailable, retry in 5s"
WAIT_SECONDS = 20


def not_a_database(path: Path) -> None:
    path.write_bytes(b"something else entirely, and long enough to be looked at " * 100)


def of_something_else(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")


def of_the_future(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


def a_directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("spoil", [not_a_database, of_something_else, of_the_future, a_directory])
async def test_a_file_that_cannot_be_used_is_left_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "knowledge.db"
    spoil(path)
    content = path.read_bytes() if path.is_file() else b""
    async with open_store(path) as store:
        for _ in range(2):
            with pytest.raises(StoreAway) as away:
                await store.revision()
            assert str(away.value) == SENTENCE
        with pytest.raises(StoreAway):
            await store.replace(document("a.md", "text"))
        with pytest.raises(StoreAway):
            await store.nearest(b"", 5, ANYTHING)
        with pytest.raises(StoreAway):
            await all_chunks(store)
    assert (path.read_bytes() if path.is_file() else b"") == content
    reasons = [str(record.__dict__["reason"]) for record in caplog.records]
    assert reasons
    assert not any("SELECT" in reason or str(tmp_path) in reason for reason in reasons)


async def test_a_locked_file_is_away_for_as_long_as_it_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    async with open_store(path, busy_seconds=0.05) as store:
        await store.replace(document("a.md", "one"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreAway):
                await store.replace(document("b.md", "two"))
            # Who only reads need not wait for who writes.
            assert set(await found(store, "one")) == {1}
        await store.replace(document("b.md", "two"))
        assert set(await found(store, "two")) == {2}


async def test_a_file_that_was_mended_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    not_a_database(path)
    async with open_store(path) as store:
        with pytest.raises(StoreAway):
            await store.revision()
        path.unlink()
        assert await store.revision() == 0


async def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    async with open_store(path) as store:
        await store.replace(document("a.md", "text"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_store_that_nobody_used_makes_no_file(tmp_path: Path) -> None:
    async with open_store(tmp_path / "knowledge.db"):
        pass
    assert list(tmp_path.iterdir()) == []


async def test_the_log_has_the_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "knowledge.db"
    of_the_future(path)
    with caplog.at_level(logging.WARNING, "headgate.storage"):
        async with open_store(path) as store:
            with pytest.raises(StoreAway):
                await store.statistics()
    [record] = caplog.records
    assert record.__dict__["reason"] == "the file was written by a newer version of headgate"


# Stores documents until it is killed.
ENDLESS = """
import asyncio, sys
from pathlib import Path
from headgate.storage.knowledge.store import open_store
from tests.storage.knowledge.documents import MODEL, document, entity, vector

async def main():
    async with open_store(Path(sys.argv[1])) as store:
        await store.use_model(MODEL, 2)
        for number in range(100_000):
            texts = [f"text {number} {place}" for place in range(number % 5)]
            await store.replace(document(f"{number % 7}.md", *texts, entities=[entity("Acme", 0)]))
            waiting = await store.without_vector(3)
            await store.keep_vectors(MODEL, {id: vector(1, id) for id, _ in waiting})
            print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("documents", [3, 40])
async def test_a_kill_at_any_moment_leaves_a_store_that_fits_together(tmp_path: Path, documents: int) -> None:
    path = tmp_path / "knowledge.db"
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) >= documents:
                break
        os.kill(child.pid, signal.SIGKILL)
        child.wait(WAIT_SECONDS)
    async with open_store(path) as store:
        chunks = await all_chunks(store)
        told = await store.statistics()
        waiting = await store.without_vector(1000)
        assert told.chunks == len(chunks) == told.vectors + len(waiting)
        assert set(await found(store, "text", limit=1000)) == {chunk.id for chunk in chunks}
        assert len(await store.digests()) == told.sources
        acme = (await store.entities([1])).get(1)
        assert told.mentions == (acme.mentions if acme else 0)
        assert await store.model() == MODEL
