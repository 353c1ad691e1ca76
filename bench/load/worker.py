"""The load process: reads plans from standard input, one JSON line each, and answers with outcomes."""

import asyncio
import sys
from contextlib import ExitStack
from http.client import HTTPException
from typing import cast

import msgspec
import uvloop

from bench.load.channels import HttpLane, Lane, StdioLane, StdioPipe, numbers
from bench.load.client import Client, Refused
from bench.load.closed_loop import failed, measure
from bench.load.expected import Expected
from bench.load.plan import Outcome, Plan, Ready


def main() -> None:
    """Work until standard input ends."""
    _say(Ready())
    for line in sys.stdin.buffer:
        plan = msgspec.json.decode(line, type=Plan)
        try:
            outcome = _stdio(plan) if plan.command else _http(plan)
        except (Refused, OSError, HTTPException) as error:
            # One candidate that is gone or refuses clients does not end the measurement of the others.
            outcome = failed(f"before the first call: {error}")
        _say(outcome)


def _http(plan: Plan) -> Outcome:
    expected = Expected(plan.result_bytes)
    with ExitStack() as stack:
        prepared = []
        name = ""
        for _ in range(plan.lanes):
            client = Client(plan.port, plan.era, plan.path, plan.delivery_request)
            stack.callback(client.leave)
            client.introduce()
            name = name or client.public_name(plan.tool)
            prepared.append(client.call_bytes(name))
        return uvloop.run(_drive_http(plan, prepared, expected))


async def _drive_http(plan: Plan, prepared: list[list[bytes]], expected: Expected) -> Outcome:
    loop = asyncio.get_running_loop()
    ids = numbers()
    lanes: list[HttpLane] = []
    for pieces in prepared:
        lane = HttpLane(pieces, expected, ids, plan.result_bytes)
        await loop.create_connection(lambda lane=lane: lane, "127.0.0.1", plan.port)  # type: ignore[misc]
        lanes.append(lane)
    try:
        return await measure(lanes, plan, plan.pid)
    finally:
        for lane in lanes:
            lane.close()


def _stdio(plan: Plan) -> Outcome:
    return uvloop.run(_drive_stdio(plan, Expected(plan.result_bytes)))


async def _drive_stdio(plan: Plan, expected: Expected) -> Outcome:
    loop = asyncio.get_running_loop()
    transport, pipe = await loop.subprocess_exec(StdioPipe, *plan.command, stderr=None)
    try:
        # uvloop's pipe transports do not derive from asyncio's classes.
        stdin = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
        await _introduce(pipe, stdin)
        call = b'{"name":"%b","arguments":{"path":"reports/daily","limit":10}}' % plan.tool.encode()
        tail = b',"method":"tools/call","params":%b}\n' % call
        ids = numbers()
        lanes: list[Lane] = [StdioLane(pipe, stdin.write, tail, expected, ids) for _ in range(plan.lanes)]
        return await measure(lanes, plan, transport.get_pid())
    finally:
        transport.close()


async def _introduce(pipe: StdioPipe, stdin: asyncio.WriteTransport) -> None:
    stdin.write(
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        b'"capabilities":{},"clientInfo":{"name":"headgate-bench","version":"1.0"}}}\n'
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    )
    # A Python child needs a moment to start; ten seconds mean that it never will.
    async with asyncio.timeout(10.0):
        await pipe.other.get()


def _say(message: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
