"""An edit of the configuration takes effect while calls run, and a broken one changes nothing."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult

from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration, era_command, lines_of, listing_command, stdio_entry
from testkit.waiting import eventually
from tests.real.mcp_clients import McpClient, words

START_SECONDS = 30.0
NOTICE_SECONDS = 10.0
Start = Callable[..., GatewayProcess]
SERVERS = ("stays", "changes", "goes")


@dataclass(frozen=True)
class ReloadHarness:
    """A gateway whose configuration the test edits."""

    gateway: GatewayProcess
    place: Path

    def entry(self, era: str, name: str) -> dict[str, Any]:
        return stdio_entry(era_command(era, self.journal(name)))

    def journal(self, name: str) -> Path:
        return self.place / f"{name}.journal"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ReloadHarness]:
    servers = {
        "stays": stdio_entry(era_command("legacy", tmp_path / "stays.journal")),
        "changes": stdio_entry(era_command("legacy", tmp_path / "changes.journal")),
        "goes": stdio_entry(era_command("modern", tmp_path / "goes.journal")),
    }
    with running_gateway(
        configuration(servers), tmp_path / "gateway", start_seconds=START_SECONDS
    ) as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        yield ReloadHarness(gateway, tmp_path)


async def test_servers_come_change_and_go_without_dropping_a_call(harness: ReloadHarness) -> None:
    visitors = [McpClient(harness.gateway.url, "legacy"), McpClient(harness.gateway.url, "modern")]
    async with AsyncExitStack() as stack:
        for mcp_client in visitors:
            await stack.enter_async_context(mcp_client.client)
            await stack.enter_async_context(mcp_client.watching())
        running = [start_hold(mcp_client, server, harness) for mcp_client in visitors for server in SERVERS]
        await eventually(
            lambda: calls_started(harness) == len(running), NOTICE_SECONDS, "all calls have started"
        )

        harness.gateway.write_config(
            configuration(
                {
                    "stays": harness.entry("legacy", "stays"),
                    "changes": harness.entry("legacy", "changed"),
                    "comes": harness.entry("modern", "comes"),
                }
            )
        )

        for mcp_client in visitors:
            await mcp_client.wait_for_tool("comes_echo")
            await wait_until_gone(mcp_client, "goes_echo")
        assert not any(call.done() for call in running), "a call ended with the edit"
        (harness.place / "release").touch()
        held = [words(result) for result in await asyncio.gather(*running)]
        assert held == [f"held {server} {mcp_client.era}" for mcp_client in visitors for server in SERVERS]
        await check_new_servers(harness, visitors)


def start_hold(mcp_client: McpClient, server: str, harness: ReloadHarness) -> asyncio.Task[CallToolResult]:
    orders = {"text": f"{server} {mcp_client.era}", "until": str(harness.place / "release")}
    return asyncio.create_task(mcp_client.client.call_tool(f"{server}_hold", orders))


def calls_started(harness: ReloadHarness) -> int:
    lines = [line for server in SERVERS for line in lines_of(harness.journal(server))]
    return sum(line.startswith("started ") for line in lines)


async def wait_until_gone(mcp_client: McpClient, tool: str) -> None:
    async with asyncio.timeout(NOTICE_SECONDS):
        while tool in await mcp_client.tools():
            await mcp_client.news.get()


async def check_new_servers(harness: ReloadHarness, visitors: list[McpClient]) -> None:
    (harness.place / "now").touch()
    for mcp_client in visitors:
        assert words(await mcp_client.client.call_tool("comes_echo", {"text": "here"})) == "here"
        orders = {"text": f"again {mcp_client.era}", "until": str(harness.place / "now")}
        assert (
            words(await mcp_client.client.call_tool("changes_hold", orders)) == f"held again {mcp_client.era}"
        )
        gone = await mcp_client.client.call_tool("goes_echo", {"text": "here"})
        assert gone.is_error
        assert gone.meta is not None
        assert gone.meta["io.headgate/error"]["code"] == "TOOL_NOT_FOUND"
    assert "finished again legacy" in lines_of(harness.journal("changed"))
    assert "finished again legacy" not in lines_of(harness.journal("changes"))


BROKEN = {
    "half a file": '{"mcpServers": {"old": {"command": "/bin/',
    "an empty file": "",
    "a list": "[]",
    "a server without a command": '{"mcpServers": {"old": {"args": ["no", "command"]}}}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_edit_keeps_the_old_configuration(
    start_gateway: Start, tmp_path: Path, text: str
) -> None:
    (tmp_path / "listing.json").write_text('{"tools":[{"name":"tool","inputSchema":{"type":"object"}}]}')
    entry = stdio_entry(listing_command("label", tmp_path / "listing.json"))
    gateway = start_gateway(configuration({"old": entry}))
    gateway.wait_until_ready("old")
    mcp_client = McpClient(gateway.url, "modern")
    async with mcp_client.client, mcp_client.watching():
        before = list(await mcp_client.tools())

        gateway.config_path.write_text(text)
        await eventually(lambda: bool(complaints(gateway)), NOTICE_SECONDS, "the edit is refused")

        assert list(await mcp_client.tools()) == before
        assert not (await mcp_client.client.call_tool("old_tool", {})).is_error
        gateway.write_config(configuration({"old": entry, "new": entry}))
        await mcp_client.wait_for_tool("new_tool")


def complaints(gateway: GatewayProcess) -> list[str]:
    """What the gateway has logged about its configuration file at level warning or above."""
    entries = [json.loads(line) for line in gateway.log().splitlines() if line.startswith("{")]
    serious = [json.dumps(entry) for entry in entries if entry["level"].lower() in ("warning", "error")]
    return [entry for entry in serious if gateway.config_path.name in entry]
