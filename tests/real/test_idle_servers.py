"""A cold server of the SDK runs only while it is used, and one that never starts is left alone."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.procfs import still_alive
from testkit.upstreams import configuration, era_command, lines_of, stdio_entry
from testkit.waiting import wait_until
from tests.real.mcp_clients import McpClient, words

START_SECONDS = 30.0
NOTICE_SECONDS = 10.0
IDLE_SECONDS = 0.5
CLIENTS = 8
Start = Callable[..., GatewayProcess]


def noted(command: list[str], spawned: Path) -> list[str]:
    """The command, which writes down each process that it becomes."""
    return ["/bin/sh", "-c", 'echo $$ >> "$0"; exec "$@"', str(spawned), *command]


def wait_until_in(gateway: GatewayProcess, server: str, state: str) -> None:
    wait_until(lambda: gateway.servers()[server]["state"] == state, START_SECONDS, f"{server} is {state}")


async def test_a_cold_server_is_started_once_by_many_and_stopped_when_they_are_done(tmp_path: Path) -> None:
    spawned = tmp_path / "spawned"
    command = noted(era_command("legacy", tmp_path / "journal"), spawned)
    config = configuration({"one": stdio_entry(command, cold=True, idleTimeout=IDLE_SECONDS)})
    with running_gateway(config, tmp_path / "gateway", start_seconds=START_SECONDS) as gateway:
        # Nothing is known of it, so it is started to tell its tools.
        wait_until_in(gateway, "one", "idle")
        assert len(lines_of(spawned)) == 1
    with running_gateway(config, tmp_path / "gateway", start_seconds=START_SECONDS) as gateway:
        assert gateway.servers()["one"]["state"] == "idle"
        assert gateway.get("/ready").status == 200
        assert "stopped until it is used" in gateway.get("/").body.decode()
        await visit_at_once(gateway)
        assert len(lines_of(spawned)) == 2, "all of them have started it once"
        wait_until_in(gateway, "one", "idle")
        wait_until(
            lambda: not still_alive({int(pid) for pid in lines_of(spawned)}), NOTICE_SECONDS, "it is gone"
        )
        assert "restarts" not in gateway.servers()["one"], "it was stopped on purpose"


async def visit_at_once(gateway: GatewayProcess) -> None:
    async def visit(number: int) -> None:
        mcp_client = McpClient(gateway.url, ("legacy", "modern")[number % 2])
        async with mcp_client.client:
            assert "one_echo" in {tool.name for tool in (await mcp_client.client.list_tools()).tools}
            answer = await mcp_client.client.call_tool("one_echo", {"text": f"client {number}"})
            assert words(answer) == f"client {number}"

    await asyncio.gather(*(visit(number) for number in range(CLIENTS)))


async def test_a_server_that_never_starts_is_left_alone_and_hurts_no_other(
    start_gateway: Start, tmp_path: Path
) -> None:
    spawned = tmp_path / "spawned"
    broken: list[str] = noted([sys.executable, "-S", "-c", "raise SystemExit('no licence')"], spawned)
    servers: dict[str, dict[str, Any]] = {
        "broken": stdio_entry(broken, maxRestarts=3),
        "example": {"builtin": "example"},
    }
    gateway = start_gateway(configuration(servers), start_seconds=START_SECONDS)
    wait_until_in(gateway, "broken", "failed")
    assert "no licence" in gateway.servers()["broken"]["last_error"]
    assert len(lines_of(spawned)) == 3
    mcp_client = McpClient(gateway.url, "modern")
    async with mcp_client.client:
        assert not (await mcp_client.client.call_tool("example_wait", {"seconds": 0})).is_error
    assert len(lines_of(spawned)) == 3
