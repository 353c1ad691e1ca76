"""A team's documents, the command that ingests them as a process of its own, and endpoints of their tools."""

import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, TextContent

from headgate.results.compact_tables import from_compact_tables
from testkit.embeddings_endpoint import Endpoint, Reply, running_endpoint
from testkit.gateway_process import HOST, GatewayProcess, clean_environment, free_port
from testkit.waiting import wait_until
from tests.real.mcp_clients import McpClient

# A command takes about a second; a loaded machine may take many times that.
SECONDS = 50.0
BY_WORDS = {"HEADGATE_KNOWLEDGE_EMBEDDER": "BM25"}
TOOLS = ["semantic_search", "find_vendor_info", "list_sources", "get_chunk", "get_chunks", "neighbours"]
# What a text is about, as far as the endpoint can tell.
_SUBJECTS = ("turbine", "compressor", "zeppelin", "zebra", "anvil", "rocket", "gearbox")

Message = dict[str, Any]


def environment(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command, without any setting of this machine."""
    plain = {name: value for name, value in clean_environment().items() if not name.startswith("HEADGATE_")}
    return {**plain, "HOME": str(home), "COLUMNS": "120", **more}


def knowledge_command(*arguments: str | Path) -> list[str]:
    """The command line of `headgate knowledge`."""
    return [sys.executable, "-m", "headgate", "knowledge", *map(str, arguments)]


def run(
    place: Path, *arguments: str | Path, more: Mapping[str, str] = BY_WORDS
) -> "subprocess.CompletedProcess[str]":
    """Run `headgate knowledge` to its end in a directory."""
    return subprocess.run(
        knowledge_command(*arguments),
        cwd=place,
        env=environment(place, more),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def told(place: Path, *arguments: str | Path, more: Mapping[str, str] = BY_WORDS) -> str:
    """What a command that succeeds prints."""
    ended = run(place, *arguments, more=more)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def refused(place: Path, *arguments: str | Path, more: Mapping[str, str] = BY_WORDS) -> str:
    """The one sentence of a command that fails."""
    ended = run(place, *arguments, more=more)
    assert (ended.returncode, ended.stdout) == (2, ""), (ended.stdout, ended.stderr)
    lines = [line for line in ended.stderr.splitlines() if line.startswith("headgate: ")]
    assert lines, ended.stderr
    return ended.stderr


@contextmanager
def started(
    place: Path, *arguments: str | Path, more: Mapping[str, str] = BY_WORDS
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run `headgate knowledge` beside the test; `out` and `log` of the place get what it says."""
    with (place / "out").open("wb") as out, (place / "log").open("wb") as log:
        process = subprocess.Popen(
            knowledge_command(*arguments),
            cwd=place,
            env=environment(place, more),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(SECONDS)


def write_all(directory: Path, documents: Mapping[str, str]) -> Path:
    """Write each text to its file below the directory."""
    for name, text in documents.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return directory


def write_lines(path: Path, lines: Sequence[Message]) -> Path:
    """Write a graph, one object a line."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def vectors(asked: Message) -> Reply:
    """A direction for each subject: texts about the same point to the same side."""
    data = [
        {"object": "embedding", "index": index, "embedding": _direction(text.lower())}
        for index, text in enumerate(asked["input"])
    ]
    return 200, {}, json.dumps({"object": "list", "data": data}).encode()


def _direction(text: str) -> list[float]:
    return [float(text.count(subject)) for subject in _SUBJECTS] + [0.5]


@dataclass(frozen=True)
class Embedder:
    """An endpoint on loopback, the variables that lead to it, and whether it is away."""

    endpoint: Endpoint
    variables: dict[str, str]
    away: threading.Event


@contextmanager
def embedder() -> Iterator[Embedder]:
    """Run an endpoint that makes vectors unless the test takes it away."""
    away = threading.Event()

    def answer(asked: Message) -> Reply:
        return (503, {}, b"{}") if away.is_set() else vectors(asked)

    with running_endpoint(answer) as endpoint:
        variables = {"HEADGATE_KNOWLEDGE_EMBEDDER": "OPENAI", "HEADGATE_EMBEDDER": "BM25"}
        yield Embedder(endpoint, {**variables, "HEADGATE_OPENAI_BASE_URL": endpoint.url}, away)


@contextmanager
def serving_alone(
    place: Path, data: Path, *options: str, more: Mapping[str, str] = BY_WORDS, transport: str = "http"
) -> Iterator[GatewayProcess]:
    """Run `headgate knowledge serve` on HTTP, with its log in the place."""
    place.mkdir(parents=True, exist_ok=True)
    port, log_path = free_port(), place / "alone.log"
    listen = ["--transport", transport, "--host", HOST, "--port", str(port), "--data-dir", str(data)]
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            knowledge_command("serve", *listen, *options),
            cwd=place,
            env=environment(place, more),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    gateway = GatewayProcess(process, port, place / "headgate.json", data, log_path)
    try:
        wait_until(gateway.answers, SECONDS, "/health answers 200")
        gateway.wait_until_tried(SECONDS)
        yield gateway
    finally:
        try:
            gateway.close(tracebacks_expected=False)
        finally:
            process.kill()
            process.wait(SECONDS)


def alone_on_stdio(place: Path, data: Path, *options: str, more: Mapping[str, str]) -> StdioServerParameters:
    """What a client starts to have the documents to itself."""
    command, *arguments = knowledge_command(
        "serve", "--transport", "stdio", "--data-dir", str(data), *options
    )
    return StdioServerParameters(command=command, args=arguments, env=environment(place, more))


def gateway_on_stdio(config: Path, data: Path, more: Mapping[str, str]) -> StdioServerParameters:
    """What a client starts to have a gateway to itself."""
    arguments = ["-m", "headgate", "serve", "--transport", "stdio"]
    arguments += ["--config", str(config), "--data-dir", str(data)]
    return StdioServerParameters(command=sys.executable, args=arguments, env=environment(config.parent, more))


@dataclass(frozen=True)
class KnowledgeEndpoint:
    """A connected client, and what the tools are called where it came in."""

    mcp_client: McpClient
    prefix: str = ""

    async def call(self, tool: str, arguments: Message) -> CallToolResult:
        """The whole result of a call."""
        return await self.mcp_client.client.call_tool(self.prefix + tool, arguments)

    async def ask(self, tool: str, /, **arguments: Any) -> Message:
        """What a tool answers."""
        result = await self.call(tool, arguments)
        assert not result.is_error, result.content
        assert isinstance(result.structured_content, dict)
        # A model reads the same, with the keys of like things named once, but not how long it took.
        told = dict(result.structured_content)
        if "_metadata" not in told:
            told.pop("execution_time_ms", None)
        assert json.loads(from_compact_tables(first_text(result).encode())) == told
        return result.structured_content

    async def refusal(self, tool: str, /, **arguments: Any) -> Message:
        """What a tool says to a program when it refuses; the model reads the same sentence."""
        return refusal_of(await self.call(tool, arguments))

    async def pages(self, tool: str, first: Message, /, **arguments: Any) -> list[Message]:
        """Every page from a first one on."""
        pages = [first]
        while pages[-1]["pagination"]["has_more"]:
            assert len(pages) < 100, "the pages do not end"
            cursor = pages[-1]["pagination"]["cursor"]
            pages.append(await self.ask(tool, **arguments, cursor=cursor))
        assert pages[-1]["pagination"]["cursor"] is None
        return pages


@asynccontextmanager
async def entered(server: Any, era: str, prefix: str = "") -> AsyncIterator[KnowledgeEndpoint]:
    """A client of that era for as long as the block lasts."""
    mcp_client = McpClient(server, era)
    async with mcp_client.client:
        yield KnowledgeEndpoint(mcp_client, prefix)


def first_text(result: CallToolResult) -> str:
    """What a model reads first."""
    content = result.content[0]
    assert isinstance(content, TextContent)
    return content.text


def refusal_of(result: CallToolResult) -> Message:
    """What a result that refuses says to a program; the model reads the same sentence."""
    assert result.is_error, result.content
    said = result.structured_content
    assert isinstance(said, dict)
    assert first_text(result) == said["error"]
    assert (result.meta or {})["io.headgate/error"]["code"] == said["code"]
    return said
