"""Clients that call themselves something else every time, and come by every path (M14)."""

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

from campaign.bystander import bystander
from campaign.paged import BY_WORDS
from campaign.real_tools import dealt
from campaign.trial import Trial, Usage, case
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Client
from testkit.misbehaving_upstreams import listings_http, misbehaving

_PATHS = ("/mcp", *(f"/mcp/{mode}" for mode in ("auto", "full", "slim", "search", "dynamic", "budget")))
_AT_ONCE = 8
# Clients that are known by their names, and some that only look like them.
_KNOWN = (
    "cursor",
    "windsurf",
    "Visual Studio Code",
    "copilot",
    "antigravity-client",
    "gemini-cli-mcp-client-x",
)


@case(
    "M14",
    "20,000 requests of clients with ever new names and capabilities, by the path of every mode",
    "each is answered; memory, listings and what is kept of them bounded; others unaffected",
    quick_seconds=120,
    full_seconds=600,
)
async def ever_new_visitors(trial: Trial) -> None:
    """What a client says of itself costs nothing that lasts."""
    count, servers, tools = trial.size(quick=2_000, full=20_000), 4, 50
    async with listings_http(trial.directory / "shelf") as one:
        for number, definitions in enumerate(dealt(servers, tools)):
            one.put(f"s{number}", definitions)
        entries = {f"s{number}": one.entry(f"s{number}") for number in range(servers)} | {
            "steady": misbehaving(shared=True)
        }
        patterns = {"clientDialects": {"*strict*": "openai"}, "clientListings": {"*small*": "search"}}
        settings = BY_WORDS | patterns
        async with trial.gateway(
            entries, settings=settings, spare_files=4 * servers + _AT_ONCE, stall_seconds=0.25
        ) as gateway:
            # What is made once for all clients belongs to none.
            wrong = await _visit(gateway, 300, seed=1)
            usage = Usage(gateway)
            async with bystander(trial, gateway, "steady_echo"):
                wrong += await _visit(gateway, count, seed=2)
            await _check_bounds(trial, gateway, usage, count)
            trial.check("each was answered", not wrong, wrong[:3])


async def _visit(gateway: AsyncGatewayProcess, count: int, seed: int) -> list[str]:
    """So many requests, a few at once, each of a client that was never seen before; what went wrong."""
    visitors, wrong = _visitors(gateway.port, count, seed), list[str]()

    async def visit() -> None:
        for caller, method, params in visitors:
            try:
                answer = await caller.request(method, params)
                error = answer.rpc_error
                if answer.status != 200 or (error is not None and error.code != -32602):
                    wrong.append(f"{caller.path} {method}: {answer.status} {answer.raw[:200]!r}")
            finally:
                caller.close()

    await asyncio.gather(*(visit() for _ in range(_AT_ONCE)))
    return wrong


def _visitors(port: int, count: int, seed: int) -> Iterator[tuple[Client, str, dict[str, Any]]]:
    dice = random.Random(seed)
    for number in range(count):
        name = f"{dice.choice(('', *_KNOWN))}{_odd_name(dice)}-{seed}-{number}"
        feature = {f"com.example/{seed}-{number}": {"level": "x" * dice.choice((1, 100, 9_000))}}
        # Each of these is a listing of its own at every server; M06 and M07 are about them.
        capabilities: dict[str, Any] = {"experimental": feature} if number % 40 == 1 else {}
        caller = Client(port, modern=True, capabilities=capabilities, path=dice.choice(_PATHS), name=name)
        yield caller, *_wish(dice, number)


def _odd_name(dice: random.Random) -> str:
    return dice.choice(
        ("", "strict", "small", "*", "[", "\u202e", "\0", '"}', "x" * 300, "y" * 3_000, "\U0001f600" * 50)
    )


def _wish(dice: random.Random, number: int) -> tuple[str, dict[str, Any]]:
    """What the client asks for; most list."""
    wishes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("server/discover", {}),
        ("tools/call", {"name": "retrieve_tools", "arguments": {"query": f"read file {number}"}}),
        ("tools/call", {"name": "expandSchema", "arguments": {"toolName": "steady_echo"}}),
        ("tools/call", {"name": "steady_echo", "arguments": {"text": "x"}}),
    )
    return ("tools/list", {}) if number % 2 else dice.choice(wishes)


async def _check_bounds(trial: Trial, gateway: AsyncGatewayProcess, usage: Usage, count: int) -> None:
    told = json.loads((await gateway.get("/listing")).body)
    metrics = await gateway.get("/metrics")
    growth, labels = usage.peak_growth_mib, len(told["listings"])
    trial.measure("requests", count)
    trial.measure("RSS", f"+{growth:.0f} MB")
    trial.measure("CPU", usage.cpu_seconds * 1000 / count, "ms each")
    trial.measure("listings told of", labels)
    trial.measure("metrics", len(metrics.body) / 1000, "KB")
    trial.check("RSS at most +64 MB", growth <= 64, f"{growth:.0f} MB")
    trial.check("a bounded number of listings is kept", labels <= 100, labels)
    trial.check("the metrics stay small", len(metrics.body) < 200_000, len(metrics.body))
