"""Fifty upstreams of which fifteen are no good (C50)."""

import asyncio
import contextlib
import time
from typing import Any

from campaign.trial import Trial, case
from testkit.clients.async_http import client
from testkit.misbehaving_upstreams import MisbehavingHttpProcess, misbehaving, misbehaving_http
from testkit.servers.misbehaving_http import TOOLS as HTTP_TOOLS
from testkit.servers.misbehaving_tools import TOOLS

AT_ONCE_SECONDS = 0.5
_CLOSED_PORT = 9  # the discard port, which is not served here
# Counted from a gateway without children: three pipes and a handle for each of the 45 that can run.
SPARE_FILES = 4 * 45 + 20


def _bad_servers(hanging: list[MisbehavingHttpProcess]) -> dict[str, dict[str, Any]]:
    """Five that do not exist, five that hang, five that crash in a loop."""
    servers: dict[str, dict[str, Any]] = {}
    for number in range(3):
        servers[f"dead{number}"] = {"command": f"no-such-command-{number}", "args": []}
        servers[f"hang{number}"] = misbehaving("--hang")
    for number in (3, 4):
        servers[f"dead{number}"] = {
            "url": f"http://127.0.0.1:{_CLOSED_PORT}/mcp",
            "transport": "streamable-http",
        }
        servers[f"hang{number}"] = hanging[number - 3].entry()
    for number in range(5):
        servers[f"crash{number}"] = misbehaving("--crash-after", "0.1")
    return servers


@case("C50", "50 upstreams: 5 dead, 5 hang, 5 crash-looping", "35 answer at once, are listed; states visible",
      quick_seconds=60)  # fmt: skip
async def fifty_upstreams(trial: Trial) -> None:
    """What is broken takes nothing from what works."""
    async with contextlib.AsyncExitStack() as processes:
        web = [
            await processes.enter_async_context(misbehaving_http(trial.directory, f"web{n}"))
            for n in range(5)
        ]
        hanging = [
            await processes.enter_async_context(misbehaving_http(trial.directory, f"hanging{n}", "--hang"))
            for n in range(2)
        ]
        good = {f"good{number}": misbehaving() for number in range(30)} | {
            f"web{n}": web[n].entry() for n in range(5)
        }
        # Crash loops come and go, and each hanging HTTP handshake holds a connection.
        async with trial.gateway(
            _bad_servers(hanging) | good,
            ready=[],
            spare_files=SPARE_FILES,
            spare_children=60,
            stall_seconds=0.25,
        ) as gateway:
            await gateway.wait_ready(good, 30)
            trial.measure("35 ready", time.monotonic() - gateway.started, "s after the start")
            async with client(gateway.port) as caller:
                answers = await asyncio.gather(
                    *(caller.call(f"{name}_echo", {"text": name}) for name in good)
                )
                slowest = max(answer.seconds for answer in answers)
                trial.measure("slowest of 35 answers", slowest * 1000, "ms")
                trial.check("all 35 answer", [answer.text for answer in answers] == list(good))
                trial.check("at once", slowest < AT_ONCE_SECONDS, f"{slowest:.2f} s")
                asked = time.monotonic()
                first = set(await caller.list_tools())
                trial.measure("first listing", time.monotonic() - asked, "s, waits for those that start")
                # The default of `firstListingTimeout`, and a second for the rest.
                trial.check("the first listing waits 8 s at most", time.monotonic() - asked < 9)
                asked = time.monotonic()
                listed = first & set(await caller.list_tools())
                seconds = time.monotonic() - asked
                trial.measure("next listing", seconds * 1000, "ms")
                trial.measure("tools", len(listed))
                expected = {
                    f"{name}_{tool}" for name in good for tool in (HTTP_TOOLS if "web" in name else TOOLS)
                }
                trial.check(
                    "the listing is complete for them", expected <= listed, sorted(expected - listed)[:5]
                )
                trial.check("and quick", seconds < 1, f"{seconds:.2f} s")
            await _check_states(trial, await gateway.servers())


async def _check_states(trial: Trial, servers: dict[str, dict[str, Any]]) -> None:
    trial.check("all 50 are shown", len(servers) == 50, len(servers))
    for name, server in servers.items():
        state, seen = server["state"], {key: server.get(key) for key in ("state", "last_error", "restarts")}
        if name.startswith("dead"):
            trial.check(
                f"{name} is seen as dead", state in ("backoff", "starting") and server.get("last_error"), seen
            )
        elif name.startswith("hang"):
            trial.check(f"{name} is seen as starting", state in ("starting", "backoff"), seen)
        elif name.startswith("crash"):
            trial.check(
                f"{name} is seen as crashing", server.get("last_error") or server.get("restarts"), seen
            )
        else:
            trial.check(f"{name} is ready", state == "ready", seen)
    states = sorted({server["state"] for server in servers.values()})
    trial.measure(
        "states", ", ".join(f"{s} {sum(x['state'] == s for x in servers.values())}" for s in states)
    )
