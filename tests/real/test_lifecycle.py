"""Upstreams may die and the gateway may be killed: calls work again soon, and nothing is left behind."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult

from testkit.gateway_process import GatewayProcess, free_port, running_gateway
from testkit.parts import Parts
from testkit.procfs import descendants, still_alive
from testkit.upstreams import (
    SERVERS,
    configuration,
    era_command,
    era_server,
    lines_of,
    listening,
    listing_command,
    plain_environment,
    stdio_entry,
)
from testkit.waiting import eventually, wait_until
from tests.real.mcp_clients import McpClient, stdio_gateway_command, words
from tests.real.source_text_clients import stdio_client

START_SECONDS = 30.0
# "Within seconds": an SDK server alone takes one or two to start on a busy machine.
RECOVERY_SECONDS = 8.0
NOTICE_SECONDS = 10.0
Start = Callable[..., GatewayProcess]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_killed_child_fails_its_calls_and_is_replaced(
    start_gateway: Start, tmp_path: Path, era: str
) -> None:
    journal = tmp_path / "journal"
    gateway = start_gateway(
        configuration({"one": stdio_entry(era_command(era, journal))}), start_seconds=START_SECONDS
    )
    gateway.wait_until_ready("one", seconds=START_SECONDS)
    mcp_client = McpClient(gateway.url, era)
    async with mcp_client.client:
        orders = {"text": "victim", "until": str(tmp_path / "never")}
        running = asyncio.create_task(mcp_client.client.call_tool("one_hold", orders))
        await eventually(
            lambda: "started victim" in lines_of(journal), NOTICE_SECONDS, "the call has started"
        )

        os.kill(gateway.servers()["one"]["pid"], signal.SIGKILL)

        async with asyncio.timeout(2):
            lost = await running
        assert lost.is_error
        assert problem(lost)["code"] == "NETWORK_ERROR"
        assert problem(lost)["effect"] == "unknown"
        await works_again(mcp_client, "one_echo", {"text": "back"}, "back")
        assert gateway.servers()["one"]["restarts"] == 1


def remote_server(kind: str, parts: Parts, place: Path, port: int) -> AbstractContextManager[Any]:
    if kind == "sse":
        return listening([str(parts.node), str(parts.npm_bin("mcp-server-everything")), "sse"], port)
    return era_server(kind, place / "journal", port=port)


@pytest.mark.parametrize("kind", ["legacy", "modern", "sse"])
async def test_a_remote_server_that_was_restarted_is_found_again(
    start_gateway: Start, parts: Parts, tmp_path: Path, kind: str
) -> None:
    port = free_port()
    tool, arguments = ("echo", {"text": "hello"}) if kind != "sse" else ("echo", {"message": "hello"})
    entry = {"url": f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"}
    entry |= {"transport": "sse"} if kind == "sse" else {}
    run = partial(remote_server, kind, parts, tmp_path, port)
    with ExitStack() as first_life:
        first_life.enter_context(run())
        gateway = start_gateway(configuration({"far": entry}), start_seconds=START_SECONDS)
        gateway.wait_until_ready("far", seconds=START_SECONDS)
        mcp_client = McpClient(gateway.url, "modern")
        async with mcp_client.client:
            greeting = words(await mcp_client.client.call_tool(f"far_{tool}", arguments))
            first_life.close()
            with run():
                await works_again(mcp_client, f"far_{tool}", arguments, greeting)


async def test_a_call_to_a_server_that_is_down_fails_at_once_and_says_so(
    start_gateway: Start, tmp_path: Path
) -> None:
    with era_server("legacy", tmp_path / "journal") as url:
        gateway = start_gateway(configuration({"far": {"url": url}}), start_seconds=START_SECONDS)
        gateway.wait_until_ready("far", seconds=START_SECONDS)
    mcp_client = McpClient(gateway.url, "modern")
    async with mcp_client.client, asyncio.timeout(5):
        failed = await mcp_client.client.call_tool("far_echo", {"text": "hello"})

    assert failed.is_error
    assert problem(failed)["code"] in ("CONNECTION_ERROR", "TEMPORARY_FAILURE")
    assert problem(failed)["effect"] == "none"
    assert problem(failed)["retryable"]


async def works_again(mcp_client: McpClient, tool: str, arguments: dict[str, Any], expected: str) -> None:
    """The call succeeds soon, and until then it fails in a way that invites another attempt."""
    give_up_at = time.monotonic() + RECOVERY_SECONDS
    while True:
        result = await mcp_client.client.call_tool(tool, arguments)
        if not result.is_error:
            break
        assert problem(result)["retryable"], result
        assert time.monotonic() < give_up_at, f"still failing after {RECOVERY_SECONDS:g} s: {result}"
        await asyncio.sleep(0.05)
    assert words(result) == expected


def problem(result: CallToolResult) -> dict[str, Any]:
    assert result.meta is not None, result
    error: dict[str, Any] = result.meta["io.headgate/error"]
    return error


@pytest.fixture
def config_with_children(tmp_path: Path) -> dict[str, Any]:
    """A plain server, one behind a shell as npx would start it, and one that no polite request ends."""
    (tmp_path / "listing.json").write_text('{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}')
    replay = listing_command("config_with_children", tmp_path / "listing.json")
    shell = ["/bin/sh", "-c", '"$@"; exit 0', "sh", *replay]
    stubborn = ["/bin/sh", str(SERVERS / "stubborn.sh"), *replay]
    return configuration(
        {"plain": stdio_entry(replay), "shell": stdio_entry(shell), "stubborn": stdio_entry(stubborn)}
    )


def test_a_gateway_that_is_killed_leaves_no_process_behind(
    config_with_children: dict[str, Any], tmp_path: Path
) -> None:
    with running_gateway(config_with_children, tmp_path / "gateway") as gateway:
        gateway.wait_until_ready()
        family = descendants(gateway.pid)
        # One plain; a shell and its server; a stubborn shell, its server and its two companions.
        assert len(family) >= 6

        gateway.kill()

        wait_until(lambda: not still_alive(family), NOTICE_SECONDS, "no process is left")


def test_a_gateway_that_is_stopped_leaves_no_process_behind(
    config_with_children: dict[str, Any], tmp_path: Path
) -> None:
    with running_gateway(config_with_children, tmp_path / "gateway") as gateway:
        gateway.wait_until_ready()
        family = descendants(gateway.pid)

        assert gateway.stop() == 0

        wait_until(lambda: not still_alive(family), NOTICE_SECONDS, "no process is left")


def test_a_gateway_on_stdio_ends_with_its_input(config_with_children: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "headgate.json").write_text(json.dumps(config_with_children))
    command = stdio_gateway_command(tmp_path / "headgate.json", tmp_path / "data")
    with stdio_client(command, plain_environment()) as client:
        wait_until(lambda: "stubborn_t" in client.ask("tools/list", {}), START_SECONDS, "all are listed")
        family = descendants(client.pid)
        assert len(family) >= 6

        client.hang_up()

        wait_until(lambda: not still_alive(family | {client.pid}), NOTICE_SECONDS, "no process is left")


async def test_a_stopping_gateway_finishes_the_calls_that_run(start_gateway: Start, tmp_path: Path) -> None:
    journal, release = tmp_path / "journal", tmp_path / "release"
    gateway = start_gateway(
        configuration({"one": stdio_entry(era_command("legacy", journal))}), start_seconds=START_SECONDS
    )
    gateway.wait_until_ready("one", seconds=START_SECONDS)
    mcp_client = McpClient(gateway.url, "modern")
    async with mcp_client.client:
        # The SDK asks for the list after a result whose schema it does not know; then no answer would come.
        await mcp_client.tools()
        orders = {"text": "last", "until": str(release)}
        running = asyncio.create_task(mcp_client.client.call_tool("one_hold", orders))
        await eventually(lambda: "started last" in lines_of(journal), NOTICE_SECONDS, "the call has started")

        stopping = asyncio.create_task(asyncio.to_thread(gateway.stop))
        await eventually(lambda: not takes_calls(gateway), NOTICE_SECONDS, "the gateway takes no new calls")
        release.touch()

        assert words(await running) == "held last"
    assert await stopping == 0


def takes_calls(gateway: GatewayProcess) -> bool:
    try:
        return gateway.get("/ready", seconds=1.0).status == 200
    except OSError:
        return False
