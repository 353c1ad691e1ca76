"""When a new version cuts words otherwise, nothing of the old words stays and everything is found again."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headgate.knowledge.composition import open_postgres_store as open_database
from headgate.knowledge.data_model import NO_FILTERS
from headgate.knowledge.stores.sqlite.store import open_sqlite_store as open_file
from testkit.postgres import server
from tests.knowledge.stores.conftest import Opening
from tests.knowledge.stores.sample_documents import all_entities, document, entity, found, phrase

# As an older version may have left it: it knew the words, but not as they are cut now.
OLD_FILE = """
    UPDATE meta SET value = value - 1 WHERE key = 'words';
    UPDATE meta SET value = value + 100 WHERE key = 'length';
    UPDATE postings SET stem = stem || 's';
    INSERT INTO plain (plain) VALUES ('delete-all');
    INSERT INTO plain (rowid, words) SELECT id, 'older words' FROM chunks;
    UPDATE names SET key = 'older ' || key;
"""
OLD_DATABASE = """
    UPDATE knowledge_meta SET words_edition = words_edition - 1, length = length + 100;
    UPDATE knowledge_postings SET stem = stem || 's';
    UPDATE knowledge_chunks SET words = ' older words ', lexemes = '''older'' ''words''';
    UPDATE knowledge_names SET key = 'older ' || key;
"""


class Kept:
    """A store on the disk, which can be opened, made older, and looked into."""

    def __init__(self, opening: Opening, do: Callable[[str], list[tuple[object, ...]]], prefix: str) -> None:
        self.open = opening
        self._do = do
        self._prefix = prefix

    async def make_older(self) -> None:
        await asyncio.to_thread(self._do, OLD_DATABASE if self._prefix else OLD_FILE)

    async def stems(self) -> list[str]:
        rows = await asyncio.to_thread(self._do, f"SELECT stem FROM {self._prefix}postings ORDER BY stem")
        return [str(stem) for (stem,) in rows]


@pytest.fixture(params=["sqlite", "postgres"])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    """Return each kind of store."""
    if request.param == "sqlite":
        path = tmp_path / "knowledge.db"
        return Kept(lambda: open_file(path), lambda script: _in_file(path, script), "")
    database = await asyncio.to_thread(lambda: server().database())
    return Kept(
        lambda: open_database(database.url),
        lambda script: _in_database(database.url, script),
        "knowledge_",
    )


def _in_file(path: Path, script: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        if script.startswith("SELECT"):
            return connection.execute(script).fetchall()
        connection.executescript(script)
        return []


def _in_database(url: str, script: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(script.encode())
        return cursor.fetchall() if script.startswith("SELECT") else []


async def test_all_words_are_cut_again_after_an_update(kept: Kept) -> None:
    async with kept.open() as store:
        await store.replace_document(document("a.md", "the red pump", "a valve"))
        await store.replace_document(document("b.md", "a pump and a hose"))
        before = await found(store, "pump valve")
        revision = await store.revision()
        await kept.make_older()
        assert await found(store, "pump valve") == {}
        assert await store.reindex() == 3
        assert await store.revision() == revision + 1
        assert await found(store, "pump valve") == before
        assert set(await found(store, "pump", phrase("red pump"))) == {1}
        assert await store.reindex() == 0
        assert await store.revision() == revision + 1


@pytest.mark.parametrize("way", ["cut_again", "replace", "import_graph"])
async def test_names_are_known_as_this_version_knows_them(kept: Kept, way: str) -> None:
    beta = [entity("Beta GmbH", kind="VENDOR")]
    async with kept.open() as store:
        await store.import_graph("vendors.csv", beta, [])
        await kept.make_older()
        assert await store.find_by_keys(["beta gmbh"]) == []
        if way == "cut_again":
            assert await store.reindex() == 0
        elif way == "replace":
            await store.replace_document(document("a.md", "of Beta", entities=[entity("Beta", 0)]))
        else:
            await store.import_graph("vendors.csv", beta, [])
        assert [one.name for one in await store.find_by_keys(["beta gmbh"])] == ["Beta GmbH"]
        # Also without its legal form, as texts call it.
        if way == "replace":
            assert list(await all_entities(store)) == ["Beta GmbH"]


@pytest.mark.parametrize("way", ["replace", "remove"])
async def test_nothing_is_left_of_words_that_were_cut_otherwise(kept: Kept, way: str) -> None:
    async with kept.open() as store:
        await store.replace_document(document("a.md", "the red pump"))
        await store.replace_document(document("b.md", "a hose"))
        await kept.make_older()
        if way == "replace":
            await store.replace_document(document("a.md"))
        else:
            await store.remove_sources(["a.md"])
        assert await kept.stems() == ["b", "b.md", "hose", "md"]
        assert set(await found(store, "hose", phrase("hose"))) == {2}


async def test_a_store_that_was_filled_by_this_version_is_left_as_it_is(kept: Kept) -> None:
    async with kept.open() as store:
        assert await store.reindex() == 0
        assert await store.revision() == 0
        await store.replace_document(document("a.md", "a pump"))
        assert (await store.reindex(), await store.revision()) == (0, 1)


async def test_a_code_is_a_term_of_its_own_and_counted(kept: Kept) -> None:
    async with kept.open() as store:
        await store.replace_document(
            document("a.md", "call re.compile, see Form 630", "compile it, re: form 12")
        )
        await store.replace_document(document("b.md", "compile a form"))
        told = await store.document_frequencies(
            ["re.compile", "form#630", "compil", "form", "nowhere", "x" * 300]
        )
        assert told == {"re.compile": 1, "form#630": 1, "compil": 3, "form": 3}
        assert [one.chunk_id for one in await store.match_terms(["re.compile"], 5, NO_FILTERS)] == [1]
        await store.remove_sources(["a.md"])
        assert await store.document_frequencies(["re.compile", "compil"]) == {"compil": 1}
