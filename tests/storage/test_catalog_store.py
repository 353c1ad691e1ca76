"""The catalog file is a cache: it gives back what was listed, and whatever becomes of it, nothing is lost."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headgate.catalog.paged_listing import CacheHint
from headgate.catalog.stored_listing import StoredListing, tool_hash, tool_hashes
from headgate.domain.item import ItemKind
from headgate.storage.sqlite.catalog_store import CATALOG_MIGRATIONS, SqliteCatalogStore, remove_catalog_files

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


async def kept(path: Path, *listings: tuple[str, str, ItemKind, list[bytes]], now: float = 1000.0) -> None:
    file = SqliteCatalogStore(path, lambda: now)
    for server, spec, kind, definitions in listings:
        await file.keep(server, spec, kind, definitions, HINT)
    await file.flush()


async def test_what_was_listed_is_there_after_a_restart_byte_for_byte(path: Path) -> None:
    odd = [
        b'{"name": "a",  "x": 1e400}',
        b'{"name":"b","deep":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b"nonsense",
    ]
    await kept(path, ("files", "1", ItemKind.TOOLS, odd), ("files", "1", ItemKind.PROMPTS, [b'{"name":"p"}']))
    file = SqliteCatalogStore(path)
    assert sorted(await file.load({"files": "1"}), key=lambda listing: listing.kind.name) == [
        StoredListing("files", ItemKind.PROMPTS, [b'{"name":"p"}'], HINT),
        StoredListing("files", ItemKind.TOOLS, odd, HINT),
    ]
    await file.flush()


async def test_a_server_that_is_gone_or_defined_otherwise_is_not_told(path: Path) -> None:
    await kept(
        path,
        ("stays", "1", ItemKind.TOOLS, [tool("a")]),
        ("gone", "1", ItemKind.TOOLS, [tool("b")]),
        ("other", "1", ItemKind.TOOLS, [tool("c")]),
    )
    file = SqliteCatalogStore(path)
    assert [listing.server for listing in await file.load({"stays": "1", "other": "2"})] == ["stays"]
    await file.flush()


async def test_two_configurations_keep_their_catalogs_in_one_file(path: Path) -> None:
    one, other = {"shared": "1", "own": "1"}, {"shared": "2", "else": "1"}
    for specs in (one, other, one, other):
        file = SqliteCatalogStore(path)
        before = {listing.server: listing.definitions for listing in await file.load(specs)}
        expected = {name: [tool(f"{name}-{spec}")] for name, spec in specs.items()}
        assert before in ({}, expected)
        for name, spec in specs.items():
            await file.keep(name, spec, ItemKind.TOOLS, expected[name], HINT)
        await file.flush()
    assert before == expected, "each finds its own again"


async def test_a_definition_that_no_gateway_uses_is_dropped_after_thirty_days(path: Path) -> None:
    now = 1000.0
    file = SqliteCatalogStore(path, lambda: now)
    for name in ("used", "seen", "gone"):
        await file.keep(name, "1", ItemKind.TOOLS, [tool(name)], HINT)
    await file.store_vectors("m", {"h": b"\x01"})
    now += 30 * 24 * 3600.0
    await file.load({"used": "1"})
    await file.see("seen", "1")
    assert await rows(path, "SELECT name FROM servers ORDER BY name") == [("gone",), ("seen",), ("used",)]
    now += 1
    # Nothing is dropped by one that only looks.
    await file.load({}, forget=False)
    assert len(await rows(path, "SELECT name FROM servers")) == 3
    await file.load({})
    for query in ("SELECT name FROM servers", "SELECT name FROM tools", "SELECT server_name FROM listings"):
        assert await rows(path, f"{query} ORDER BY 1") == [("seen",), ("used",)]
    assert await file.vectors("m") == {"h": b"\x01"}
    await file.flush()


async def test_of_one_server_only_the_latest_definitions_are_kept(path: Path) -> None:
    now = 1000.0
    file = SqliteCatalogStore(path, lambda: now)
    for number in range(12):
        now += 1
        await file.keep("s", str(number), ItemKind.TOOLS, [tool("a")], HINT)
    now += 1
    # The one in use stays, however old it is.
    assert [listing.server for listing in await file.load({"s": "0"})] == ["s"]
    found = await rows(path, "SELECT spec FROM servers ORDER BY last_used")
    assert found == [*((str(number),) for number in range(5, 12)), ("0",)]
    await file.flush()


async def test_vectors_of_another_configuration_are_not_forgotten(path: Path) -> None:
    await kept(path, ("theirs", "1", ItemKind.TOOLS, [tool("a")]))
    ((digest,),) = await rows(path, "SELECT hash FROM tools")
    file = SqliteCatalogStore(path)
    await file.store_vectors("m", {digest: b"\x01", "old": b"\x02"})
    await file.delete_vectors("m", [digest, "old"])
    assert await file.vectors("m") == {digest: b"\x01"}
    await file.flush()


async def test_a_tool_keeps_its_first_day_and_leaves_when_it_vanishes(path: Path) -> None:
    await kept(path, ("s", "1", ItemKind.TOOLS, [tool("a"), tool("b")]))
    file = SqliteCatalogStore(path, lambda: 2000.0)
    await file.keep("s", "1", ItemKind.TOOLS, [tool("c"), tool("a", "Does it better")], HINT)
    await file.flush()
    found = await rows(
        path, "SELECT name, position, description, first_seen, last_seen FROM tools ORDER BY position"
    )
    assert found == [("c", 0, "Does it", 2000.0, 2000.0), ("a", 1, "Does it better", 1000.0, 2000.0)]


async def test_the_same_tool_of_two_servers_is_two_tools(path: Path) -> None:
    await kept(path, ("a", "1", ItemKind.TOOLS, [tool("x")]), ("b", "1", ItemKind.TOOLS, [tool("x")]))
    found = await rows(path, "SELECT server_name, hash FROM tools ORDER BY server_name")
    assert [server for server, _ in found] == ["a", "b"]
    assert len({digest for _, digest in found}) == 1


@pytest.mark.parametrize("content", [b"", b"nonsense" * 1000, b"SQLite format 3\x00" + b"\xff" * 4096])
async def test_a_broken_file_is_made_anew(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    file = SqliteCatalogStore(path)
    assert await file.load({"s": "1"}) == []
    await file.keep("s", "1", ItemKind.TOOLS, [tool("a")], HINT)
    await file.flush()
    assert [listing.definitions for listing in await SqliteCatalogStore(path).load({"s": "1"})] == [
        [tool("a")]
    ]


async def test_the_file_of_another_version_is_made_anew(path: Path) -> None:
    await kept(path, ("s", "1", ItemKind.TOOLS, [tool("a")]))
    await rows(path, "PRAGMA user_version = 99")
    assert await SqliteCatalogStore(path).load({"s": "1"}) == []


async def test_a_place_that_cannot_be_written_costs_nothing_but_the_memory(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the directory should be")
    file = SqliteCatalogStore(tmp_path / "data" / "proxy.db")
    assert await file.load({"s": "1"}) == []
    await file.keep("s", "1", ItemKind.TOOLS, [tool("a")], HINT)
    await file.flush()


async def test_vectors_are_kept_once_per_hash_and_model(path: Path) -> None:
    file = SqliteCatalogStore(path)
    await file.store_vectors("m1", {"h1": b"\x01", "h2": b"\x02"})
    await file.store_vectors("m2", {"h1": b"\x03"})
    assert await file.vectors("m1") == {"h1": b"\x01", "h2": b"\x02"}
    assert await file.vectors("m3") == {}
    await file.flush()


async def test_vectors_that_nobody_needs_are_forgotten_of_that_model_alone(path: Path) -> None:
    file = SqliteCatalogStore(path)
    await file.store_vectors("m1", {"h1": b"\x01", "h2": b"\x02", "h3": b"\x03"})
    await file.store_vectors("m2", {"h1": b"\x04"})
    await file.delete_vectors("m1", ["h1", "h3", "never there"])
    await file.delete_vectors("m1", [])
    await file.store_vectors("m2", {})
    assert await file.vectors("m1") == {"h2": b"\x02"}
    assert await file.vectors("m2") == {"h1": b"\x04"}
    await file.flush()


@pytest.mark.parametrize("later", [1000.0, 500.0])
async def test_a_tool_that_vanishes_leaves_whatever_the_clock_says(path: Path, later: float) -> None:
    await kept(path, ("s", "1", ItemKind.TOOLS, [tool("a"), tool("b")]))
    await kept(path, ("s", "1", ItemKind.TOOLS, [tool("b")]), now=later)
    assert await rows(path, "SELECT name, first_seen, last_seen FROM tools") == [("b", 1000.0, later)]


async def test_both_hashes_are_kept_and_annotations_are_seen_by_one_of_them(path: Path) -> None:
    harmless, harmful = (tool("a", annotations={"readOnlyHint": hint}) for hint in (True, False))
    await kept(path, ("one", "1", ItemKind.TOOLS, [harmless]), ("two", "1", ItemKind.TOOLS, [harmful]))
    found = await rows(path, "SELECT hash, approval_hash FROM tools ORDER BY server_name")
    assert found == [(tool_hashes(one).search, tool_hashes(one).approval) for one in (harmless, harmful)]
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]


# Whatever becomes of the file.


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE listings SET definitions = 'text'",
        "UPDATE listings SET definitions = 5",
        "UPDATE listings SET definitions = x'c1'",
        "UPDATE listings SET definitions = CAST(x'fffe' AS TEXT)",
        "UPDATE listings SET places = 'text'",
        "UPDATE listings SET kind = 'NONSENSE'",
        "UPDATE listings SET ttl_ms = 'soon'",
        "DROP TABLE servers",
        "DROP TABLE listings",
        "DROP TABLE tools",
        "DROP TABLE calls",
        "PRAGMA user_version = 1",
        "ALTER TABLE tools DROP COLUMN approval_hash",
        "ALTER TABLE listings ADD COLUMN more TEXT",
    ],
)
async def test_a_file_of_another_shape_or_content_is_not_in_the_way(path: Path, damage: str) -> None:
    await kept(path, ("s", "1", ItemKind.TOOLS, [tool("old")]))
    await rows(path, damage)
    file = SqliteCatalogStore(path)
    assert [listing.server for listing in await file.load({"s": "1"})] in ([], ["s"])
    await file.keep("s", "1", ItemKind.TOOLS, [tool("new")], HINT)
    await file.store_vectors("m", {"h": b"\x01"})
    await file.count_calls({("s", "new"): 1})
    # That there is no such table may show as late as this, and then the file is a new one.
    await file.keep("s", "1", ItemKind.TOOLS, [tool("new")], HINT)
    await file.store_vectors("m", {"h": b"\x01"})
    await file.flush()
    again = SqliteCatalogStore(path)
    assert await again.usage() == {("s", "new"): 1}
    assert [listing.definitions for listing in await again.load({"s": "1"})] == [[tool("new")]]
    assert await again.vectors("m") == {"h": b"\x01"}
    await again.flush()


@pytest.mark.parametrize("seed", range(12))
async def test_a_torn_file_shows_nothing_stale_for_longer_than_one_start(path: Path, seed: int) -> None:
    await kept(path, ("s", "1", ItemKind.TOOLS, [tool(f"t{number}", "x" * 200) for number in range(100)]))
    random, content = Random(seed), bytearray(path.read_bytes())
    page = random.randrange(len(content) // 4096) * 4096
    if seed % 3 == 0:
        del content[page:]
    elif seed % 3 == 1:
        content[page : page + 4096] = random.randbytes(4096)
    else:
        content[page + 100 : page + 4096] = bytes(3996)
    path.write_bytes(content)
    file = SqliteCatalogStore(path)
    # Whatever it gives, it does not fail.
    assert len(await file.load({"s": "1"})) <= 1
    await file.keep("s", "1", ItemKind.TOOLS, [tool("new")], HINT)
    await file.flush()
    again = SqliteCatalogStore(path)
    assert [listing.definitions for listing in await again.load({"s": "1"})] in ([], [[tool("new")]])
    await again.flush()


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
async def test_what_a_crash_left_beside_the_file_is_not_in_the_way(path: Path, suffix: str) -> None:
    await kept(path, ("s", "1", ItemKind.TOOLS, [tool("a")]))
    path.with_name(path.name + suffix).write_bytes(b"nonsense" * 5000)
    file = SqliteCatalogStore(path)
    await file.load({"s": "1"})
    await file.keep("s", "1", ItemKind.TOOLS, [tool("b")], HINT)
    await file.flush()
    assert [listing.definitions for listing in await SqliteCatalogStore(path).load({"s": "1"})] == [
        [tool("b")]
    ]


@pytest.mark.parametrize("place", ["/proc/headgate/proxy.db", "/dev/null/proxy.db"])
async def test_a_directory_that_cannot_be_made_costs_nothing_but_the_memory(place: str) -> None:
    file = SqliteCatalogStore(Path(place))
    assert await file.load({"s": "1"}) == []
    await file.keep("s", "1", ItemKind.TOOLS, [tool("a")], HINT)
    await file.count_calls({("s", "a"): 1})
    await file.store_vectors("m", {"h": b"\x01"})
    await file.delete_vectors("m", ["h"])
    assert await file.vectors("m") == {}
    await file.flush()


async def test_a_directory_where_the_file_should_be_costs_nothing_but_the_memory(path: Path) -> None:
    (path / "something").mkdir(parents=True)
    file = SqliteCatalogStore(path)
    assert await file.load({"s": "1"}) == []
    await file.keep("s", "1", ItemKind.TOOLS, [tool("a")], HINT)
    await file.flush()
    assert (path / "something").is_dir()


async def test_a_file_that_another_process_is_writing_is_left_to_it(path: Path) -> None:
    await kept(path, ("s", "1", ItemKind.TOOLS, [tool("a")]))
    other = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    await asyncio.to_thread(other.execute, "BEGIN EXCLUSIVE")
    file = SqliteCatalogStore(path)
    # It has to note that the definition is used, and cannot.
    assert await file.load({"s": "1"}) == []
    await asyncio.to_thread(other.execute, "COMMIT")
    other.close()
    await file.flush()
    assert await rows(path, "SELECT server_name, name FROM tools") == [("s", "a")]


WRITER = """
import asyncio, json, sys
from pathlib import Path
from headgate.catalog.paged_listing import NO_HINT
from headgate.domain.item import ItemKind
from headgate.storage.sqlite.catalog_store import SqliteCatalogStore

async def write():
    file = SqliteCatalogStore(Path(sys.argv[1]))
    await file.load({"s": "1"})
    turn = int(sys.argv[2])
    while True:
        turn += 1
        tools = [
            json.dumps({"name": f"t{number}", "description": str(turn), "inputSchema": {}}).encode()
            for number in range(200 + turn % 7)
        ]
        await file.keep("s", "1", ItemKind.TOOLS, tools, NO_HINT)
        await file.store_vectors("m", {str(turn): bytes(400)})
        print(turn, flush=True)

asyncio.run(write())
"""


async def killed_while_writing(path: Path, first: int, turns: int) -> int:
    """Let a process write so many times, kill it in the middle, and return the last that it has told of."""
    command = [sys.executable, "-c", WRITER, str(path), str(first)]
    writer = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert writer.stdout is not None
    async with asyncio.timeout(30):
        for _ in range(turns):
            last = int(await writer.stdout.readline())
        writer.kill()
        rest = (await writer.stdout.read()).split()
        await writer.wait()
    return int(rest[-1]) if rest else last


async def test_a_crash_while_writing_loses_nothing_that_was_written_and_mixes_nothing(path: Path) -> None:
    last = 0
    for turns in (1, 2, 5, 9):
        last = await killed_while_writing(path, last, turns)
        file = SqliteCatalogStore(path)
        (listing,) = await file.load({"s": "1"})
        told = {json.loads(definition)["description"] for definition in listing.definitions}
        (turn,) = map(int, told)
        assert turn >= last
        assert len(listing.definitions) == 200 + turn % 7
        assert str(last) in await file.vectors("m")
        await file.flush()
        stored = await rows(path, "SELECT description, definition FROM tools ORDER BY position")
        assert [definition for _, definition in stored] == listing.definitions
        assert await rows(path, "PRAGMA integrity_check") == [("ok",)]
        last = turn


def test_everything_of_the_catalog_can_be_removed(path: Path) -> None:
    path.parent.mkdir()
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).write_bytes(b"x")
    remove_catalog_files(path)
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
    read_only = plain[:-1] + b',"annotations":{"readOnlyHint":true}}'
    assert tool_hashes(plain).search == tool_hashes(read_only).search
    assert tool_hashes(plain).search == tool_hash("x", "y", {})


def test_a_change_of_the_description_or_of_a_parameter_changes_both_hashes() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    before = tool_hashes(tool("x", "Does it", inputSchema=schema))
    for after in (
        tool("y", "Does it", inputSchema=schema),
        tool("x", "Does it well", inputSchema=schema),
        tool("x", "Does it", inputSchema={"type": "object", "properties": {"a": {"type": "integer"}}}),
        tool("x", "Does it", inputSchema={"type": "object", "properties": {"b": {"type": "string"}}}),
    ):
        assert tool_hashes(after).search != before.search
        assert tool_hashes(after).approval != before.approval


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"name":"x","inputSchema":{"a":1,"b":2}}', b'{ "inputSchema":{"b":2,"a":1}, "name":"x" }'),
        (b'{"name":"x"}', b'{"name":"x","inputSchema":{}}'),
        (b'{"name":"x"}', b'{"name":"x","inputSchema":null,"description":null,"annotations":null}'),
        (b'{"name":"x"}', b'{"name":"x","description":"","annotations":{}}'),
        (b'{"name":"x"}', b'{"name":"x","title":"X","_meta":{"a":1},"outputSchema":{}}'),
        (b'{"name":"x","annotations":{"a":1,"b":2}}', b'{"name":"x","annotations":{"b":2,"a":1}}'),
        (rb'{"name":"\u0078"}', b'{"name":"x"}'),
    ],
)
def test_what_means_the_same_has_the_same_hashes(one: bytes, other: bytes) -> None:
    assert tool_hashes(one) == tool_hashes(other)


def test_annotations_are_seen_by_the_approval_hash_alone() -> None:
    seen = [tool_hashes(tool("x", annotations=one)) for one in ({}, {"readOnlyHint": True}, {"title": "X"})]
    assert len({one.search for one in seen}) == 1
    assert len({one.approval for one in seen}) == 3


def test_nothing_moves_from_one_part_of_the_hash_to_the_next() -> None:
    assert tool_hash("ab", "c", {}) != tool_hash("a", "bc", {})
    assert tool_hash("a", "b{}", {}) != tool_hash("a", "b", {"{}": {}})


@pytest.mark.parametrize(
    "definition",
    [b"", b"nonsense", b"[]", b'{"name":5}', b'{"name":"\xff"}', b'{"name":"a","x":' + b"[" * 5000, b"{}"],
)
def test_what_no_parser_takes_has_hashes_too(definition: bytes) -> None:
    assert len(tool_hashes(definition).search) == len(tool_hashes(definition).approval) == 64
    assert tool_hashes(definition) != tool_hashes(definition + b" nonsense")


async def test_how_often_tools_were_called_is_told_of_those_that_were(path: Path) -> None:
    await kept(
        path, ("s", "1", ItemKind.TOOLS, [tool("a"), tool("b")]), ("t", "1", ItemKind.TOOLS, [tool("a")])
    )
    file = SqliteCatalogStore(path)
    assert await file.usage() == {}
    await file.count_calls({("s", "a"): 3, ("t", "a"): 1})
    await file.count_calls({("s", "a"): 2})
    assert await file.usage() == {("s", "a"): 5, ("t", "a"): 1}
    await file.flush()
    assert await SqliteCatalogStore(path).usage() == {("s", "a"): 5, ("t", "a"): 1}


async def test_calls_are_remembered_of_a_server_that_is_defined_otherwise_or_away(path: Path) -> None:
    await kept(path, ("s", "1", ItemKind.TOOLS, [tool("a")]), ("t", "1", ItemKind.TOOLS, [tool("a")]))
    file = SqliteCatalogStore(path, lambda: 2000.0)
    await file.count_calls({("s", "a"): 3, ("t", "a"): 1})
    assert await file.load({"s": "2"}) == []
    await file.keep("s", "2", ItemKind.TOOLS, [tool("a")], HINT)
    await file.count_calls({("s", "a"): 1})
    assert await file.usage() == {("s", "a"): 4, ("t", "a"): 1}
    await file.flush()


async def test_calls_of_what_nobody_lists_are_forgotten_after_thirty_days_and_no_others(path: Path) -> None:
    await kept(path, ("s", "1", ItemKind.TOOLS, [tool("a"), tool("b")]))
    now = 1000.0
    file = SqliteCatalogStore(path, lambda: now)
    await file.count_calls({("s", "a"): 3, ("gone", "x"): 9})
    now += 30 * 24 * 3600.0
    await file.count_calls({("s", "b"): 1})
    assert await file.usage() == {("s", "a"): 3, ("gone", "x"): 9, ("s", "b"): 1}
    now += 1
    await file.count_calls({("s", "b"): 1})
    assert await file.usage() == {("s", "a"): 3, ("s", "b"): 2}
    await file.flush()


async def test_of_many_tools_that_were_called_those_of_late_are_remembered(path: Path) -> None:
    now = 1000.0
    file = SqliteCatalogStore(path, lambda: now)
    await file.count_calls({("s", f"{number}"): 1 for number in range(20_000)})
    now += 1
    await file.count_calls({("t", f"{number}"): 1 for number in range(50)})
    usage = await file.usage()
    assert len(usage) == 20_000
    assert sum(server == "t" for server, _ in usage) == 50
    await file.flush()


ROWS_OF_VERSION = {
    1: """
    INSERT INTO servers VALUES ('s', '1');
    INSERT INTO tools VALUES (1, 's', 0, 'a', NULL, 'h', 'h', x'7b7d', 5.0, 6.0, 3, 7.0);
    INSERT INTO tools VALUES (2, 's', 1, 'b', NULL, 'h', 'h', x'7b7d', 5.0, 6.0, 0, NULL);
    INSERT INTO vectors VALUES ('h', 'm', x'01');
    """,
    2: """
    INSERT INTO servers VALUES ('s', '1');
    INSERT INTO calls VALUES ('s', 'a', 3, 7.0);
    INSERT INTO vectors VALUES ('h', 'm', x'01');
    """,
}


@pytest.mark.parametrize("version", [1, 2])
async def test_calls_and_vectors_of_earlier_versions_survive_though_several_start_at_once(
    path: Path, version: int
) -> None:
    def write() -> None:
        path.parent.mkdir()
        with closing(sqlite3.connect(path)) as connection:
            CATALOG_MIGRATIONS.apply(connection, up_to=version)
            connection.executescript(ROWS_OF_VERSION[version])

    await asyncio.to_thread(write)
    files = [SqliteCatalogStore(path) for _ in range(3)]
    assert await asyncio.gather(*(file.usage() for file in files)) == [{("s", "a"): 3}] * 3
    for file in files:
        assert await file.load({"s": "1"}) == []
        assert await file.vectors("m") == {"h": b"\x01"}
    for file in files:
        await file.keep("s", "1", ItemKind.TOOLS, [tool("a")], HINT)
    await asyncio.gather(*(file.flush() for file in files))
    assert await rows(path, "SELECT * FROM calls") == [("s", "a", 3, 7.0)]


async def test_a_file_that_cannot_be_read_has_no_favourites(tmp_path: Path) -> None:
    path = tmp_path / "proxy.db"
    await asyncio.to_thread(path.mkdir)
    assert await SqliteCatalogStore(path).usage() == {}
