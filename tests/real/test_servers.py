"""The servers that people use work behind the gateway as they do alone."""

import asyncio
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from testkit.gateway_process import HOST, GatewayProcess, running_gateway
from testkit.parts import Parts
from testkit.upstreams import configuration, listening, plain_environment, stdio_entry
from tests.real.listing_text import Definition, definition, definitions, sources
from tests.real.mcp_clients import McpClient
from tests.real.source_text_clients import (
    RawClient,
    legacy_http_client,
    modern_http_client,
    pages,
    stdio_client,
)
from tests.replay.differences import is_closed, without_member

# Three of them import the whole Python SDK, all at once.
START_SECONDS = 45.0
PAGE = b"<html><head><title>Tides</title></head><body><p>High water at <b>noon</b>.</p></body></html>"
# What the gateway adds to an answer that refuses arguments.
SCHEMA = re.compile(r',\{"type":"text","text":"input_schema of (?:[^"\\]|\\.)*"\}(?=\])')
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Server:
    """A real server: how it starts, the newest era that it speaks, and calls that always answer the same."""

    command: list[str]
    era: str
    calls: list[tuple[str, Arguments]]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Town:
    """A gateway in front of all servers; `everything` stands behind it by all three transports."""

    gateway: GatewayProcess
    servers: dict[str, Server]

    def server(self, name: str) -> Server:
        return self.servers[name.removesuffix("-http").removesuffix("-sse")]

    @contextmanager
    def direct(self, name: str) -> Iterator[RawClient]:
        server = self.server(name)
        with stdio_client(server.command, plain_environment(**server.environment), server.era) as client:
            yield client

    @contextmanager
    def through(self, name: str) -> Iterator[RawClient]:
        connect = legacy_http_client if self.server(name).era == "legacy" else modern_http_client
        with connect(self.gateway.url) as client:
            yield client


NAMES = ("everything", "everything-http", "everything-sse", "filesystem", "memory", "time", "git", "fetch")


@pytest.fixture(scope="module")
def town(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    place = tmp_path_factory.mktemp("servers")
    with web_page() as page:
        servers = npm_servers(parts, place) | pypi_servers(parts, make_repository(place / "repository"), page)
        entries = {
            name: stdio_entry(server.command, env=server.environment) for name, server in servers.items()
        }
        everything = servers["everything"].command[:-1]
        with listening([*everything, "streamableHttp"]) as http, listening([*everything, "sse"]) as sse:
            entries["everything-http"] = {"url": f"{http}/mcp"}
            entries["everything-sse"] = {"url": f"{sse}/sse", "transport": "sse"}
            # The memory of the server behind the gateway is not that of the server alone.
            entries["memory"]["env"] = {"MEMORY_FILE_PATH": str(place / "gateway-memory.json")}
            with running_gateway(
                configuration(entries), place / "gateway", start_seconds=START_SECONDS
            ) as gateway:
                gateway.wait_until_ready(*NAMES, seconds=START_SECONDS)
                yield Town(gateway, servers)


def npm_servers(parts: Parts, place: Path) -> dict[str, Server]:
    def command(name: str, *arguments: str) -> list[str]:
        return [str(parts.node), str(parts.npm_bin(f"mcp-server-{name}")), *arguments]

    shelf = place / "shelf"
    shelf.mkdir()
    (shelf / "notes.txt").write_text("first line\nzweite Zeile: ü\n", encoding="utf-8")
    person = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    return {
        "everything": Server(
            command("everything", "stdio"),
            "legacy",
            [
                ("echo", {"message": "ü 😀"}),
                ("get-sum", {"a": 2, "b": 40}),
                ("get-structured-content", {"location": "Chicago"}),
                ("get-tiny-image", {}),
                ("get-sum", {"a": "no number"}),
            ],
        ),
        "filesystem": Server(
            command("filesystem", str(shelf)),
            "legacy",
            [
                ("read_text_file", {"path": str(shelf / "notes.txt")}),
                ("directory_tree", {"path": str(shelf)}),
                ("read_text_file", {"path": str(place / "outside.txt")}),
            ],
        ),
        "memory": Server(
            command("memory"),
            "legacy",
            [
                ("create_entities", {"entities": [person]}),
                ("read_graph", {}),
                ("search_nodes", {"query": "Ada"}),
            ],
            {"MEMORY_FILE_PATH": str(place / "direct-memory.json")},
        ),
    }


def pypi_servers(parts: Parts, repository: Path, page: str) -> dict[str, Server]:
    noon = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    here = {"repo_path": str(repository)}
    return {
        "time": Server([str(parts.server_bin("mcp-server-time"))], "modern", [("convert_time", noon)]),
        "git": Server(
            [str(parts.server_bin("mcp-server-git")), "--repository", str(repository)],
            "modern",
            [("git_log", here), ("git_status", here), ("git_show", here | {"revision": "HEAD"})],
        ),
        "fetch": Server(
            [str(parts.server_bin("mcp-server-fetch")), "--ignore-robots-txt", "--allow-private-ips"],
            "modern",
            [("fetch", {"url": page, "raw": True}), ("fetch", {"url": page, "raw": True, "start_index": 20})],
        ),
    }


@contextmanager
def web_page() -> Iterator[str]:
    """Serve one page on the loopback address."""

    class Shop(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer((HOST, 0), Shop) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{HOST}:{server.server_port}/tides"
        server.shutdown()


def make_repository(place: Path) -> Path:
    place.mkdir()
    author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for step in (["init", "--initial-branch=main"], ["add", "."], ["commit", "--message=the first commit"]):
        (place / "poem.txt").write_text("no line rhymes\n")
        subprocess.run(["git", *author, *step], cwd=place, check=True, capture_output=True, timeout=20)
    return place


@pytest.mark.parametrize("name", NAMES)
def test_every_tool_is_listed_as_the_server_lists_it(town: Town, name: str) -> None:
    with town.direct(name) as direct:
        expected = [
            definition(without_closed_output(tool)) for page in pages(direct) for tool in sources(page)
        ]
    with town.through(name) as through:
        listed = {tool.name: tool.rest for tool in every_definition(through)}

    tools = [tool for tool in expected if tool is not None]
    assert tools
    assert [listed.get(public(name, tool)) for tool, _ in tools] == [rest for _, rest in tools]


@pytest.mark.parametrize("name", NAMES)
def test_a_call_answers_as_the_server_answers(town: Town, name: str) -> None:
    calls = town.server(name).calls
    with town.direct(name) as direct:
        expected = [direct.ask("tools/call", {"name": tool, "arguments": given}) for tool, given in calls]
    with town.through(name) as through:
        answers = [
            through.ask("tools/call", {"name": public(name, tool), "arguments": given})
            for tool, given in calls
        ]

    answers = [SCHEMA.sub("", answer) for answer in answers]
    if town.server(name).era == "legacy":
        assert answers == expected
    else:
        assert list(map(content, answers)) == list(map(content, expected))


def content(result: str) -> dict[str, Any]:
    """A result of the modern era without what each hop says about itself."""
    members: dict[str, Any] = json.loads(result)
    meta = members.pop("_meta", {})
    meta.pop("io.modelcontextprotocol/serverInfo", None)
    return members | ({"_meta": meta} if meta else {})


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_long_operation_reports_its_progress_by_every_transport(town: Town, era: str) -> None:
    mcp_client = McpClient(town.gateway.url, era)

    async def operate(name: str) -> list[tuple[float, float | None]]:
        steps: list[tuple[float, float | None]] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            steps.append((progress, total))

        orders = {"duration": 1, "steps": 4}
        tool = public(name, "trigger-long-running-operation")
        result = await mcp_client.client.call_tool(tool, orders, progress_callback=note)
        assert not result.is_error
        return steps

    async with mcp_client.client:
        reports = await asyncio.gather(*map(operate, ("everything", "everything-http", "everything-sse")))

    assert reports == [[(1, 4), (2, 4), (3, 4), (4, 4)]] * 3


def every_definition(client: RawClient) -> list[Definition]:
    return [tool for page in pages(client) for tool in definitions(page)]


def without_closed_output(tool: str) -> str:
    """The tool without an output schema that has no place for the notice of a truncated result."""
    schema = json.loads(tool).get("outputSchema", {})
    return without_member(tool, "outputSchema") if is_closed(schema) else tool


def public(name: str, tool: str) -> str:
    plain, own = name.replace("-", "_"), tool.replace("-", "_")
    # A tool whose name begins with its server's is called by it alone.
    return own if own == plain or own.startswith(f"{plain}_") else f"{plain}_{own}"
