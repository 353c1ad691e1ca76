"""Every tool of 98 real catalogs can be called in every mode, and what a listing leaves out can be had."""

import json
import lzma
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.listing_mode import ListingMode
from headgate.search.token_counter import count_tokens
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.parts import Parts
from testkit.upstreams import configuration, listing_command, stdio_entry
from tests.real.listing_text import Definition, definitions, members, sources
from tests.real.pipelined_calls import call_all
from tests.real.sdk_scripts import run_script
from tests.real.source_text_clients import legacy_http_client, modern_http_client, pages
from tests.replay.differences import is_closed

DATA = Path(__file__).parents[1] / "data"
# 99 children start at once on however few cores there are.
START_SECONDS = 60.0
# SDK clients refuse a larger event, whole listing and all.
LARGEST_PAGE = 1024 * 1024
# Of odd-tools.json, in its order: 16 tools that can be served, the last three of them after a repair;
# 5 that no client could call; 9 for which SDK clients refuse the whole page, so none may be served as it is.
SERVED, UNUSABLE = 16, 5
REPAIRED = {"no_type", "empty_schema", "no_schema"}
REFUSED = {
    "two_types",
    "text_schema",
    "null_title",
    "number_title",
    "number_description",
    "list_annotations",
    "list_meta",
    "empty_icon",
    "number_dialect",
}


@dataclass(frozen=True)
class Replay:
    """A gateway in front of one replaying upstream per catalog, and what each of them lists."""

    gateway: GatewayProcess
    listings: dict[str, list[Definition]]

    def original(self, server: str, tool: str) -> Definition:
        (found, *_) = [definition for definition in self.listings[server] if definition.name == tool]
        return found


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replay]:
    place = tmp_path_factory.mktemp("catalogs")
    sources = dict(catalogs()) | {"odd": (DATA / "odd-tools.json").read_text(encoding="utf-8")}
    servers = {}
    for server, listing in sources.items():
        (place / f"{server}.json").write_text(listing, encoding="utf-8")
        servers[server] = stdio_entry(listing_command(server, place / f"{server}.json"))
    with running_gateway(configuration(servers), place / "gateway", start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        yield Replay(gateway, {server: definitions(listing) for server, listing in sources.items()})


def catalogs() -> Iterator[tuple[str, str]]:
    """Each server's name and the source text of its listing."""
    mark = ',"listing":'
    with lzma.open(DATA / "catalogs.jsonl.xz", "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield json.loads(line)["server"], line[line.index(mark) + len(mark) : -len("}\n")]


@pytest.fixture(scope="module")
def listed(replay: Replay) -> list[Definition]:
    with modern_http_client(replay.gateway.url) as client:
        return [definition for page in pages(client) for definition in definitions(page)]


@pytest.fixture(scope="module")
def origins(replay: Replay, listed: list[Definition]) -> dict[str, tuple[str, str]]:
    """The server and the tool that each public name reaches, found by calling it."""
    return reached_by(replay.gateway, ListingMode.FULL, [definition.name for definition in listed])


def reached_by(
    gateway: GatewayProcess, mode: ListingMode, names: Iterable[str]
) -> dict[str, tuple[str, str]]:
    """The server and the tool that each name reaches for clients that list in that mode."""
    calls: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in names]
    reached = {}
    for (name, _), answer in zip(calls, call_all(f"{gateway.url}/{mode}", calls), strict=True):
        result = answer["result"]
        assert not result.get("isError"), f"{name}: {result}"
        server, tool = (content["text"] for content in result["content"])
        reached[name] = (server, tool)
    return reached


def test_every_tool_can_be_called_and_none_is_listed_twice(
    replay: Replay, listed: list[Definition], origins: dict[str, tuple[str, str]]
) -> None:
    expected = {
        (server, definition.name)
        for server, listing in replay.listings.items()
        for definition in listing
        if server != "odd"
    }

    reached = [origins[definition.name] for definition in listed]

    assert len(expected) == 3250
    assert {origin for origin in reached if origin[0] != "odd"} == expected
    assert len(reached) == len(set(reached)) == len(origins)


@pytest.mark.parametrize("mode", [mode for mode in ListingMode if mode is not ListingMode.FULL])
def test_every_tool_can_be_called_in_every_mode_listed_or_not(
    replay: Replay, origins: dict[str, tuple[str, str]], mode: ListingMode
) -> None:
    assert reached_by(replay.gateway, mode, origins) == origins


def test_every_definition_leaves_byte_for_byte(
    replay: Replay, listed: list[Definition], origins: dict[str, tuple[str, str]]
) -> None:
    changed = {
        origins[definition.name]
        for definition in listed
        if definition.rest != replay.original(*origins[definition.name]).rest
    }

    expected = lacking_type(replay) | closed_outputs(replay)
    assert {(server, tool) for server, tool in changed if tool not in REFUSED} == expected


def closed_outputs(replay: Replay) -> set[tuple[str, str]]:
    """The tools whose output schema has no place for the notice of a truncated result."""
    return {
        (server, definition.name)
        for server, definitions in replay.listings.items()
        for definition in definitions
        if is_closed(json.loads(with_no_name(definition.rest)).get("outputSchema", {}))
    }


def lacking_type(replay: Replay) -> set[tuple[str, str]]:
    """The tools whose input schema misses its `type`, which clients refuse: the one repair there is."""
    gitlab = {("server-gitlab", definition.name) for definition in replay.listings["server-gitlab"]}
    return gitlab | {("odd", name) for name in REPAIRED}


def test_a_repair_adds_the_missing_type_and_nothing_else_and_is_logged(
    replay: Replay, listed: list[Definition], origins: dict[str, tuple[str, str]]
) -> None:
    repaired = [definition for definition in listed if origins[definition.name] in lacking_type(replay)]
    for definition in repaired:
        original = replay.original(*origins[definition.name])
        before, after = in_order(original.rest), in_order(definition.rest)
        schema = dict(after)["inputSchema"]
        assert ("type", "object") in schema
        without_type = [member for member in schema if member != ("type", "object")]
        assert without_type == dict(before).get("inputSchema", [])
        assert [m for m in after if m[0] != "inputSchema"] == [m for m in before if m[0] != "inputSchema"]

    entries = [json.loads(line) for line in replay.gateway.log().splitlines() if line.startswith("{")]
    logged = [entry["server"] for entry in entries if entry.get("event") == "tool repaired"]
    assert len(repaired) == len(lacking_type(replay))
    assert logged.count("server-gitlab") == len(replay.listings["server-gitlab"])
    assert logged.count("odd") >= len(REPAIRED)
    assert set(logged) == {"server-gitlab", "odd"}


def in_order(rest: str) -> list[tuple[str, Any]]:
    """The members of a definition whose name was cut out, in order, objects as lists of members."""
    members: list[tuple[str, Any]] = json.loads(with_no_name(rest), object_pairs_hook=list)
    return members


def with_no_name(rest: str) -> str:
    return re.sub(r'"name"\s*:\s*(?=[,}])', '"name":null', rest, count=1)


def test_an_unusable_tool_is_left_out_and_its_neighbours_stay(
    replay: Replay, origins: dict[str, tuple[str, str]]
) -> None:
    served = {tool for server, tool in origins.values() if server == "odd"}
    usable = {definition.name for definition in replay.listings["odd"][:SERVED]}

    assert served - REFUSED == usable
    reasons = replay.gateway.servers()["odd"]["tools_left_out"]
    assert len(reasons) == UNUSABLE + len(REFUSED - served)
    assert all(reasons.values())


# In fewer words.


@pytest.fixture(scope="module")
def wholes(replay: Replay) -> dict[str, str]:
    """The source text of each definition as it is listed in full."""
    return shown(replay.gateway, ListingMode.FULL)


def shown(gateway: GatewayProcess, mode: ListingMode) -> dict[str, str]:
    with modern_http_client(f"{gateway.url}/{mode}") as client:
        texts = [text for page in pages(client) for text in sources(page)]
    return {json.loads(text)["name"]: text for text in texts}


def test_slim_lists_the_same_tools_and_none_is_longer(replay: Replay, wholes: dict[str, str]) -> None:
    slim = shown(replay.gateway, ListingMode.SLIM)

    assert list(slim) == ["expandSchema", *wholes]
    assert [name for name in wholes if len(slim[name]) > len(wholes[name])] == []
    assert all(json.loads(text)["inputSchema"]["type"] == "object" for text in slim.values())


def test_expand_schema_gives_back_what_slim_leaves_out(replay: Replay, wholes: dict[str, str]) -> None:
    schemas = expanded(replay.gateway, wholes, mode="schema")
    docs = expanded(replay.gateway, wholes, mode="docs")

    assert len(wholes) > 3250
    for name, whole in wholes.items():
        original = [(key, whole[start:end]) for key, start, end in members(whole)]
        rest = [(key, docs[name][start:end]) for key, start, end in members(docs[name])]
        place = [key for key, _ in original].index("inputSchema")
        assert [*rest[:place], ("inputSchema", schemas[name]), *rest[place:]] == original


def expanded(gateway: GatewayProcess, names: Iterable[str], **more: str) -> dict[str, str]:
    calls = [("expandSchema", {"toolName": name} | more) for name in names]
    answers = call_all(f"{gateway.url}/{ListingMode.SLIM}", calls)
    texts = (answer["result"]["content"] for answer in answers)
    return {call[1]["toolName"]: block["text"] for call, (block,) in zip(calls, texts, strict=True)}


@pytest.mark.parametrize("mode", [ListingMode.AUTO, ListingMode.BUDGET])
def test_what_must_fit_the_budget_does(replay: Replay, wholes: dict[str, str], mode: ListingMode) -> None:
    fitted = shown(replay.gateway, mode)

    assert count_tokens(f"[{','.join(fitted.values())}]".encode()) <= 3000
    assert list(fitted)[:3] == ["retrieve_tools", "call_tool", "expandSchema"]
    assert list(fitted)[3:] == [name for name in wholes if name in fitted]
    assert len(fitted) > 40


# As clients read it.


def test_pages_are_small_enough_for_every_client(replay: Replay) -> None:
    with legacy_http_client(replay.gateway.url) as client:
        sizes = [len(page.encode()) for page in pages(client)]

    assert len(sizes) > 5
    assert max(sizes) < LARGEST_PAGE


@pytest.mark.parametrize(
    ("client", "era"),
    [
        ("python-2", "legacy"),
        ("python-2", "modern"),
        ("python-1", "legacy"),
        ("typescript-2", "legacy"),
        ("typescript-2", "modern"),
        ("typescript-1", "legacy"),
    ],
)
def test_every_sdk_reads_the_whole_listing(
    replay: Replay, listed: list[Definition], parts: Parts, client: str, era: str
) -> None:
    plan = {"front": "http", "url": replay.gateway.url, "era": era, "tool": "odd_spaced", "arguments": {}}

    report = run_script(client, plan, parts)

    assert [tool["name"] for tool in report["tools"]] == [definition.name for definition in listed]
