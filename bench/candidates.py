"""Who is measured: how each candidate is started in front of an upstream, and how a client talks to it."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from bench.load.plan import Era
from bench.peers.install import node_script, python_of
from bench.process import ROOT, running
from testkit.gateway_process import free_port

UpstreamKind = Literal["stdio", "http"]


@dataclass(frozen=True, slots=True)
class Target:
    """The upstream that a candidate is put in front of."""

    kind: UpstreamKind
    command: tuple[str, ...] = ()
    url: str = ""


# Given the target and the port to listen on: the command line. May write files into the directory.
Command = Callable[[Target, int, Path], list[str]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One gateway in one way of running it."""

    key: str
    name: str
    command: Command
    era: Era
    upstreams: tuple[UpstreamKind, ...]


@dataclass(frozen=True, slots=True)
class Gateway:
    """A candidate that runs."""

    candidate: Candidate
    pid: int
    port: int


def stdio_upstream(tools: int = 10) -> Target:
    """The stdio upstream, started by the gateway in front of it."""
    command = (sys.executable, "-m", "testkit.servers.prepared_stdio", "--tools", str(tools))
    return Target("stdio", command=command)


def http_upstream_command(port: int, tools: int = 10) -> list[str]:
    """How to start the HTTP upstream."""
    return [sys.executable, "-m", "testkit.servers.prepared_http", "--port", str(port), "--tools", str(tools)]


@contextmanager
def started(candidate: Candidate, target: Target) -> Iterator[Gateway]:
    """The candidate's process; it may not listen yet."""
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as home,
        running(candidate.command(target, port, Path(home))) as pid,
    ):
        yield Gateway(candidate, pid, port)


def headgate_config(targets: dict[str, Target]) -> str:
    """The configuration file for Headgate in front of these upstreams."""
    servers = {
        name: {"url": target.url}
        if target.url
        else {"command": target.command[0], "args": target.command[1:], "cwd": str(ROOT)}
        for name, target in targets.items()
    }
    # Results of every size pass whole, as they do at the peers, and are looked at all the same.
    return json.dumps({"mcpServers": servers, "proxySettings": {"maxResponseSize": 100_000_000}})


def headgate_command(config: str, port: int, home: Path, python: str = sys.executable) -> list[str]:
    """Headgate's own command line, everything on, in the full listing so that tools are found by name."""
    path = home / "headgate.json"
    path.write_text(config)
    command = [python, "-m", "headgate", "serve", "--config", str(path), "--transport", "http"]
    return [*command, "--port", str(port), "--data-dir", str(home / "data"), "--listing", "full"]


def _headgate(target: Target, port: int, home: Path) -> list[str]:
    return headgate_command(headgate_config({"up": target}), port, home)


def _headgate_before(target: Target, port: int, home: Path) -> list[str]:
    return headgate_command(headgate_config({"up": target}), port, home, BEFORE)


def _forwarder(target: Target, port: int, home: Path) -> list[str]:
    return [sys.executable, "-m", "bench.forwarder", "--port", str(port), *target.command]


def fastmcp(*options: str) -> Command:
    """FastMCP's proxy in one of its ways."""

    def command(target: Target, port: int, home: Path) -> list[str]:
        script = str(ROOT / "bench" / "peers" / "fastmcp_proxy.py")
        base = [str(python_of("fastmcp")), script, "--port", str(port), *options]
        return [*base, "--url", target.url] if target.url else [*base, *target.command]

    return command


def pypi_mcp_proxy(*options: str) -> Command:
    """PyPI's mcp-proxy, which exposes a stdio server."""

    def command(target: Target, port: int, home: Path) -> list[str]:
        base = [str(python_of("mcp-proxy")), "-m", "mcp_proxy", "--port", str(port)]
        return [*base, "--pass-environment", "--log-level", "ERROR", *options, "--", *target.command]

    return command


def npm_mcp_proxy(*options: str) -> Command:
    """npm's mcp-proxy, which exposes a stdio server."""

    def command(target: Target, port: int, home: Path) -> list[str]:
        base = [*node_script(), "--host", "127.0.0.1", "--port", str(port), "--server", "stream"]
        return [*base, *options, "--", *target.command]

    return command


HEADGATE: Final = Candidate("h", "headgate, legacy client", _headgate, "legacy", ("stdio", "http"))
HEADGATE_MODERN: Final = Candidate("m", "headgate, modern client", _headgate, "modern", ("stdio", "http"))
FORWARDER: Final = Candidate("b", "bare forwarder", _forwarder, "none", ("stdio",))
# The fastest of each peer's ways, as section `ways` finds them.
FASTMCP: Final = Candidate(
    "c", "FastMCP proxy", fastmcp("--way", "connected", "--json"), "legacy", ("stdio", "http")
)
PYPI: Final = Candidate("d", "PyPI mcp-proxy", pypi_mcp_proxy(), "legacy", ("stdio",))
NPM: Final = Candidate("e", "npm mcp-proxy", npm_mcp_proxy("--no-eventStore"), "legacy", ("stdio",))

# The Python of another checkout's environment, to compare two versions of Headgate in one run.
BEFORE: Final = os.environ.get("HEADGATE_BEFORE", "")
HEADGATE_BEFORE: Final = (
    Candidate("o", "headgate before, legacy client", _headgate_before, "legacy", ("stdio", "http")),
    Candidate("p", "headgate before, modern client", _headgate_before, "modern", ("stdio", "http")),
)
CANDIDATES: Final = (
    FORWARDER,
    FASTMCP,
    PYPI,
    NPM,
    HEADGATE,
    HEADGATE_MODERN,
    *(HEADGATE_BEFORE if BEFORE else ()),
)
PEERS: Final = (FASTMCP, PYPI, NPM)
