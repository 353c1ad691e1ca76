"""Starts the servers that stand behind the gateway in these tests."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from testkit.gateway_process import HOST, free_port
from testkit.parts import ROOT
from testkit.waiting import wait_until

TESTKIT = ROOT / "testkit"
SERVERS = TESTKIT / "servers"
START_SECONDS = 20.0
STOP_SECONDS = 10.0


def configuration(servers: Mapping[str, Mapping[str, Any]], **settings: Any) -> dict[str, Any]:
    """A configuration of the gateway that lists every tool of the servers in full."""
    plain = {"listing": "full", "listResultTools": False}
    return {"mcpServers": dict(servers), "proxySettings": plain | settings}


def server_command(module: str, *arguments: object, site: bool = False) -> list[str]:
    """The command of a server of the testkit; one without dependencies starts faster without site."""
    options = [] if site else ["-IS"]
    return [sys.executable, *options, str(TESTKIT), module, *map(str, arguments)]


def era_command(era: str, journal: Path) -> list[str]:
    """The command of a server of one era, on stdio unless more is said."""
    return server_command("sdk_servers.one_era", "--era", era, "--journal", journal, site=True)


def whole_command(era: str, label: str, journal: Path, *more: str) -> list[str]:
    """The command of a server of one era that has everything."""
    options = ("--era", era, "--label", label, "--journal", journal, *more)
    return server_command("sdk_servers.full", *options, site=True)


def stdio_entry(command: list[str], **more: Any) -> dict[str, Any]:
    """The configuration of a server that the gateway starts as its child."""
    return {"command": command[0], "args": command[1:]} | more


def listing_command(label: str, listing: Path) -> list[str]:
    """The command of a server that lists what a file says and answers with its label and the tool's name."""
    return server_command("servers.listing", listing, "--label", label)


def changing_listing_command(label: str, listing: Path, *wait_for: Path) -> list[str]:
    """The command of one whose list may change, and which may start only once a file exists."""
    waits = [option for file in wait_for for option in ("--wait-for", file)]
    return [*listing_command(label, listing), *map(str, ("--answer", "line", "--changes", *waits))]


def echo_listing_command(listing: Path) -> list[str]:
    """The command of one that answers a call with its arguments, or refuses them."""
    return server_command("servers.listing", listing, "--answer", "arguments")


@contextmanager
def listings_over_http(directory: Path) -> Iterator[str]:
    """Run one server that lists each `NAME.json` of a directory at `/NAME`, and give its origin."""
    with announcing(server_command("servers.listing", directory, "--http")) as port:
        yield f"http://{HOST}:{port}"


def tool(name: str, description: str) -> dict[str, Any]:
    """The definition of a tool that takes a text."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": description, "inputSchema": schema}


def write_listing(path: Path, tools: Sequence[Mapping[str, Any]]) -> None:
    """Have a server list these tools, from its next listing on."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({"tools": tools}))
    draft.replace(path)


def era_server(era: str, journal: Path, *, port: int = 0) -> AbstractContextManager[str]:
    """Run a server of one era on streamable HTTP and give its address."""
    return http_server(era_command(era, journal), port=port)


@contextmanager
def http_server(command: list[str], *, port: int = 0) -> Iterator[str]:
    """Run one of our servers on streamable HTTP and give its address."""
    with announcing([*command, "--transport", "http", "--port", str(port)]) as found:
        yield f"http://{HOST}:{found}/mcp"


@contextmanager
def announcing(command: list[str]) -> Iterator[int]:
    """Run a server that prints its port first, and give the port."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            yield int(json.loads(process.stdout.readline())["port"])
        finally:
            # Killed, not asked: a server that waits for its streams to end would hold up the tests.
            process.kill()
            process.wait(STOP_SECONDS)


@contextmanager
def listening(command: list[str], port: int | None = None) -> Iterator[str]:
    """Run a server that takes its port from the environment, and give its origin once it accepts."""
    port = port or free_port()
    with subprocess.Popen(
        command,
        env=plain_environment(PORT=str(port)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            wait_until(lambda: accepts(port), START_SECONDS, f"{command[-1]} listens")
            yield f"http://{HOST}:{port}"
        finally:
            process.kill()
            process.wait(STOP_SECONDS)


def accepts(port: int) -> bool:
    """Return whether the port has a listener."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def lines_of(journal: Path) -> list[str]:
    """What a server has written down so far."""
    return journal.read_text().splitlines() if journal.exists() else []


def plain_environment(**more: str) -> dict[str, str]:
    """The environment that real servers get without a configured one."""
    return {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ} | more
