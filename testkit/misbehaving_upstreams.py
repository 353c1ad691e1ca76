"""Upstreams that misbehave or record: configuration entries, and HTTP servers as processes of their own."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testkit.parts import ROOT
from testkit.upstreams import server_command, stdio_entry


def misbehaving(*options: str, **settings: Any) -> dict[str, Any]:
    """The configuration of a misbehaving stdio server with these command-line options."""
    return _stdio("servers.misbehaving_stdio", options) | settings


def canary(*options: str, **settings: Any) -> dict[str, Any]:
    """The configuration of a fast stdio server that answers with the caller's canary, out of order."""
    return _stdio("servers.load_stdio", ("--reorder", *options)) | settings


def load(*options: str, **settings: Any) -> dict[str, Any]:
    """The configuration of a fast stdio server for load."""
    return _stdio("servers.load_stdio", options) | settings


def chatty(
    directory: Path, name: str, *options: str, script: dict[str, Any] | None = None, **settings: Any
) -> dict[str, Any]:
    """The configuration of a talking stdio server; `script` is what it lists and says of itself."""
    more = ["--name", name, "--record", str(directory / f"{name}.record")]
    if script is not None:
        path = directory / f"{name}.script.json"
        path.write_text(json.dumps(script))
        more += ["--script", str(path)]
    return _stdio("servers.chatty_stdio", (*more, *options)) | settings


def recorder(directory: Path, name: str, *options: str) -> dict[str, Any]:
    """The configuration of a stdio server that records its arguments, its variables and all that it reads."""
    return _stdio("servers.traffic_recorder", (str(directory / f"{name}.jsonl"), *options))


# The word of the operator on the tools of a ledger server; the others say of themselves what they are.
AUDITED_TOOL_POLICIES: dict[str, Any] = {
    "charge": {"class": "keyed", "keyArgument": "idempotency_key"},
    "book": {
        "class": "probeable",
        "probe": {
            "tool": "did_book",
            "arguments": {"ref": "$arguments.ref"},
            "happened": "booked",
            "settle": 0.5,
        },
    },
}


def audited(deeds: Path, *options: str, **settings: Any) -> dict[str, Any]:
    """The configuration of a stdio server that writes down what it does."""
    own = {"tools": AUDITED_TOOL_POLICIES} | settings
    return _stdio("servers.audited_stdio", (str(deeds), *options)) | own


def recorded(directory: Path, name: str, *starts: str) -> list[str]:
    """The lines of a talking server's record that begin with one of these words; all of them without any."""
    path = directory / f"{name}.record"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if not starts or line.startswith(starts)]


def _stdio(module: str, options: tuple[str, ...]) -> dict[str, Any]:
    return stdio_entry(server_command(module, *options, site=True), cwd=str(ROOT))


@dataclass(frozen=True, slots=True)
class MisbehavingHttpProcess:
    """A misbehaving HTTP server that is running."""

    port: int
    record: Path

    @property
    def url(self) -> str:
        """Where it serves MCP."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def entry(self, **settings: Any) -> dict[str, Any]:
        """Its configuration."""
        return {"url": self.url, "transport": "streamable-http"} | settings

    def received(self) -> list[dict[str, Any]]:
        """Every request that arrived: its line, headers and body."""
        if not self.record.exists():
            return []
        return [json.loads(line) for line in self.record.read_text().splitlines()]

    def calls(self) -> int:
        """How many tools/call arrived."""
        return sum('"tools/call"' in request["body"] for request in self.received())


@contextlib.asynccontextmanager
async def misbehaving_http(
    directory: Path, name: str = "misbehaving_http", *options: str
) -> AsyncIterator[MisbehavingHttpProcess]:
    """Run a misbehaving HTTP server until the block ends."""
    record = directory / f"{name}.jsonl"
    async with _announcing("servers.misbehaving_http", "--record", str(record), *options) as port:
        yield MisbehavingHttpProcess(port, record)


@contextlib.asynccontextmanager
async def recorder_sse(directory: Path, name: str) -> AsyncIterator[int]:
    """Run a legacy SSE server that records all that it reads, until the block ends; gives its port."""
    async with _announcing("servers.traffic_recorder", str(directory / f"{name}.jsonl"), "--sse") as port:
        yield port


@dataclass(frozen=True, slots=True)
class AuditedHttpProcess:
    """A ledger server over HTTP that is running."""

    port: int
    deeds: Path

    def entry(self, **settings: Any) -> dict[str, Any]:
        """Its configuration; keys travel in a header."""
        charge = {"class": "keyed", "keyHeader": "Idempotency-Key"}
        url = f"http://127.0.0.1:{self.port}/mcp"
        own = {
            "url": url,
            "transport": "streamable-http",
            "tools": AUDITED_TOOL_POLICIES | {"charge": charge},
        }
        return own | settings


@contextlib.asynccontextmanager
async def audited_http(deeds: Path, *options: str) -> AsyncIterator[AuditedHttpProcess]:
    """Run an HTTP server that writes down what it does, until the block ends."""
    async with _announcing("servers.audited_http", str(deeds), *options) as port:
        yield AuditedHttpProcess(port, deeds)


@dataclass(frozen=True, slots=True)
class ListingsProcess:
    """A process with many HTTP servers, each of which lists what its file says."""

    port: int
    directory: Path

    def entry(self, name: str, **settings: Any) -> dict[str, Any]:
        """The configuration of one of its servers."""
        return {"url": f"http://127.0.0.1:{self.port}/{name}", "transport": "streamable-http"} | settings

    def put(self, name: str, tools: Iterable[bytes]) -> None:
        """From now on this is what the server lists: definitions as they are to be sent, JSON or not."""
        # In one step, so that no reader sees half of it.
        new = self.directory / f"{name}.new"
        new.write_bytes(b"[" + b",".join(tools) + b"]")
        new.replace(self.directory / f"{name}.json")


@contextlib.asynccontextmanager
async def listings_http(directory: Path, *options: str) -> AsyncIterator[ListingsProcess]:
    """Run a shelf of servers until the block ends; it serves every file that is put on it."""
    directory.mkdir(exist_ok=True)
    async with _announcing("servers.listings_http", str(directory), *options) as port:
        yield ListingsProcess(port, directory)


@contextlib.asynccontextmanager
async def _announcing(module: str, *options: str) -> AsyncIterator[int]:
    """Run a server that prints its port first."""
    child = await asyncio.create_subprocess_exec(
        *server_command(module, *options, site=True),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
    )
    assert child.stdout
    try:
        async with asyncio.timeout(15):
            port = int(json.loads(await child.stdout.readline())["port"])
        yield port
    finally:
        child.kill()
        await child.wait()
