"""Requests that carry a command: none of them may start a process (A26)."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from campaign.own_tools import ALL_LISTED, filled, own_tools
from campaign.trial import Trial, case
from headgate.server.guard import MCP_PATHS, SSE_PATHS
from testkit import procfs
from testkit.async_gateway_process import WORKER, AsyncGatewayProcess
from testkit.clients import http1
from testkit.clients.async_http import ACCEPT, Client
from testkit.misbehaving_upstreams import load
from testkit.waiting import eventually

_VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# Those that there are, and those under which other gateways test, import or change servers.
_PATHS = (
    *MCP_PATHS, *SSE_PATHS, "/messages", "/", "/health", "/ready", "/metrics", "/listing", "/config",
    "/servers", "/api/servers", "/api/v1/servers", "/v1/mcp/server", "/mcp-rest/test/connection",
    "/mcp-rest/test/tools/list",
    "/preview", "/import", "/test", "/admin", "/reload", "/settings", "/.well-known/mcp",
)  # fmt: skip
_METHODS = (
    "initialize", "server/discover", "ping", "tools/list", "tools/call", "prompts/list", "prompts/get",
    "resources/list", "resources/read", "resources/templates/list", "resources/subscribe",
    "completion/complete",
    "logging/setLevel", "subscriptions/listen", "tasks/get", "rmcp/chunk", "servers/add", "servers/test",
    "config/set", "config/import", "proxy/spawn", "notifications/initialized", "notifications/config",
)  # fmt: skip


def _entry(mark: Path) -> dict[str, Any]:
    """A server whose start leaves a mark."""
    program = f"open({str(mark)!r}, 'a').write('started')"
    return {"command": sys.executable, "args": ["-c", program], "transport": "stdio", "env": {"A26": "1"}}


def _bodies(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield entry
    yield {"mcpServers": {"evil": entry}}
    yield {"servers": [{"name": "evil", **entry}]}
    yield {"server": entry, "config": {"mcpServers": {"evil": entry}}, "approve": True}


@contextlib.asynccontextmanager
async def _starts_seen(gateway: AsyncGatewayProcess) -> AsyncIterator[dict[int, bytes]]:
    """The processes below the gateway that come with a command which was not there before."""
    seen: dict[int, bytes] = {}
    # A connection of its own to a server that is configured, for a client with other capabilities, is none.
    # A child has the command of the gateway until it becomes something else.
    known = {procfs.command(pid) for pid in (gateway.pid, *procfs.descendants(gateway.pid))}

    async def watch() -> None:
        while True:
            for pid in procfs.descendants(gateway.pid):
                command = procfs.command(pid)
                if command and command not in known and WORKER not in command:
                    seen[pid] = command
            await asyncio.sleep(0.005)

    task = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@case(
    "A26",
    "a command in the body, the query, the headers and the arguments of every route, method and own tool",
    "nothing but the configuration starts a process: spawns = 0",
    quick_seconds=60,
)
async def spawn_attempts(trial: Trial) -> None:
    """Only what the operator has written into the file is ever started."""
    mark = trial.directory / "a26-mark"
    entry = _entry(mark)
    async with trial.gateway({"load": load()}, settings=ALL_LISTED, spare_files=12, spare_lines=1) as gateway:
        async with _starts_seen(gateway) as seen:
            routes = await _try_routes(gateway, entry)
            methods = await _try_methods(gateway, entry)
            tools, called = await _try_tools(gateway, entry)
            spawns = max(len(seen), int(mark.exists()))
            trial.measure(
                "tried", f"{routes} requests on {len(_PATHS)} paths, {methods} messages, {called} calls"
            )
            trial.measure("own tools", len(tools))
            trial.measure("spawns", spawns)
            trial.check("own tools were found", len(tools) >= 10, sorted(tools))
            trial.check("spawns = 0", spawns == 0, f"{seen}, mark {mark.exists()}")
            trial.check("it is no server of the gateway's", set(await gateway.servers()) == {"load"})
        await _check_that_it_would_be_seen(trial, gateway, entry, mark)


async def _check_that_it_would_be_seen(
    trial: Trial, gateway: AsyncGatewayProcess, entry: dict[str, Any], mark: Path
) -> None:
    """The same entry in the file is started, which shows that a start would not go unnoticed."""
    path = gateway.log.parent / "headgate.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"mcpServers": config["mcpServers"] | {"named": entry}}))
    await eventually(mark.exists, 10, "the command that the configuration names to be started")
    trial.check("the configuration may", mark.exists())
    path.write_text(json.dumps(config))

    async def gone() -> bool:
        return set(await gateway.servers()) == {"load"}

    await eventually(gone, 10, "the entry to be removed")


async def _try_routes(gateway: AsyncGatewayProcess, entry: dict[str, Any]) -> int:
    tried = 0
    query = "?command=" + sys.executable.replace("/", "%2F") + "&args=-c"
    for path in _PATHS:
        for verb in _VERBS:
            for body in _bodies(entry):
                headers = {
                    "Content-Type": "application/json", "Accept": ACCEPT, "Connection": "close",
                    "X-Command": entry["command"], "Mcp-Param-Command": entry["command"],
                }  # fmt: skip
                request = http1.request(gateway.port, verb, path + query, headers, json.dumps(body).encode())
                await http1.converse(gateway.port, request, quiet_seconds=0.001, limit_seconds=0.3)
                tried += 1
                if path in SSE_PATHS:
                    break
    return tried


async def _try_methods(gateway: AsyncGatewayProcess, entry: dict[str, Any]) -> int:
    tried = 0
    for modern in (True, False):
        caller = Client(gateway.port, modern=modern, capabilities={"experimental": {"servers": entry}})
        await caller.open()
        for method in _METHODS:
            if method == "subscriptions/listen":
                continue
            for body in _bodies(entry):
                params = {
                    **body,
                    "name": "evil",
                    "uri": entry["command"],
                    "_meta": {"io.headgate/server": entry},
                }
                with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                    async with asyncio.timeout(5):
                        await caller.request(method, params)
                tried += 1
        caller.close()
    return tried


async def _try_tools(
    gateway: AsyncGatewayProcess, entry: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], int]:
    tools, called = await own_tools(gateway, ["load"]), 0
    caller = Client(gateway.port, modern=True)
    command = json.dumps(entry)
    for name, definition in tools.items():
        own = filled(definition, command)
        nested = {key: entry if isinstance(value, dict) else value for key, value in own.items()}
        for arguments in (own, nested, own | entry, *_bodies(entry), {"name": "evil", "args": entry}):
            async with asyncio.timeout(15):
                await caller.call(name, arguments)
            called += 1
    caller.close()
    return tools, called
