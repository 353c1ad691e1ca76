"""knowledge.db when it cannot be used: a sentence for the caller, a reason in the log, the file untouched."""

import asyncio
import errno
import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from headgate.domain.errors import StoreUnavailable
from headgate.knowledge.data_model import NO_FILTERS
from headgate.knowledge.stores.sqlite import schema
from headgate.knowledge.stores.sqlite.schema import explain_error
from headgate.knowledge.stores.sqlite.store import SqliteKnowledgeStore, iter_rows, open_sqlite_store
from headgate.storage.sqlite.group_commit import GroupCommit
from tests.knowledge.stores.sample_documents import MODEL, all_chunks, document, found

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


def damaged(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        schema.KNOWLEDGE_MIGRATIONS.apply(connection)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def a_directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("spoil", [not_a_database, of_something_else, of_the_future, damaged, a_directory])
async def test_a_file_that_cannot_be_used_is_left_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "knowledge.db"
    await asyncio.to_thread(spoil, path)
    content = path.read_bytes() if path.is_file() else b""
    async with open_sqlite_store(path) as store:
        for _ in range(2):
            with pytest.raises(StoreUnavailable) as away:
                await store.revision()
            assert str(away.value) == SENTENCE
        with pytest.raises(StoreUnavailable):
            await store.replace_document(document("a.md", "text"))
        with pytest.raises(StoreUnavailable):
            await store.nearest(b"", 5, NO_FILTERS)
        with pytest.raises(StoreUnavailable):
            await all_chunks(store)
    assert (path.read_bytes() if path.is_file() else b"") == content
    reasons = [str(record.__dict__["reason"]) for record in caplog.records]
    assert reasons
    assert not any("SELECT" in reason or str(tmp_path) in reason for reason in reasons)


async def test_a_locked_file_is_away_for_as_long_as_it_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    async with open_sqlite_store(path, busy_seconds=0.05) as store:
        await store.replace_document(document("a.md", "one"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable):
                await store.replace_document(document("b.md", "two"))
            # Who only reads need not wait for who writes.
            assert set(await found(store, "one")) == {1}
        await store.replace_document(document("b.md", "two"))
        assert set(await found(store, "two")) == {2}


async def test_a_file_that_was_mended_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    not_a_database(path)
    async with open_sqlite_store(path) as store:
        with pytest.raises(StoreUnavailable):
            await store.revision()
        path.unlink()
        assert await store.revision() == 0


async def test_who_leaves_in_the_middle_of_a_long_read_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    async with open_sqlite_store(path) as store:
        await store.replace_document(document("a.md", "text"))
        long = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 9999999)"
        long += " SELECT x FROM n ORDER BY 1"
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), aclosing(iter_rows(path, long)) as rows:
                    await anext(rows)
        assert set(await found(store, "text")) == {1}


@pytest.mark.parametrize("by", ["another", "nothing"])
async def test_a_file_that_was_removed_or_replaced_while_it_is_used_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    path = tmp_path / "knowledge.db"
    async with open_sqlite_store(path) as store:
        await store.replace_document(document("a.md", "text"))
        await store.check()
        await store.check()
        for file in tmp_path.iterdir():
            file.unlink()
        if by == "another":
            async with open_sqlite_store(path) as other:
                await other.replace_document(document("b.md", "text"))
        with caplog.at_level(logging.INFO):
            for use in (store.check, store.revision, store.check, store.statistics):
                with pytest.raises(StoreUnavailable) as away:
                    await use()
        assert away.value.why == (
            "the file was removed or replaced while this process uses it; restart this process"
        )
        assert len(caplog.records) == 1, "told once, and not that it can be used again"


async def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    async with open_sqlite_store(path) as store:
        await store.replace_document(document("a.md", "text"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_store_that_nobody_used_makes_no_file(tmp_path: Path) -> None:
    async with open_sqlite_store(tmp_path / "knowledge.db"):
        pass
    assert list(tmp_path.iterdir()) == []


async def test_a_place_that_cannot_be_looked_at_is_told_like_any_other_trouble(tmp_path: Path) -> None:
    async with open_sqlite_store(tmp_path / ("x" * 300) / "knowledge.db") as store:
        for use in (store.check, store.revision):
            with pytest.raises(StoreUnavailable) as away:
                await use()
            assert away.value.why == "File name too long; name a shorter --data-dir"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errno.EACCES, "let the user of this process read and write knowledge.db"),
        (errno.ENOSPC, "make room on the disk"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_what_the_system_says_has_its_own_remedy(code: int, told: str) -> None:
    said = explain_error(OSError(code, os.strerror(code)))
    assert said.startswith(os.strerror(code))
    assert told in said
    assert ("knowledge.db" in said) == (code == errno.EACCES)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (not_a_database, "the file is not a database; move knowledge.db away and ingest again"),
        (of_something_else, "the file is a database of something else; name another --data-dir"),
        (of_the_future, "a newer version of headgate; update this Headgate"),
        (damaged, "the file is damaged; end every process that uses it, move knowledge.db away"),
        (a_directory, "see that knowledge.db is a file"),
    ],
)
async def test_the_operator_is_told_what_is_wrong_and_what_to_do(
    tmp_path: Path, spoil: Callable[[Path], None], told: str
) -> None:
    path = tmp_path / "knowledge.db"
    await asyncio.to_thread(spoil, path)
    async with open_sqlite_store(path) as store:
        with pytest.raises(StoreUnavailable) as away:
            await store.check()
    assert told in away.value.why
    assert str(tmp_path) not in away.value.why
    assert away.value.why not in str(away.value.error_data)


async def test_a_full_disk_is_said_to_whoever_writes(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    async with GroupCommit(path, schema.KNOWLEDGE_MIGRATIONS) as group_commit:
        store = SqliteKnowledgeStore(path, group_commit, group_commit, lambda: 0.0)
        await store.replace_document(document("a.md", "text"))
        # The file may not grow any more, as if there were no room for that.
        await group_commit.write(
            lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchone()
        )
        with pytest.raises(StoreUnavailable) as away:
            await store.replace_document(document("b.md", *(f"text {number} " * 300 for number in range(50))))
        assert away.value.why == "the disk is full; make room on the disk of the data directory"
        assert set(await found(store, "text")) == {1}


async def test_to_look_whether_it_can_be_used_makes_no_file(tmp_path: Path) -> None:
    async with open_sqlite_store(tmp_path / "knowledge.db") as store:
        await store.check()
    assert list(tmp_path.iterdir()) == []


async def test_the_log_has_the_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "knowledge.db"
    of_the_future(path)
    with caplog.at_level(logging.INFO, "headgate.storage"):
        async with open_sqlite_store(path) as store:
            with pytest.raises(StoreUnavailable):
                await store.statistics()
            with pytest.raises(StoreUnavailable):
                await store.revision()
            path.unlink()
            await store.revision()
            await store.revision()
    assert [record.getMessage() for record in caplog.records] == [
        "knowledge store cannot be used",
        "knowledge store can be used again",
    ], "once for each time that it goes away"
    reason = caplog.records[0].__dict__["reason"]
    assert reason.startswith("the file was written by a newer version of headgate; update")


# Stores documents until it is killed.
ENDLESS = """
import asyncio, sys
from pathlib import Path
from headgate.knowledge.stores.sqlite.store import open_sqlite_store
from tests.knowledge.stores.sample_documents import MODEL, document, entity, vector

async def main():
    async with open_sqlite_store(Path(sys.argv[1])) as store:
        await store.set_model(MODEL, 2)
        for number in range(100_000):
            texts = [f"text {number} {place}" for place in range(number % 5)]
            await store.replace_document(document(f"{number % 7}.md", *texts, entities=[entity("Acme", 0)]))
            waiting = await store.chunks_without_vector(3)
            await store.store_vectors(MODEL, {id: vector(1, id) for id, _ in waiting})
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
    async with open_sqlite_store(path) as store:
        chunks = await all_chunks(store)
        told = await store.statistics()
        waiting = await store.chunks_without_vector(1000)
        assert told.chunks == len(chunks) == told.vectors + len(waiting)
        assert set(await found(store, "text", limit=1000)) == {chunk.id for chunk in chunks}
        assert len(await store.source_digests()) == told.sources
        acme = (await store.entities([1])).get(1)
        assert told.mentions == (acme.mentions if acme else 0)
        assert await store.model_fingerprint() == MODEL
