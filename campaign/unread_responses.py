"""Clients that send many requests and read no response, pipelined or over legacy SSE (B11)."""

import asyncio
import contextlib
import re
import socket
import time
from contextlib import ExitStack
from typing import Any

from campaign.bystander import bystander
from campaign.trial import WHOLE, Trial, Usage
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients import http1
from testkit.clients.async_http import Client
from testkit.misbehaving_upstreams import chatty, misbehaving
from testkit.waiting import eventually

# The gateway stops reading at some point; this long without progress shows that it has.
_BLOCKED_SECONDS = 3.0
# 30 s without a byte read, found by a check once a second, and some time to get there.
_CLOSED_SECONDS = 45.0
_MOST_GROWTH_MIB = 64
# About 200 KB of definitions, close to a whole page of a listing.
_TOOLS = [
    {"name": f"tool_{number}", "description": "x" * 900, "inputSchema": {"type": "object"}}
    for number in range(200)
]
_SCRIPT = {"tools": _TOOLS, "own_tools": False}


def _unread(port: int) -> socket.socket:
    """A connection with a small receive buffer, which the case never empties."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    return connection


def _send_many(connection: socket.socket, request: bytes, count: int) -> int:
    """Send one request `count` times; gives how many were sent before the gateway stopped reading."""
    connection.settimeout(_BLOCKED_SECONDS)
    block, sent = request * 100, 0
    with contextlib.suppress(OSError):
        while sent < len(request) * count:
            sent += connection.send(block[sent % len(request) :])
    return sent // len(request)


def _legacy_post(port: int, path: str, method: str, number: int) -> bytes:
    body = b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":{}}' % (number, method.encode())
    return http1.request(port, "POST", path, {"Content-Type": "application/json"}, body)


async def _post_many(gateway: AsyncGatewayProcess, path: str, count: int) -> int:
    """Ask on a legacy SSE session for the list of tools; gives how many requests the gateway has accepted."""
    accepted = 0
    async with http1.connected(gateway.port) as connection:
        with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            for number in range(count):
                async with asyncio.timeout(_BLOCKED_SECONDS):
                    response = await connection.exchange(
                        _legacy_post(gateway.port, path, "tools/list", number)
                    )
                accepted += response.status == 202
                if response.status == 404:
                    break
    return accepted


def _open_legacy(port: int) -> tuple[socket.socket, str]:
    """A legacy SSE stream of which only the first event is read, and the path for its messages."""
    stream, heard = _unread(port), b""
    stream.sendall(http1.request(port, "GET", "/sse", {"Accept": "text/event-stream"}))
    while (found := re.search(rb"data: (\S+)\r\n", heard)) is None:
        heard += stream.recv(1024)
    return stream, found[1].decode()


async def check_unread_responses(trial: Trial) -> None:
    """Each way of not reading, one after the other on one gateway, with a bound on what all may cost."""
    servers = {"wide": chatty(trial.directory, "wide", script=_SCRIPT), "steady": misbehaving()}
    count = trial.size(quick=8_000, full=40_000)
    async with trial.gateway(servers, settings=WHOLE, spare_files=1) as gateway:
        usage = Usage(gateway)
        async with bystander(trial, gateway, "steady_echo"):
            with ExitStack() as connections:
                sent = await _pipeline(trial, gateway, connections, count)
                stream, path = await asyncio.to_thread(_open_legacy, gateway.port)
                connections.enter_context(stream)
                accepted = await _post_many(gateway, path, count // 4)
                trial.measure("legacy SSE", f"{accepted} of {count // 4} accepted")
                await _check_closed(trial, gateway, sent + 1)
        growth = usage.peak_growth_mib
    trial.measure("unread responses", f"RSS +{growth:.0f} MB")
    trial.check(f"unread: RSS at most +{_MOST_GROWTH_MIB} MB", growth <= _MOST_GROWTH_MIB, f"{growth:.0f} MB")


async def _pipeline(trial: Trial, gateway: AsyncGatewayProcess, connections: ExitStack, count: int) -> int:
    """Send on connections that are not read; gives how many there are."""
    used = 0
    for label, together, (method, params) in _REQUESTS:
        opened = [connections.enter_context(_unread(gateway.port)) for _ in range(together)]
        data = Client(gateway.port, modern=True).post(method, params)
        each = count // together
        sent = await asyncio.gather(*(asyncio.to_thread(_send_many, one, data, each) for one in opened))
        trial.measure(label, f"{sum(sent)} sent on {together}")
        used += together
    return used


# What is asked for, and on how many connections; 4 KiB is far below what one write buffer holds.
_REQUESTS: tuple[tuple[str, int, tuple[str, dict[str, Any]]], ...] = (
    ("pipelined tools/list", 1, ("tools/list", {})),
    ("pipelined small answers", 1, ("tools/call", {"name": "steady_big_line", "arguments": {"size": 4096}})),
    ("pipelined by many", 20, ("tools/list", {})),
)


async def _check_closed(trial: Trial, gateway: AsyncGatewayProcess, most: int) -> None:
    """The gateway closes these connections in time, and counts why."""
    started, closed = time.monotonic(), 0

    async def all_closed() -> bool:
        nonlocal closed
        closed = await _counted(gateway)
        return closed >= most

    with contextlib.suppress(TimeoutError):
        await eventually(all_closed, _CLOSED_SECONDS, "the connections to be closed")
    trial.measure("unread connections", f"{closed} of {most} closed after {time.monotonic() - started:.0f} s")
    trial.check("each unread connection is closed and counted", closed == most, f"{closed} of {most}")


async def _counted(gateway: AsyncGatewayProcess) -> int:
    body = (await gateway.get("/metrics")).body.decode()
    found = re.search(r'^headgate_connections_closed_total\{reason="unread"\} (\d+)$', body, re.MULTILINE)
    return int(found[1]) if found else 0
