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

from tests.gate import Gate, running_gate
from tests.real.upstreams import configuration, era_command, lines_of, replay_command, stdio_entry
from tests.real.visitors import Visitor, words
from tests.waiting import eventually

START_SECONDS = 30.0
NOTICE_SECONDS = 10.0
Start = Callable[..., Gate]
SERVERS = ("stays", "changes", "goes")


@dataclass(frozen=True)
class House:
    """A gate whose configuration the test edits."""

    gate: Gate
    place: Path

    def entry(self, era: str, name: str) -> dict[str, Any]:
        return stdio_entry(era_command(era, self.journal(name)))

    def journal(self, name: str) -> Path:
        return self.place / f"{name}.journal"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    servers = {
        "stays": stdio_entry(era_command("legacy", tmp_path / "stays.journal")),
        "changes": stdio_entry(era_command("legacy", tmp_path / "changes.journal")),
        "goes": stdio_entry(era_command("modern", tmp_path / "goes.journal")),
    }
    with running_gate(configuration(servers), tmp_path / "gate", start_seconds=START_SECONDS) as gate:
        gate.wait_until_ready(seconds=START_SECONDS)
        yield House(gate, tmp_path)


async def test_servers_come_change_and_go_without_dropping_a_call(house: House) -> None:
    visitors = [Visitor(house.gate.url, "legacy"), Visitor(house.gate.url, "modern")]
    async with AsyncExitStack() as stack:
        for visitor in visitors:
            await stack.enter_async_context(visitor.client)
            await stack.enter_async_context(visitor.watching())
        running = [start_hold(visitor, server, house) for visitor in visitors for server in SERVERS]
        await eventually(
            lambda: calls_started(house) == len(running), NOTICE_SECONDS, "all calls have started"
        )

        house.gate.write_config(
            configuration(
                {
                    "stays": house.entry("legacy", "stays"),
                    "changes": house.entry("legacy", "changed"),
                    "comes": house.entry("modern", "comes"),
                }
            )
        )

        for visitor in visitors:
            await visitor.wait_for_tool("comes_echo")
            await wait_until_gone(visitor, "goes_echo")
        assert not any(call.done() for call in running), "a call ended with the edit"
        (house.place / "release").touch()
        held = [words(result) for result in await asyncio.gather(*running)]
        assert held == [f"held {server} {visitor.era}" for visitor in visitors for server in SERVERS]
        await check_new_servers(house, visitors)


def start_hold(visitor: Visitor, server: str, house: House) -> asyncio.Task[CallToolResult]:
    orders = {"text": f"{server} {visitor.era}", "until": str(house.place / "release")}
    return asyncio.create_task(visitor.client.call_tool(f"{server}_hold", orders))


def calls_started(house: House) -> int:
    lines = [line for server in SERVERS for line in lines_of(house.journal(server))]
    return sum(line.startswith("started ") for line in lines)


async def wait_until_gone(visitor: Visitor, tool: str) -> None:
    async with asyncio.timeout(NOTICE_SECONDS):
        while tool in await visitor.tools():
            await visitor.news.get()


async def check_new_servers(house: House, visitors: list[Visitor]) -> None:
    (house.place / "now").touch()
    for visitor in visitors:
        assert words(await visitor.client.call_tool("comes_echo", {"text": "here"})) == "here"
        orders = {"text": f"again {visitor.era}", "until": str(house.place / "now")}
        assert words(await visitor.client.call_tool("changes_hold", orders)) == f"held again {visitor.era}"
        gone = await visitor.client.call_tool("goes_echo", {"text": "here"})
        assert gone.is_error
        assert gone.meta is not None
        assert gone.meta["io.headgate/error"]["code"] == "TOOL_NOT_FOUND"
    assert "finished again legacy" in lines_of(house.journal("changed"))
    assert "finished again legacy" not in lines_of(house.journal("changes"))


BROKEN = {
    "half a file": '{"mcpServers": {"old": {"command": "/bin/',
    "an empty file": "",
    "a list": "[]",
    "a server without a command": '{"mcpServers": {"old": {"args": ["no", "command"]}}}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_edit_keeps_the_old_configuration(gateway: Start, tmp_path: Path, text: str) -> None:
    (tmp_path / "listing.json").write_text('{"tools":[{"name":"tool","inputSchema":{"type":"object"}}]}')
    entry = stdio_entry(replay_command("label", tmp_path / "listing.json"))
    gate = gateway(configuration({"old": entry}))
    gate.wait_until_ready("old")
    visitor = Visitor(gate.url, "modern")
    async with visitor.client, visitor.watching():
        before = list(await visitor.tools())

        gate.config_path.write_text(text)
        await eventually(lambda: bool(complaints(gate)), NOTICE_SECONDS, "the edit is refused")

        assert list(await visitor.tools()) == before
        assert not (await visitor.client.call_tool("old_tool", {})).is_error
        gate.write_config(configuration({"old": entry, "new": entry}))
        await visitor.wait_for_tool("new_tool")


def complaints(gate: Gate) -> list[str]:
    """What the gate has logged about its configuration file at level warning or above."""
    entries = [json.loads(line) for line in gate.log().splitlines() if line.startswith("{")]
    serious = [json.dumps(entry) for entry in entries if entry["level"].lower() in ("warning", "error")]
    return [entry for entry in serious if gate.config_path.name in entry]
