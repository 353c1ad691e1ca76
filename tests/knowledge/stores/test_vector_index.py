"""The index of vectors in a SQLite file: as good as looking at all of them, and always up to date."""

import asyncio
import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from headgate.knowledge.stores.sqlite import schema
from headgate.knowledge.stores.sqlite.store import open_sqlite_store
from headgate.knowledge.stores.sqlite.vector_index import SqliteVectorIndex, binary_code
from headgate.search.block_postings import ScoredChunk
from headgate.storage.sqlite.database_file import open_database_file
from tests.knowledge.stores.sample_documents import MODEL, document, vector

DIMENSIONS = 100
COUNT = 600


def directions(seed: int, count: int) -> list[bytes]:
    chance = random.Random(seed)
    return [vector(*(chance.gauss(0, 1) for _ in range(DIMENSIONS))) for _ in range(count)]


async def filled(path: Path, vectors: dict[int, bytes]) -> None:
    async with open_sqlite_store(path) as store:
        await store.replace_document(document("a.md", *(f"text {place}" for place in range(COUNT))))
        await store.set_model(MODEL, DIMENSIONS)
        await store.store_vectors(MODEL, vectors)


async def search(
    path: Path, nearness: SqliteVectorIndex, wanted: bytes, limit: int, allowed: frozenset[int] | None = None
) -> list[ScoredChunk]:
    def found() -> list[ScoredChunk]:
        with closing(open_database_file(path, schema.KNOWLEDGE_MIGRATIONS, 5.0)) as connection:
            return nearness.nearest(connection, wanted, limit, allowed)

    return await asyncio.to_thread(found)


async def test_a_short_list_holds_what_an_exact_search_finds(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    vectors = dict(enumerate(directions(1, COUNT), 1))
    await filled(path, vectors)
    exact, short = SqliteVectorIndex(), SqliteVectorIndex(shortlist=100, promising=200)
    for wanted in directions(2, 10):
        best = await search(path, exact, wanted, 5)
        found = await search(path, short, wanted, 5)
        assert len({one.chunk_id for one in best} & {one.chunk_id for one in found}) >= 4
    for chunk_id in (1, 77, COUNT):
        assert await search(path, short, vectors[chunk_id], 1) == [ScoredChunk(chunk_id, 1.0)]


async def test_more_can_be_asked_for_than_the_short_list_holds(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    await filled(path, dict(enumerate(directions(1, COUNT), 1)))
    short = SqliteVectorIndex(shortlist=10, promising=20)
    assert len(await search(path, short, directions(2, 1)[0], 15)) == 15


async def test_a_filter_is_applied_before_the_list_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    near, far = vector(1, *[0.0] * 99), vector(-1, *[0.5] * 99)
    await filled(path, dict.fromkeys(range(1, COUNT), near) | {COUNT: far})
    short = SqliteVectorIndex(shortlist=10, promising=20)
    found = await search(path, short, near, 5, frozenset({COUNT}))
    assert [one.chunk_id for one in found] == [COUNT]


def test_a_code_says_which_numbers_are_positive() -> None:
    assert binary_code(vector(1, -1, 1)) == bytes(7) + bytes([0b101])
    assert len(binary_code(directions(1, 1)[0])) == 16


async def test_without_numpy_nothing_is_near_and_words_are_found(tmp_path: Path) -> None:
    path = tmp_path / "knowledge.db"
    await filled(path, {1: directions(1, 1)[0]})
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMPY, str(path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["0", "3"]


# Run by itself, because here numpy has been imported long since.
WITHOUT_NUMPY = f"""
import asyncio, importlib.util, sys
from pathlib import Path

found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "numpy" else found(name, package)
sys.modules["numpy"] = None

from headgate.knowledge.data_model import NO_FILTERS
from headgate.knowledge.stores.sqlite.store import open_sqlite_store


async def main():
    async with open_sqlite_store(Path(sys.argv[1])) as store:
        print(len(await store.nearest(bytes({4 * DIMENSIONS}), 5, NO_FILTERS)))
        print(len(await store.match_terms(["text"], 3, NO_FILTERS)))


asyncio.run(main())
"""
