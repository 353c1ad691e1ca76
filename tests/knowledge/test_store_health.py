"""The health of the document store is reported when it changes, and checked at once when in doubt."""

import asyncio
from pathlib import Path

import pytest

from headgate.domain.errors import StoreUnavailable
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.embedding.embedder_factory import OfflineModel
from headgate.knowledge.composition import StoreHealth
from headgate.knowledge.options import KnowledgeOptions
from headgate.knowledge.server import KnowledgeServer
from testkit.waiting import eventually

WAIT_SECONDS = 5.0
NEVER_SECONDS = 3600.0


class Patient:
    """A store whose health the test sets."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.bug: Exception | None = None
        self.looks = 0

    async def check(self) -> None:
        self.looks += 1
        if self.bug is not None:
            raise self.bug
        if self.trouble is not None:
            raise StoreUnavailable(self.trouble)


async def test_what_changes_is_told_once() -> None:
    store, told = Patient(), list[str | None]()
    health = StoreHealth(store.check, told.append)
    await health.check_once()
    assert told == []
    for trouble in ("the disk is full", "the disk is full", "", None, None):
        store.trouble = trouble
        await health.check_once()
    assert told == ["the disk is full", "the store of the documents cannot be used; the log says why", None]


async def test_it_is_looked_at_again_and_again() -> None:
    store, told = Patient(), list[str | None]()
    watching = asyncio.create_task(StoreHealth(store.check, told.append, look_seconds=0.001).watch())
    store.trouble = "gone"
    await eventually(lambda: told == ["gone"], WAIT_SECONDS, "told")
    store.trouble = None
    await eventually(lambda: told == ["gone", None], WAIT_SECONDS, "told")
    watching.cancel()


async def test_a_look_that_fails_is_logged_and_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    store, told = Patient(), list[str | None]()
    watching = asyncio.create_task(StoreHealth(store.check, told.append, look_seconds=0.001).watch())
    store.bug = RuntimeError("a bug of ours")
    await eventually(lambda: "a bug of ours" in caplog.text, WAIT_SECONDS, "logged")
    store.bug, store.trouble = None, "gone"
    await eventually(lambda: told == ["gone"], WAIT_SECONDS, "told")
    watching.cancel()


async def test_who_uses_it_and_finds_it_otherwise_is_believed_after_a_look() -> None:
    store, told = Patient(), list[str | None]()
    health = StoreHealth(store.check, told.append, NEVER_SECONDS)
    watching = asyncio.create_task(health.watch())
    health.record_use(away=False)
    await asyncio.sleep(0)
    assert store.looks == 0, "that was known"
    store.trouble = "gone"
    health.record_use(away=True)
    await eventually(lambda: told == ["gone"], WAIT_SECONDS, "told")
    store.trouble = None
    health.record_use(away=False)
    await eventually(lambda: told == ["gone", None], WAIT_SECONDS, "told")
    watching.cancel()


async def test_a_file_that_cannot_be_used_is_told_with_what_to_do_and_missed_no_longer_once_it_is_mended(
    tmp_path: Path,
) -> None:
    options = KnowledgeOptions(data_dir=tmp_path, embedder="BM25")
    file = tmp_path / "knowledge.db"
    file.write_bytes(b"no database at all" * 1000)
    told: list[str | None] = []
    async with KnowledgeServer(options, OfflineModel()).open(told.append) as knowledge:
        assert len(told) == 1
        assert "the file is not a database; move knowledge.db away" in str(told[0])
        file.unlink()
        said = await knowledge.call("list_sources", {}, LOCAL_IDENTITY)
        assert not said.failed
        await eventually(lambda: told[-1] is None, WAIT_SECONDS, "told")


async def test_looking_makes_no_file(tmp_path: Path) -> None:
    options = KnowledgeOptions(data_dir=tmp_path, embedder="BM25")
    told: list[str | None] = []
    async with KnowledgeServer(options, OfflineModel()).open(told.append):
        assert told == []
    assert not (tmp_path / "knowledge.db").exists()
