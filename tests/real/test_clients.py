"""The clients that people use list and call tools through every front that they speak."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import LEGACY, MODERN
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.parts import Parts
from testkit.upstreams import configuration, plain_environment, stdio_entry
from tests.real.mcp_clients import stdio_gateway_command
from tests.real.sdk_scripts import run, run_script
from tests.real.source_text_clients import stdio_client

START_SECONDS = 30.0
GREETING = 'grüße \\ "quoted" 😀'


@dataclass(frozen=True)
class Cell:
    """One client, the front that it takes, the era that it asks for and the versions that it may get."""

    client: str
    front: str
    era: str
    protocols: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.client}-{self.front}-{self.era}"


def cells() -> Iterator[Cell]:
    for client in ("python-2", "typescript-2", "inspector"):
        for front in ("stdio", "http"):
            yield Cell(client, front, "legacy", (LEGACY,))
            yield Cell(client, front, "modern", (MODERN,))
        yield Cell(client, "sse", "legacy", (LEGACY,))
    for client in ("python-2", "typescript-2"):
        yield Cell(client, "stdio", "auto", (MODERN,))
        yield Cell(client, "http", "auto", (MODERN,))
        # The modern era knows no such transport: a client that asks for it may be led back.
        yield Cell(client, "sse", "auto", (LEGACY, MODERN))
    for client in ("python-1", "typescript-1"):
        for front in ("stdio", "http", "sse"):
            yield Cell(client, front, "legacy", (LEGACY,))


@pytest.fixture(scope="module")
def everything(parts: Parts) -> list[str]:
    """The command of the npm server that is behind the gateway."""
    return [str(parts.node), str(parts.npm_bin("mcp-server-everything")), "stdio"]


@pytest.fixture(scope="module")
def gateway(everything: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    config = configuration({"everything": stdio_entry(everything), "example": {"builtin": "example"}})
    with running_gateway(config, tmp_path_factory.mktemp("clients"), start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        yield gateway


@pytest.fixture(scope="module")
def names(everything: list[str]) -> set[str]:
    """The public names of the server's tools, for a client that declares no capability."""
    with stdio_client(everything, plain_environment()) as direct:
        tools = json.loads(direct.ask("tools/list", {}))["tools"]
    return {f"everything_{tool['name'].replace('-', '_')}" for tool in tools}


@pytest.mark.parametrize("cell", list(cells()), ids=str)
def test_a_real_client_lists_and_calls(
    cell: Cell, gateway: GatewayProcess, parts: Parts, names: set[str], tmp_path: Path
) -> None:
    plan = {"tool": "everything_echo", "arguments": {"message": GREETING}, "era": cell.era}
    plan |= {"front": cell.front} | address(gateway, cell.front, tmp_path)

    report = (
        inspect(plan, parts, tmp_path) if cell.client == "inspector" else run_script(cell.client, plan, parts)
    )

    assert report.get("protocol", cell.protocols[0]) in cell.protocols
    listed = {tool["name"] for tool in report["tools"]}
    assert names <= listed
    assert any(name.startswith("example_") for name in listed)
    assert [content["text"] for content in report["result"]["content"]] == [f"Echo: {GREETING}"]
    assert not report["result"].get("isError")


def address(gateway: GatewayProcess, front: str, place: Path) -> dict[str, Any]:
    if front == "stdio":
        return {
            "command": stdio_gateway_command(gateway.config_path, place / "data"),
            "env": plain_environment(),
        }
    return {"url": gateway.sse_url if front == "sse" else gateway.url}


def inspect(plan: dict[str, Any], parts: Parts, place: Path) -> dict[str, Any]:
    """Ask twice, because the Inspector's command line asks one thing at a time."""
    http = "sse" if plan["front"] == "sse" else "streamable-http"
    entry = stdio_entry(plan["command"]) if "command" in plan else {"url": plan["url"], "type": http}
    (place / "servers.json").write_text(json.dumps({"mcpServers": {"gateway": entry}}))
    command = [str(parts.node24), str(parts.npm_bin("mcp-inspector")), "--cli", "--format", "json", "--quiet"]
    command += ["--config", str(place / "servers.json"), "--server", "gateway", "--protocol-era", plan["era"]]
    # Its own home, because it keeps settings and tokens there.
    environment = os.environ | {"HOME": str(place)}
    listing = json.loads(run([*command, "--method", "tools/list"], environment))
    arguments = ["--tool-name", plan["tool"], "--tool-args-json", json.dumps(plan["arguments"])]
    outcome = json.loads(run([*command, "--method", "tools/call", *arguments], environment))
    return {"tools": listing["result"]["tools"], "result": outcome["result"]}
