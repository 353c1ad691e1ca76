"""Clients that hold a connection and do as little with it as they can (B11)."""

import asyncio
import contextlib
import socket
import time

from campaign.bad_input import Poster
from campaign.bystander import bystander
from campaign.trial import MEBIBYTE, WHOLE, Trial, Usage, case
from campaign.unread_responses import check_unread_responses
from testkit import procfs
from testkit.clients import http1
from testkit.clients.async_http import client
from testkit.misbehaving_upstreams import misbehaving
from testkit.waiting import eventually

HEADER_SECONDS = 10.0
BODY_SECONDS = 30.0
# Timeouts may be noticed by a sweep rather than to the second.
GRACE_SECONDS = 3.0
_WATCH_SECONDS = 36.0
_READER_SECONDS = 42.0


async def _held(port: int, opening: bytes, drip: bytes) -> float:
    """Send `opening`, then `drip` every second; gives the seconds until the gateway let go."""
    started = time.monotonic()
    async with http1.connected(port) as connection:
        connection.writer.write(opening)
        while (held := time.monotonic() - started) < _WATCH_SECONDS:
            try:
                async with asyncio.timeout(1):
                    # A 408 before the end is an answer, the end is what counts.
                    if not await connection.reader.read(4096):
                        return time.monotonic() - started
            except TimeoutError:
                connection.writer.write(drip)
            except ConnectionError:
                return time.monotonic() - started
    return held


def _never_reads(port: int, request: bytes) -> socket.socket:
    """A connection that asked for a large result, with a small buffer that is not read."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(("127.0.0.1", port))
    reader.sendall(request)
    return reader


@case("B11", "500 slow heads, slow bodies, slow readers; many pipelined and legacy SSE requests, none read",
      "let go after 10, 30, 40 s; service stays up; +64 MB",
      quick_seconds=150, full_seconds=240)  # fmt: skip
async def slow_clients(trial: Trial) -> None:
    """Slow clients are disconnected in time, and other clients do not notice them."""
    heads, bodies, readers = (trial.size(quick=q, full=f) for q, f in ((100, 500), (20, 100), (5, 20)))
    servers = {"rogue": misbehaving(), "steady": misbehaving()}
    async with trial.gateway(servers, settings=WHOLE) as gateway, client(gateway.port) as caller:
        port, files, usage = gateway.port, procfs.open_files(gateway.pid), Usage(gateway)
        one = Poster(gateway, caller, trial.directory / "none")
        head = http1.request(port, "POST", "/mcp", one.headers)[:-2]
        body = http1.request(port, "POST", "/mcp", one.headers | {"Content-Length": "1000"})
        async with bystander(trial, gateway, "steady_echo"):
            asked = [caller.call_request("rogue_big_line", {"size": 20 * MEBIBYTE}) for _ in range(readers)]
            started = time.monotonic()
            deaf = [await asyncio.to_thread(_never_reads, port, request) for request in asked]
            try:
                slow_heads, slow_bodies = await asyncio.gather(
                    asyncio.gather(*(_held(port, head + b"X: ", b"a") for _ in range(heads))),
                    asyncio.gather(*(_held(port, body, b" ") for _ in range(bodies))),
                )
                # The bystander and the probe may hold one each.
                with contextlib.suppress(TimeoutError):
                    left = _READER_SECONDS - (time.monotonic() - started)
                    await eventually(lambda: procfs.open_files(gateway.pid) <= files + 2, left, "the readers")
                still, held = procfs.open_files(gateway.pid) - files - 2, time.monotonic() - started
            finally:
                for reader in deaf:
                    reader.close()
        trial.measure("heads", f"{heads} held {max(slow_heads):.1f} s at most")
        trial.measure("bodies", f"{bodies} held {max(slow_bodies):.1f} s at most")
        trial.measure("readers", f"{readers} held {held:.1f} s at most")
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check(
            "heads let go after 10 s", max(slow_heads) <= HEADER_SECONDS + GRACE_SECONDS, max(slow_heads)
        )
        trial.check(
            "bodies let go after 30 s", max(slow_bodies) <= BODY_SECONDS + GRACE_SECONDS, max(slow_bodies)
        )
        trial.check("readers let go within 40 s", still <= 0, f"{still} still held")
        trial.check("RSS at most +64 MB", usage.peak_growth_mib <= 64, f"{usage.peak_growth_mib:.0f} MB")
    await check_unread_responses(trial)
