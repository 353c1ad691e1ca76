"""`headgate listing`: what clients would see, in every mode, as text and as JSON."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from headgate.catalog.tool_dialects import Dialect
from headgate.cli import commands
from headgate.domain.listing_mode import ListingMode
from headgate.results.tools import NAMES
from headgate.search.token_counter import count_tokens
from testkit.gateway_process import clean_environment, running_gateway
from testkit.upstreams import listing_command, stdio_entry
from testkit.waiting import wait_until
from tests.real.listing_text import sources
from tests.real.source_text_clients import legacy_http_client, pages
from tests.real.test_catalogs import catalogs

# Dozens of processes start at once on however few cores there are.
SECONDS = 60.0
EXAMPLE = {"example": {"builtin": "example"}}
# Together more than any budget here has room for.
REAL = ("server-filesystem", "server-everything", "server-github-npm", "antv-chart-mcp")
# Too few for a word of every tool.
BUDGET = 2000
MODES = ["full", "partitioned", "slim", "budget", "search", "dynamic", "auto"]


def command(*arguments: str | Path, directory: Path) -> list[str]:
    data = ["--data-dir", str(directory / "data")]
    return [sys.executable, "-m", "headgate", "listing", *map(str, arguments), *data]


def environment(directory: Path, settings: Mapping[str, str]) -> dict[str, str]:
    return clean_environment() | {"HOME": str(directory), "COLUMNS": "100"} | dict(settings)


def run(*arguments: str | Path, directory: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*arguments, directory=directory),
        cwd=directory,
        env=environment(directory, settings),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def text(*arguments: str | Path, directory: Path, **settings: str) -> str:
    ended = run(*arguments, directory=directory, **settings)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def report(*arguments: str | Path, directory: Path, **settings: str) -> dict[str, Any]:
    """Return the JSON document."""
    document: dict[str, Any] = json.loads(text(*arguments, "--json", directory=directory, **settings))
    return document


def refused(*arguments: str | Path, directory: Path, **settings: str) -> str:
    """Return the one sentence that says why there is no report."""
    ended = run(*arguments, directory=directory, **settings)
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    said = [line for line in ended.stderr.splitlines() if line.startswith("headgate: ")]
    assert said == ended.stderr.splitlines()[-1:], ended.stderr
    return said[0]


def configured(directory: Path, servers: Mapping[str, Any], **settings: Any) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / "headgate.json"
    path.write_text(json.dumps({"mcpServers": servers, "proxySettings": settings}), encoding="utf-8")
    return path


def listing(directory: Path, name: str, tools: list[Any]) -> dict[str, Any]:
    """Return the entry of a server that lists these tools."""
    path = directory / f"{name}.json"
    path.write_text(json.dumps({"tools": tools}), encoding="utf-8")
    return stdio_entry(listing_command(name, path))


def tool(name: str, description: str = "Does something.") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def of(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what a report of one mode says of the tool that its server calls so."""
    (found,) = [one for one in document["listed"] if one["name"] == name]
    return dict(found)


@dataclass(frozen=True)
class Real:
    """A directory whose data remembers the tools of real servers, and what a gateway served of them."""

    place: Path
    # The source text of every tool, by mode.
    served: dict[str, list[str]]

    @property
    def config(self) -> Path:
        return self.place / "headgate.json"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    place = tmp_path_factory.mktemp("real")
    listings = dict(catalogs())
    servers: dict[str, dict[str, Any]] = {}
    for server in REAL:
        (place / f"{server}.json").write_text(listings[server], encoding="utf-8")
        servers[server] = stdio_entry(listing_command(server, place / f"{server}.json"))
    servers["antv-chart-mcp"] |= {"pin": ["generate_pie_chart"], "hide": ["*_map"]}
    servers["server-filesystem"] |= {"rename": {"read_text_file": "read text"}}
    settings = {"listingBudgetTokens": BUDGET, "listResultTools": True}
    config = {"mcpServers": servers, "proxySettings": settings}
    with running_gateway(config, place, start_seconds=SECONDS) as gateway:
        gateway.wait_until_ready(*servers, seconds=SECONDS)
        return Real(place, {mode: served(f"{gateway.url}/{mode}") for mode in MODES})


def served(url: str) -> list[str]:
    with legacy_http_client(url) as client:
        return [source for page in pages(client) for source in sources(page)]


def test_help_is_given_and_loads_no_gateway(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "headgate", "listing", "--help"],
        env=environment(tmp_path, {}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    for word in (
        "--config",
        "--data-dir",
        "--mode",
        "--client",
        "--dialect",
        "--budget",
        "--json",
        "--refresh",
    ):
        assert word in ended.stdout
    assert "headgate.app" not in ended.stderr


def test_every_mode_and_every_dialect_can_be_asked_for() -> None:
    kinds = {option.name: option.type for option in commands.listing.params}
    asked = {name: kind.choices for name, kind in kinds.items() if isinstance(kind, click.Choice)}
    assert {name: set(choices) for name, choices in asked.items()} == {
        "mode": set(ListingMode),
        "dialect": set(Dialect),
    }


# All modes beside each other.


def test_a_few_tools_are_shown_in_full_and_the_reason_is_told(tmp_path: Path) -> None:
    found = report("--config", configured(tmp_path, EXAMPLE), directory=tmp_path)
    assert (found["kind"], found["tools"], found["dialect"]) == ("overview", 6, "plain")
    assert [one["mode"] for one in found["modes"]] == MODES
    full, partitioned, slim, budget, search, dynamic, auto = found["modes"]
    # Five read stored results; where everything is called by one tool they are too.
    assert (full["whole"], full["own"], full["share"]) == (6, 5, 1)
    assert (slim["slim"], slim["own"]) == (6, 6)
    assert partitioned["partitioned"] + partitioned["whole"] == 6
    assert (search["search"], search["own"], dynamic["own"]) == (6, 3, 6)
    assert auto == full | {"mode": "auto"}
    assert budget == full | {"mode": "budget", "came_to": "budget"}
    (server,) = found["servers"]
    assert (server["name"], server["tools"]) == ("example", 6)
    assert (server["tokens"]["search"], server["tokens"]["dynamic"]) == (0, 0)
    assert server["tokens"]["slim"] < server["tokens"]["full"] <= full["tokens"]
    choice = found["choice"]
    assert (choice["mode"], choice["decided_by"], choice["came_to"]) == ("auto", "listing", "full")
    assert f"{full['tokens']:,} tokens" in choice["why"]
    assert "3,000" in choice["why"]


def test_the_overview_is_told_as_text_that_fits_the_terminal(tmp_path: Path) -> None:
    config = configured(tmp_path, {"example": {"builtin": "example", "pin": ["time"]}})
    wide = text("--config", config, directory=tmp_path)
    assert "1 pinned: --mode names them\n" in wide
    for words in ("6 tools of 1 server", "A client of no known name", "auto (full)", "% of full", "Servers"):
        assert words in wide
    narrow = text("--config", config, directory=tmp_path, COLUMNS="80")
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, wide.splitlines()))


def test_many_tools_are_fitted_to_the_budget(real: Real) -> None:
    config, place = real.config, real.place
    found = report("--config", config, directory=place)
    by_mode = {one["mode"]: one for one in found["modes"]}
    for one in found["modes"]:
        assert sum(one[form] for form in ("whole", "partitioned", "slim", "stub", "search")) == found["tools"]
    assert found["choice"]["came_to"] == "budget"
    assert found["modes"][-1] == by_mode["budget"] | {"mode": "auto"}
    assert by_mode["slim"]["tokens"] < by_mode["full"]["tokens"]
    assert by_mode["budget"]["tokens"] <= BUDGET
    assert by_mode["budget"]["own"] == 8
    assert (found["pinned"], found["renamed"]) == (1, 1)
    assert found["hidden"] > 0
    for mode in MODES:
        shown = sum(server["tokens"][mode] for server in found["servers"])
        assert shown <= by_mode[mode]["tokens"]
    small = report("--config", config, "--budget", "500", directory=place)
    assert {one["mode"]: one["tokens"] for one in small["modes"]}["budget"] <= 500
    assert small["budget_tokens"] == 500
    between = by_mode["slim"]["tokens"] + 1
    assert (
        report("--config", config, "--budget", str(between), directory=place)["choice"]["came_to"] == "slim"
    )


def test_what_is_known_of_a_client_decides_for_it(tmp_path: Path) -> None:
    settings = {
        "listing": "search",
        "clientListings": {"Claude*": "slim"},
        "clientDialects": {"strict": "openai"},
    }
    tools = [tool(f"number_{number}") for number in range(41)]
    config = configured(tmp_path, {"numbers": listing(tmp_path, "numbers", tools)}, **settings)

    def told(client: str, *more: str) -> dict[str, Any]:
        return report("--config", config, "--client", client, *more, directory=tmp_path)

    strict, claude = told("strict"), told("claude-code")
    assert strict["choice"] == {"mode": "search", "decided_by": "listing", "came_to": "search", "why": ""}
    assert (claude["choice"]["mode"], claude["choice"]["decided_by"]) == ("slim", "clientListings")
    assert (strict["dialect"], claude["dialect"]) == ("openai", "plain")
    cursor = told("cursor-vscode", "--mode", "auto")
    assert (cursor["most_tools"], cursor["came_to"]) == (40, "budget")
    assert cursor["why"] == "there are 41 tools, and the client is known to handle 40"
    assert sum(one["form"] != "search" for one in cursor["listed"]) <= 40
    others = told("anybody", "--mode", "auto")
    assert (others["most_tools"], others["came_to"]) == (None, "full")


# One mode, tool by tool.


@pytest.mark.parametrize("mode", MODES)
def test_what_is_told_is_what_a_gateway_serves(real: Real, mode: str) -> None:
    told = report("--config", real.config, "--mode", mode, directory=real.place)
    listed = [one for one in told["listed"] if one["form"] != "search"]
    assert [one["public_name"] for one in listed] == [
        json.loads(source)["name"] for source in real.served[mode]
    ]
    assert [one["tokens"] for one in listed] == [
        count_tokens(source.encode()) for source in real.served[mode]
    ]
    assert told["tokens"] == count_tokens(f"[{','.join(real.served[mode])}]".encode())


def test_every_tool_is_named_with_where_it_comes_from_and_how_it_is_shown(
    real: Real,
) -> None:
    found = report("--config", real.config, "--mode", "budget", directory=real.place)
    assert found["kind"] == "listing"
    own = [one for one in found["listed"] if one["form"] == "own"]
    assert [one["public_name"] for one in own] == ["retrieve_tools", "call_tool", "expandSchema", *NAMES]
    assert all(one["server"] == "" for one in own)
    assert len(found["listed"]) - len(own) == found["tools"]
    pinned = of(found, "generate_pie_chart")
    assert (pinned["pinned"], pinned["form"]) == (True, "whole")
    renamed = of(found, "read_text_file")
    assert (renamed["public_name"], renamed["renamed"], renamed["name_is"]) == ("read_text", True, "")
    assert all(one["tokens"] == 0 for one in found["listed"] if one["form"] == "search")
    hidden = [one["name"] for one in found["hidden"]]
    assert hidden
    assert all(name.endswith("_map") for name in hidden)
    assert not [one for one in found["listed"] if one["name"] in hidden]
    words = text("--config", real.config, "--mode", "budget", directory=real.place)
    for line in (
        "antv-chart-mcp: generate_pie_chart (pinned)",
        "server-filesystem: read_text_file (renamed)",
    ):
        assert line in words
    assert "Hidden: neither listed, nor found, nor called" in words


def test_names_that_are_not_the_plain_ones_are_told_and_never_cut_in_the_table(tmp_path: Path) -> None:
    long = "a_name_of_a_tool_that_goes_on_for_longer_than_any_client_takes_it"
    tools = [tool("get-page"), tool("get.page"), tool(long)]
    config = configured(tmp_path, {"docs": listing(tmp_path, "docs", tools)})
    found = report("--config", config, "--mode", "full", directory=tmp_path)
    assert [of(found, name)["name_is"] for name in ("get-page", "get.page", long)] == ["", "hashed", "cut"]
    cut = of(found, long)["public_name"]
    assert cut in text("--config", config, "--mode", "full", directory=tmp_path, COLUMNS="60")
    overview = report("--config", config, directory=tmp_path)
    assert (overview["names_cut"], overview["names_hashed"]) == (1, 1)


def test_a_hidden_tool_takes_no_name_from_another(tmp_path: Path) -> None:
    entry = listing(tmp_path, "docs", [tool("get-page"), tool("get.page")]) | {"hide": ["get-page"]}
    found = report("--config", configured(tmp_path, {"docs": entry}), "--mode", "full", directory=tmp_path)
    assert [one["public_name"] for one in found["listed"]] == ["docs_get_page", *NAMES]
    assert found["hidden"] == [{"server": "docs", "name": "get-page"}]


def test_pins_without_room_are_told(tmp_path: Path) -> None:
    entry = listing(tmp_path, "s", [tool(f"number_{number}") for number in range(60)]) | {"pin": ["*"]}
    config = configured(tmp_path, {"s": entry})
    found = report("--config", config, "--mode", "budget", "--budget", "500", directory=tmp_path)
    assert found["tokens"] <= 500
    left = [one["public_name"] for one in found["listed"] if one["form"] == "search"]
    assert 0 < len(left) < 60
    assert found["pins_left"] == left
    words = text("--config", config, "--mode", "budget", "--budget", "500", directory=tmp_path)
    assert f"Pinned, but there is no room for it: {left[0]}" in words


def test_what_a_dialect_changes_is_told_line_by_line(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"kind": {"const": "a"}, "name": {"type": "string"}}}
    tools = [tool("plain"), {"name": "odd", "inputSchema": schema}]
    config = configured(tmp_path, {"s": listing(tmp_path, "s", tools)})
    found = report("--config", config, "--mode", "full", "--dialect", "gemini", directory=tmp_path)
    assert list(found["changes"]) == ["s_odd"]
    assert any(line.startswith("inputSchema.properties.kind") for line in found["changes"]["s_odd"])
    words = text("--config", config, "--mode", "full", "--dialect", "gemini", directory=tmp_path)
    assert "Changed for the dialect gemini" in words


# Where the tools come from.


def test_looking_at_what_is_remembered_changes_nothing_and_connects_to_nobody(
    real: Real,
) -> None:
    place = real.place
    before = (place / "data" / "state.json").read_bytes()
    ended = run("--config", real.config, "--mode", "slim", directory=place)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (place / "data" / "state.json").read_bytes() == before


def test_servers_are_asked_again_when_that_is_wanted(tmp_path: Path) -> None:
    config = configured(tmp_path, {"s": listing(tmp_path, "s", [tool("first")])})
    assert report("--config", config, directory=tmp_path)["tools"] == 1
    listing(tmp_path, "s", [tool("first"), tool("second")])
    assert report("--config", config, directory=tmp_path)["tools"] == 1
    again = run("--config", config, "--refresh", "--json", directory=tmp_path)
    assert "connecting to s\n" in again.stderr
    assert json.loads(again.stdout)["tools"] == 2


def test_a_server_that_cannot_be_reached_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    config = configured(tmp_path, EXAMPLE | {"broken": {"command": "/nonexistent/command"}})
    found = report("--config", config, directory=tmp_path)
    assert found["tools"] == 6
    (broken,) = found["unreached"]
    assert (broken["name"], "/nonexistent/command" in broken["reason"]) == ("broken", True)
    assert "Not listed: 'broken'" in text("--config", config, "--mode", "slim", directory=tmp_path)


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ({}, ["no enabled server", "--config"]),
        ({"off": {"builtin": "example", "enabled": False}}, ["no enabled server"]),
        ({"broken": {"command": "/nonexistent/command"}}, ["no tool", "'broken'", "/nonexistent/command"]),
    ],
)
def test_without_a_tool_there_is_nothing_to_show(
    tmp_path: Path, servers: dict[str, Any], words: list[str]
) -> None:
    said = refused("--config", configured(tmp_path, servers), directory=tmp_path)
    for word in words:
        assert word in said


def test_a_file_that_is_missing_and_a_directory_that_is_none_are_named(tmp_path: Path) -> None:
    assert "nowhere.json" in refused("--config", "nowhere.json", directory=tmp_path)
    config = configured(tmp_path, EXAMPLE)
    (tmp_path / "data").write_text("no directory", encoding="utf-8")
    said = refused("--config", config, directory=tmp_path)
    assert str(tmp_path / "data") in said
    assert "--data-dir" in said


@pytest.mark.parametrize(
    "option", [("--budget", "499"), ("--budget", "many"), ("--mode", "everything"), ("--dialect", "latin")]
)
def test_an_option_that_makes_no_sense_is_refused(tmp_path: Path, option: tuple[str, str]) -> None:
    ended = run(*option, directory=tmp_path)
    assert ended.returncode == 2
    assert option[0] in ended.stderr


def test_whoever_waits_for_a_server_can_go_away(tmp_path: Path) -> None:
    config = configured(tmp_path, {"silent": {"command": "sleep", "args": ["60"]}})
    log = tmp_path / "log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            command("--config", config, directory=tmp_path),
            stdout=output,
            stderr=output,
            env=environment(tmp_path, {}),
            cwd=tmp_path,
        )
    try:
        wait_until(lambda: b"connecting to silent" in log.read_bytes(), SECONDS, "it connects")
        child.send_signal(signal.SIGINT)
        assert child.wait(SECONDS / 2) == 130
    finally:
        child.kill()
        child.wait()
    assert b"Traceback" not in log.read_bytes()


def test_whoever_looks_with_another_configuration_forgets_nothing(tmp_path: Path) -> None:
    def kept() -> dict[str, int]:
        with closing(sqlite3.connect(tmp_path / "data" / "proxy.db")) as database:
            return dict(database.execute("SELECT server_name, count(*) FROM tools GROUP BY server_name"))

    known = {"one": listing(tmp_path, "one", [tool("a"), tool("b")])} | EXAMPLE
    first = configured(tmp_path / "first", known)
    text("--config", first, directory=tmp_path)
    assert kept() == {"one": 2, "example": 6}
    # One that knows less, and one that has to connect first.
    text("--config", configured(tmp_path / "second", EXAMPLE), directory=tmp_path)
    other = {"two": listing(tmp_path, "two", [tool("c")])}
    text("--config", configured(tmp_path / "third", other), directory=tmp_path)
    assert kept() == {"one": 2, "example": 6, "two": 1}
