"""Listings of very many tools, and of tools that never stay the same (L07, L13)."""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from typing import Any

from campaign.bystander import bystander
from campaign.paged import BY_WORDS, Listed, list_all, viewer
from campaign.real_tools import dealt
from campaign.trial import Trial, Usage, case
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess, running
from testkit.clients.async_http import Client
from testkit.misbehaving_upstreams import ListingsProcess, listings_http, misbehaving
from testkit.waiting import eventually

_BUDGET_TOKENS = 3_000
_MODES = ("full", "slim", "search", "budget")
_CLOSED_PORT = 9  # the discard port, which is not served here
# Each server keeps a connection, and the listing of 20,000 tools is a second's work.
_STALL_SECONDS = 0.25


@case(
    "L07",
    "200 upstreams of 100 tools each, one dead and one late; full, slim, search, budget",
    "the same order and bytes for all and after a restart; no client waits for the two",
    quick_seconds=120,
    full_seconds=600,
)
async def very_many(trial: Trial) -> None:
    """A listing of 20,000 tools is whole, stable, and does not depend on who answers when."""
    count, tools = trial.size(quick=40, full=200), trial.size(quick=50, full=100)
    late_seconds = trial.size(quick=3, full=8)
    async with listings_http(trial.directory / "shelf", "--late", f"s{count // 2}={late_seconds}") as one:
        servers = _servers(one, count, tools)
        late, good = f"s{count // 2}", [name for name in servers if name not in ("dead", f"s{count // 2}")]
        async with trial.gateway(
            servers,
            ready=["steady"],
            settings=BY_WORDS,
            spare_files=3 * count + 20,
            stall_seconds=_STALL_SECONDS,
        ) as gateway:
            usage = Usage(gateway)
            async with bystander(trial, gateway, "steady_echo"):
                await gateway.wait_ready(good, 180)
                trial.measure("ready", time.monotonic() - gateway.started, "s after the start")
                await _check_without(trial, gateway, servers, late)
                await gateway.wait_ready([late], 60)
                wanted = [name for name in servers if name not in ("dead", "steady")]
                before = await _check_modes(trial, gateway, wanted, tools)
            trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
            state = (await gateway.servers())["dead"]
            trial.check("the dead one is shown as such", state.get("last_error"), state)
        await _check_restarts(trial, gateway, servers, before)


def _servers(one: ListingsProcess, count: int, tools: int) -> dict[str, Any]:
    """In the order in which they are to be listed; the dead one is among the others."""
    servers: dict[str, Any] = {}
    for number, definitions in enumerate(dealt(count, tools)):
        if number == count // 3:
            servers["dead"] = {"url": f"http://127.0.0.1:{_CLOSED_PORT}/mcp", "transport": "streamable-http"}
        one.put(f"s{number}", definitions)
        servers[f"s{number}"] = one.entry(f"s{number}")
    # It is not counted among them: it is there to be called meanwhile.
    return servers | {"steady": misbehaving()}


async def _check_without(
    trial: Trial, gateway: AsyncGatewayProcess, servers: dict[str, Any], late: str
) -> None:
    """A listing before the late server has answered shows all the others."""
    async with viewer(gateway.port, "full") as caller:
        first = await list_all(caller)
    owners = {name.partition("_")[0] for name in first.names}
    trial.measure("first listing", first.seconds, "s")
    trial.check("the first listing waits 5 s at most", first.seconds < 7, f"{first.seconds:.1f} s")
    missing = servers.keys() - owners - {"dead", late}
    trial.check("every server that has answered is listed", not missing, sorted(missing)[:5])


async def _check_modes(
    trial: Trial, gateway: AsyncGatewayProcess, wanted: list[str], tools: int
) -> dict[str, Listed]:
    first, second = await _every_mode(gateway), await _every_mode(gateway)
    for mode in _MODES:
        listed = first[mode]
        trial.measure(
            mode, f"{len(listed.names)} tools, {len(listed.pages)} pages, {listed.size / 1e6:.2f} MB"
        )
        trial.check(f"{mode}: two clients see the same bytes", listed.pages == second[mode].pages)
        trial.check(f"{mode}: no name twice", len(set(listed.names)) == len(listed.names))
        if mode in ("full", "slim"):
            owners = [name.partition("_")[0] for name in listed.others if not name.startswith("steady_")]
            trial.check(
                f"{mode}: complete, in the order of the configuration",
                owners == [name for name in wanted for _ in range(tools)],
                f"{len(owners)} tools of {len(set(owners))} servers",
            )
    trial.measure("again", _told_seconds(second))
    tokens = first["budget"].tokens
    trial.measure("tokens of budget", tokens)
    trial.check("budget: never more", tokens <= _BUDGET_TOKENS, tokens)
    return first


async def _check_restarts(
    trial: Trial, gateway: AsyncGatewayProcess, servers: dict[str, Any], before: dict[str, Listed]
) -> None:
    """What was known is listed at once, and is the same when the servers have told it again."""
    for restart in ("first", "second"):
        async with running(gateway.log.parent, {"mcpServers": servers, "proxySettings": BY_WORDS}) as again:
            after = await _every_mode(again)
            trial.measure(f"{restart} restart", _told_seconds(after))
            await again.wait_ready([name for name in servers if name != "dead"], 180)
            later = await _every_mode(again)
        for mode in _MODES:
            # What was called most is taken down for the first time at the first start after it was called.
            if mode != "budget" or restart == "second":
                same = after[mode].pages == before[mode].pages
                trial.check(f"{mode}: the same bytes after the {restart} restart", same)
            same = later[mode].pages == after[mode].pages
            trial.check(f"{mode}: and when all have connected again", same)
        before = later


async def _every_mode(gateway: AsyncGatewayProcess) -> dict[str, Listed]:
    """Each listing by a client of its own."""
    listed = {}
    for mode in _MODES:
        async with viewer(gateway.port, mode) as caller:
            listed[mode] = await list_all(caller)
    return listed


def _told_seconds(listed: dict[str, Listed]) -> str:
    return ", ".join(f"{mode} {one.seconds:.2f} s" for mode, one in listed.items())


_FLAPPING = 4
_TOOLS_OF_ONE = 30


@case(
    "L13",
    "four servers change all their tools 20 times in a few seconds; 20 clients list in every mode",
    "every listing is one state of each server; budget kept; changes counted; no growth",
    quick_seconds=90,
    full_seconds=240,
)
async def flapping(trial: Trial) -> None:
    """Whatever changes meanwhile, no client sees a mixture, and nothing is left of it."""
    names = [f"f{number}" for number in range(_FLAPPING)]
    changes, clients = trial.size(quick=20, full=100), 20
    options = [word for name in names for word in ("--changing", name)]
    async with listings_http(trial.directory / "shelf", *options) as one:
        for name in names:
            one.put(name, _state(0))
        servers = {name: one.entry(name) for name in names} | {"steady": misbehaving()}
        async with trial.gateway(
            servers, settings=BY_WORDS, spare_files=4 * _FLAPPING + 8, stall_seconds=_STALL_SECONDS
        ) as gateway:
            watch = _Watch(gateway, names)
            await watch.look(clients, changes, one)
            usage, threads = Usage(gateway), procfs.threads(gateway.pid)
            async with bystander(trial, gateway, "steady_echo"):
                await watch.look(clients, changes, one)
            await _check_flapping(trial, gateway, watch, usage, threads)


def _state(number: int) -> list[bytes]:
    """The tools of one state: each is called after it, so that a mixture of two shows in every mode."""
    words = f"Does what state {number} asks for, with care. " * (1 + number % 5)
    properties = {f"p{place}": {"type": "string", "description": words} for place in range(1 + number % 7)}
    return [
        json.dumps(
            {
                "name": f"v{number}_t{place}",
                "description": f"{words}Number {place}.",
                "inputSchema": {"type": "object", "properties": properties},
            }
        ).encode()
        for place in range(_TOOLS_OF_ONE)
    ]


class _Watch:
    """Clients in every mode that list again and again, and what they saw that cannot be."""

    def __init__(self, gateway: AsyncGatewayProcess, names: list[str]) -> None:
        self.gateway = gateway
        self.names = names
        self.listings = 0
        self.most_tokens = 0
        self.mixed: list[str] = []
        self.states: set[str] = set()
        self.last = 0
        self.settled_seconds = 0.0

    async def look(self, clients: int, changes: int, one: ListingsProcess) -> None:
        """Change everything so many times while the clients list; then wait until all see the last state."""
        ended = asyncio.Event()
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            for number in range(clients):
                mode = ("full", "slim", "budget", "auto", "search")[number % 5]
                caller = await stack.enter_async_context(
                    viewer(self.gateway.port, mode, modern=number % 2 == 0, name=f"c{number}")
                )
                group.create_task(self._list(caller, mode, ended))
            for _ in range(changes):
                self.last += 1
                for name in self.names:
                    one.put(name, _state(self.last))
                await asyncio.sleep(0.15)
            started = time.monotonic()
            try:
                await eventually(self._settled, 40, "every listing to show the last state")
            finally:
                ended.set()
            self.settled_seconds = time.monotonic() - started

    async def _list(self, caller: Client, mode: str, ended: asyncio.Event) -> None:
        while not ended.is_set():
            listed = await list_all(caller)
            self.listings += 1
            self._judge(mode, listed)
            await asyncio.sleep(0.05)

    def _judge(self, mode: str, listed: Listed) -> None:
        for name in self.names:
            seen = {tool.split("_")[1] for tool in listed.others if tool.startswith(f"{name}_")}
            self.states |= seen
            whole = sum(tool.startswith(f"{name}_") for tool in listed.others)
            if len(seen) > 1 or (mode in ("full", "slim") and whole != _TOOLS_OF_ONE):
                self.mixed.append(f"{mode}: {name} with {whole} tools of {sorted(seen)}")
        if mode in ("budget", "auto"):
            self.most_tokens = max(self.most_tokens, listed.tokens)

    async def _settled(self) -> bool:
        for mode in ("full", "slim", "budget", "auto"):
            async with viewer(self.gateway.port, mode) as caller:
                listed = await list_all(caller)
            if {tool.split("_")[1] for tool in listed.others if tool.startswith("f")} != {f"v{self.last}"}:
                return False
        return True


async def _check_flapping(
    trial: Trial, gateway: AsyncGatewayProcess, watch: _Watch, usage: Usage, threads: int
) -> None:
    told = json.loads((await gateway.get("/listing")).body)
    growth = usage.peak_growth_mib
    trial.measure("listings", f"{watch.listings} of {len(watch.states)} states, {len(watch.mixed)} mixed")
    trial.measure("settled", watch.settled_seconds, "s after the last change")
    trial.measure("tokens", f"{watch.most_tokens} at most")
    trial.measure("changes counted", f"{told['changes']} in {len(told['listings'])} listings")
    trial.measure("RSS", f"+{growth:.0f} MB in the second round")
    trial.measure("threads", f"{threads} before, {procfs.threads(gateway.pid)} after")
    trial.measure("CPU", usage.cpu_seconds, "s")
    trial.check("every listing is one state of each server", not watch.mixed, watch.mixed[:4])
    trial.check("several states were seen", len(watch.states) >= 3, sorted(watch.states)[:10])
    trial.check("budget: never more", 0 < watch.most_tokens <= _BUDGET_TOKENS, watch.most_tokens)
    counts = {row["listing"]: row["changes"] for row in told["listings"] if row["mode"] != "search"}
    trial.check(
        "changes are counted", counts and all(0 < n <= 2 * 4 * watch.last for n in counts.values()), counts
    )
    trial.check("RSS at most +32 MB in the second round", growth <= 32, f"{growth:.0f} MB")
    trial.check("no more threads", procfs.threads(gateway.pid) <= threads + 2, procfs.threads(gateway.pid))
