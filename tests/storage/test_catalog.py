"""The catalog file is a cache: it gives back what was listed, and whatever becomes of it, nothing is lost."""

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog.fingerprint import definition_hash, tool_hash
from headgate.catalog.hints import CacheHint
from headgate.domain.kind import Kind
from headgate.storage.catalog import CatalogFile, StoredListing, remove

HINT = CacheHint(5_000, public=True)


def tool(name: str, description: str = "Does it", **more: Any) -> bytes:
    return json.dumps(
        {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}
    ).encode()


async def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    def read() -> list[tuple[Any, ...]]:
        with sqlite3.connect(path) as connection:
            return connection.execute(sql).fetchall()

    return await asyncio.to_thread(read)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "proxy.db"


async def kept(path: Path, *listings: tuple[str, str, Kind, list[bytes]], now: float = 1000.0) -> None:
    file = CatalogFile(path, lambda: now)
    for server, spec, kind, definitions in listings:
        await file.keep(server, spec, kind, definitions, HINT)
    await file.flush()


async def test_what_was_listed_is_there_after_a_restart_byte_for_byte(path: Path) -> None:
    odd = [
        b'{"name": "a",  "x": 1e400}',
        b'{"name":"b","deep":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b"nonsense",
    ]
    await kept(path, ("files", "1", Kind.TOOLS, odd), ("files", "1", Kind.PROMPTS, [b'{"name":"p"}']))
    file = CatalogFile(path)
    assert sorted(await file.load({"files": "1"}), key=lambda listing: listing.kind.name) == [
        StoredListing("files", Kind.PROMPTS, [b'{"name":"p"}'], HINT),
        StoredListing("files", Kind.TOOLS, odd, HINT),
    ]
    await file.flush()


async def test_a_server_that_is_gone_or_defined_otherwise_is_forgotten(path: Path) -> None:
    await kept(
        path,
        ("stays", "1", Kind.TOOLS, [tool("a")]),
        ("gone", "1", Kind.TOOLS, [tool("b")]),
        ("other", "1", Kind.TOOLS, [tool("c")]),
    )
    file = CatalogFile(path)
    assert [listing.server for listing in await file.load({"stays": "1", "other": "2"})] == ["stays"]
    await file.flush()
    assert await rows(path, "SELECT server_name, name FROM tools") == [("stays", "a")]


async def test_a_tool_keeps_its_first_day_and_its_calls_and_leaves_when_it_vanishes(path: Path) -> None:
    await kept(path, ("s", "1", Kind.TOOLS, [tool("a"), tool("b")]))
    file = CatalogFile(path, lambda: 2000.0)
    await file.count_calls({("s", "a"): 3})
    await file.keep("s", "1", Kind.TOOLS, [tool("c"), tool("a", "Does it better")], HINT)
    await file.flush()
    found = await rows(
        path, "SELECT name, position, description, first_seen, last_seen, calls FROM tools ORDER BY position"
    )
    assert found == [("c", 0, "Does it", 2000.0, 2000.0, 0), ("a", 1, "Does it better", 1000.0, 2000.0, 3)]


async def test_the_same_tool_of_two_servers_is_two_tools(path: Path) -> None:
    await kept(path, ("a", "1", Kind.TOOLS, [tool("x")]), ("b", "1", Kind.TOOLS, [tool("x")]))
    found = await rows(path, "SELECT server_name, hash FROM tools ORDER BY server_name")
    assert [server for server, _ in found] == ["a", "b"]
    assert len({digest for _, digest in found}) == 1


@pytest.mark.parametrize("content", [b"", b"nonsense" * 1000, b"SQLite format 3\x00" + b"\xff" * 4096])
async def test_a_broken_file_is_made_anew(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    file = CatalogFile(path)
    assert await file.load({"s": "1"}) == []
    await file.keep("s", "1", Kind.TOOLS, [tool("a")], HINT)
    await file.flush()
    assert [listing.definitions for listing in await CatalogFile(path).load({"s": "1"})] == [[tool("a")]]


async def test_the_file_of_another_version_is_made_anew(path: Path) -> None:
    await kept(path, ("s", "1", Kind.TOOLS, [tool("a")]))
    await rows(path, "PRAGMA user_version = 99")
    assert await CatalogFile(path).load({"s": "1"}) == []


async def test_a_place_that_cannot_be_written_costs_nothing_but_the_memory(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the directory should be")
    file = CatalogFile(tmp_path / "data" / "proxy.db")
    assert await file.load({"s": "1"}) == []
    await file.keep("s", "1", Kind.TOOLS, [tool("a")], HINT)
    await file.flush()


async def test_vectors_are_kept_once_per_hash_and_model(path: Path) -> None:
    file = CatalogFile(path)
    await file.keep_vectors("m1", {"h1": b"\x01", "h2": b"\x02"})
    await file.keep_vectors("m2", {"h1": b"\x03"})
    assert await file.vectors("m1") == {"h1": b"\x01", "h2": b"\x02"}
    assert await file.vectors("m3") == {}
    await file.flush()


def test_everything_of_the_catalog_can_be_removed(path: Path) -> None:
    path.parent.mkdir()
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).write_bytes(b"x")
    remove(path)
    assert list(path.parent.iterdir()) == []


def test_the_hash_sees_name_description_and_parameters_and_nothing_else() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}}
    turned = {"properties": {"b": {}, "a": {"type": "string"}}, "type": "object"}
    assert tool_hash("x", "y", schema) == tool_hash("x", "y", turned)
    assert tool_hash("x", "y", None) == tool_hash("x", "y", {})
    assert tool_hash("x", None, {}) == tool_hash("x", "", {})
    hashes = {
        tool_hash("x", "y", schema),
        tool_hash("xy", "", schema),
        tool_hash("x", "y", {}),
        tool_hash("x", "z", schema),
    }
    assert len(hashes) == 4
    plain = b'{"name":"x","description":"y","inputSchema":{}}'
    assert definition_hash(plain) == definition_hash(plain[:-1] + b',"annotations":{"readOnlyHint":true}}')
    assert definition_hash(plain) == tool_hash("x", "y", {})
