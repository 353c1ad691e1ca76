"""Tools whose definitions are a trap: schemas that are expensive, and unusable names (B08, B09)."""

import json
import time
from typing import Any

from campaign.bystander import bystander
from campaign.honeypot import digging
from campaign.paged import BY_WORDS, LONGEST_NAME, PREFIX, Listed, list_all, viewer
from campaign.trial import MEBIBYTE, WHOLE, Trial, Usage, case
from testkit.async_gateway_process import AsyncGatewayProcess, running
from testkit.clients.async_http import Client
from testkit.faults.hostile_definitions import colliding_names, trapped
from testkit.misbehaving_upstreams import ListingsProcess, listings_http, misbehaving

_BUDGET_TOKENS = 3_000
_MODES = ("full", "slim", "budget", "auto", "search")
# What the operator's settings make of these names.
_DIALECTS = {"plain": "campaign", "gemini": "gemini-client", "openai": "openai-client"}
_SLOW_SECONDS = 2.0
# Servers among which the definitions are divided: what one lists is read in one piece.
_SHARES = 4
# Every requested mode and dialect is kept as it is sent, for both eras.
_MOST_TIMES = 20


@case(
    "B08",
    "schemas of depth 10,000, 100,000 anyOf, $ref in circles, to nowhere and to the network; 1 MB of prose",
    "served or left out with the reason, in every mode and dialect; nothing fetched; others live",
    quick_seconds=120,
)
async def schema_traps(trial: Trial) -> None:
    """What a schema says is carried, shortened, counted and expanded without anybody noticing."""
    async with digging(trial.directory) as well, listings_http(trial.directory / "shelf") as one:
        traps = list(trapped(well.web, well.file).items())
        shares = {f"trap{number}": dict(traps[number::_SHARES]) for number in range(_SHARES)}
        for name, share in shares.items():
            one.put(name, share.values())
        servers: dict[str, Any] = {name: one.entry(name) for name in shares} | {"steady": misbehaving()}
        settings = BY_WORDS | {"clientDialects": {"gemini-*": "gemini", "openai-*": "openai"}}
        async with trial.gateway(
            servers, ready=["steady"], settings=settings, spare_files=4 * _SHARES + 8, stall_seconds=0.4
        ) as gateway:
            usage = Usage(gateway)
            async with bystander(trial, gateway, "steady_echo"):
                await gateway.wait_ready(shares, 60)
                await _check_served(trial, gateway, shares)
                await _check_views(trial, gateway)
                await _check_expansion(trial, gateway, shares)
            trial.measure("fetched", f"{well.hits} over HTTP, {int(well.opened())} files")
            trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
            trial.check("nothing was fetched", well.hits == 0 and not well.opened(), well.hits)
            most = _MOST_TIMES * sum(len(definition) for _, definition in traps) / MEBIBYTE
            growth = usage.peak_growth_mib
            trial.check(f"RSS at most {_MOST_TIMES} times what is listed", growth <= most, f"{growth:.0f} MB")


async def _check_served(
    trial: Trial, gateway: AsyncGatewayProcess, shares: dict[str, dict[str, bytes]]
) -> None:
    """Each is listed and can be called, or there is a reason why not."""
    statuses, without = await gateway.servers(), 0
    async with viewer(gateway.port, "full") as caller:
        listed = set((await list_all(caller)).names)
        for server, share in shares.items():
            left = statuses[server].get("tools_left_out", {})
            without += len(left)
            for position, name in enumerate(share):
                reason = left.get(f"#{position + 1}")
                served = f"{server}_{name}" in listed
                trial.check(f"{name} is served or left out with the reason", served != bool(reason), reason)
                if served:
                    answer = await caller.call(f"{server}_{name}")
                    trial.check(f"{name} can be called", answer.text == f"{server}:{name}", answer.raw[:200])
    every = sum(map(len, shares.values()))
    trial.measure("left out", f"{without} of {every}")
    trial.check("most are served", without < every / 3, without)


async def _check_views(trial: Trial, gateway: AsyncGatewayProcess) -> None:
    """Every mode in every dialect, twice: the first makes it, the second must be the same."""
    slowest, label = 0.0, ""
    for dialect, name in _DIALECTS.items():
        for mode in _MODES:
            for modern in (True, False):
                async with viewer(gateway.port, mode, modern=modern, name=name) as caller:
                    first, second = await list_all(caller), await list_all(caller)
                where = f"{mode}, {dialect}, {'new' if modern else 'old'} client"
                trial.check(f"{where}: stable", first.pages == second.pages)
                _check_view(trial, where, mode, first)
                if first.seconds > slowest:
                    slowest, label = first.seconds, where
    trial.measure("slowest listing", f"{slowest:.2f} s ({label})")


def _check_view(trial: Trial, where: str, mode: str, listed: Listed) -> None:
    trial.check(f"{where}: no page above 1 MiB", max(map(len, listed.pages)) <= 1 << 20)
    others = any(name.startswith("steady_") for name in listed.names)
    trial.check(f"{where}: the others are there", mode == "search" or others)
    if mode in ("budget", "auto"):
        trial.check(f"{where}: within the budget", listed.tokens <= _BUDGET_TOKENS, listed.tokens)


_PATHS: tuple[Any, ...] = (
    [], None, [""], ["p"], ["p"] * 60, ["p"] * 20_000, ["$ref"], ["#/properties/a"], ["type"], ["properties"],
    ["a", "anyOf", "99999"], ["anyOf", 1], [1e400], [None], "p", {"p": 1}, ["x" * 100_000], ["..", "etc"],
    ["a", "$ref", "a", "$ref", "a"], ["__proto__"], ["\0"], ["\u202e"], ["a0"], ["items"] * 500, ["-1"],
)  # fmt: skip


async def _check_expansion(
    trial: Trial, gateway: AsyncGatewayProcess, shares: dict[str, dict[str, bytes]]
) -> None:
    """Whatever path is asked for: an answer or -32602, and soon."""
    names = [f"{server}_{name}" for server, share in shares.items() for name in share]
    outcomes: dict[str, int] = {}
    slowest, label = 0.0, ""
    async with viewer(gateway.port, "slim") as caller:
        for name in (*names, "trap0_nobody", "x" * 10_000, ""):
            for path in _PATHS:
                for mode in ("schema", "docs"):
                    answer = await caller.call("expandSchema", _wish(name, path, mode))
                    outcomes[answer.outcome] = outcomes.get(answer.outcome, 0) + 1
                    if answer.seconds > slowest:
                        slowest, label = answer.seconds, f"{name[:20]} {str(path)[:40]} {mode}"
    trial.measure("expanded", ", ".join(f"{count} x {what}" for what, count in sorted(outcomes.items())))
    trial.measure("slowest expansion", f"{slowest * 1000:.0f} ms ({label})")
    trial.check("each is answered, or refused with -32602", outcomes.keys() <= {"ok", "rpc -32602"}, outcomes)
    trial.check(f"within {_SLOW_SECONDS:g} s", slowest < _SLOW_SECONDS, f"{slowest:.2f} s, {label}")


def _wish(tool: str, path: Any, mode: str) -> bytes:
    wish = {"toolName": tool, "mode": mode} | ({} if path is None else {"path": path})
    # A number that is too large for JSON is written as one that is not.
    return json.dumps(wish).replace("Infinity", "1e400").encode()


@case(
    "B09",
    "tool names: unicode, 10 KB, ../, homoglyphs, empty, identical, colliding, those of the gateway's tools",
    "each under a name of its own that every client takes, callable, the same after a restart; or a reason",
    quick_seconds=90,
)
async def name_traps(trial: Trial) -> None:
    """Whatever a server calls its tools, each has one name, and that leads to it."""
    names = colliding_names()
    async with listings_http(trial.directory / "shelf") as one:
        servers = _named_servers(one, names)
        async with trial.gateway(
            servers, settings=WHOLE, spare_files=4 * len(servers), stall_seconds=0.25
        ) as gateway:
            before = await _check_names(trial, gateway, names)
        turned = {"mcpServers": dict(reversed(servers.items())), "proxySettings": WHOLE}
        async with running(gateway.log.parent, turned) as second:
            await second.wait_ready(servers)
            after = await _owners(second, "budget")
        moved = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        trial.measure("changed by a restart in another order", len(moved))
        trial.check("the same after a restart in another order", not moved, sorted(moved)[:5])


def _named_servers(one: ListingsProcess, names: dict[str, list[str]]) -> dict[str, Any]:
    for server, called in names.items():
        plain = [{"name": name, "description": "x", "inputSchema": {"type": "object"}} for name in called]
        one.put(server, [json.dumps(tool).encode() for tool in plain])
    # The operator may call a tool like one of the gateway's own, too.
    renamed = {"rename": {"renamed": "call_tool", "renamed too": "retrieve_tools"}}
    return {server: one.entry(server, **(renamed if server == "renamed" else {})) for server in names}


async def _check_names(
    trial: Trial, gateway: AsyncGatewayProcess, names: dict[str, list[str]]
) -> dict[str, str]:
    """Each tool of each server answers to one name, and those that do not are explained."""
    owners = await _owners(gateway, "full")
    wrong = [name for name in owners if len(PREFIX + name) > LONGEST_NAME or not _accepted(name)]
    trial.check("every name is accepted by every client", not wrong, wrong[:3])
    trial.measure("names", f"{len(owners)}, {max(map(len, owners))} characters at most")
    reached = list(owners.values())
    trial.check("no tool under two names", len(set(reached)) == len(reached))
    statuses, unexplained, left_out = await gateway.servers(), list[str](), 0
    for server, called in names.items():
        left = statuses[server].get("tools_left_out", {})
        left_out += len(left)
        for position, name in enumerate(called):
            if f"{server}:{name}" not in reached and f"#{position + 1}" not in left:
                unexplained.append(f"{server}:{name[:40]}")
    trial.measure("left out", f"{left_out} of {sum(map(len, names.values()))}")
    trial.check("each is reached, or left out with the reason", not unexplained, unexplained[:5])
    for mode in ("slim", "budget"):
        seen = await _owners(gateway, mode)
        trial.check(f"{mode}: the same names", seen == owners, sorted(seen.keys() ^ owners.keys())[:5])
    return owners


def _accepted(name: str) -> bool:
    return (
        name.isascii() and name == name.lower() and name.replace("_", "").isalnum() and not name[0].isdigit()
    )


async def _owners(gateway: AsyncGatewayProcess, mode: str) -> dict[str, str]:
    """The server and the tool that each public name leads to, for a client that sees them in that mode."""
    async with viewer(gateway.port, "full") as lister:
        listed = await list_all(lister)
    assert len(set(listed.names)) == len(listed.names), "a name is listed twice"
    async with viewer(gateway.port, mode, modern=False) as caller:
        return {name: await _owner(caller, name) for name in listed.others}


async def _owner(caller: Client, name: str) -> str:
    started = time.monotonic()
    answer = await caller.call(name)
    assert answer.ok, f"{name} after {time.monotonic() - started:.2f} s: {answer.raw[:200]!r}"
    return answer.text
