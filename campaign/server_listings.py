"""What servers list and say of themselves: without end, in circles, too much, too often (B12, M11-M13)."""

import asyncio
import contextlib
import hashlib
import time
from typing import Any

from campaign.bystander import bystander
from campaign.streams import EventStream, listen_request, streaming
from campaign.trial import MEBIBYTE, Trial, Usage, case
from testkit import payload
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Client, client
from testkit.misbehaving_upstreams import chatty, misbehaving, recorded
from testkit.waiting import eventually

_GOOD = ("steady", "many")
_METHODS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


@case(
    "B12",
    "pages in circles and without end, in every list method; 20,000 tools",
    "bounded pages; the other servers are listed in full at once; state visible",
    quick_seconds=60,
)
async def endless_listings(trial: Trial) -> None:
    """A listing that does not end is given up, and costs other clients nothing."""
    many = {
        "tools": [{"name": f"tool{number}", "inputSchema": {"type": "object"}} for number in range(20_000)]
    }
    servers: dict[str, Any] = {"steady": misbehaving(), "many": chatty(trial.directory, "many", script=many)}
    for number, method in enumerate(_METHODS):
        for kind in ("circle",) if trial.quick and number % 2 else ("circle", "endless"):
            name = f"{kind}{number}"
            servers[name] = chatty(trial.directory, name, script={"pages": {method: kind}})
    async with (
        trial.gateway(servers, ready=["steady"], stall_seconds=0.25) as gateway,
        client(gateway.port) as caller,
    ):
        usage = Usage(gateway)
        async with bystander(trial, gateway, "steady_echo"):
            started = time.monotonic()
            names = await caller.list_tools()
            trial.measure("first listing", time.monotonic() - started, "s")
            trial.check("the other server is listed", "steady_echo" in names, len(names))
            await gateway.wait_ready(["many"])
            trial.measure("tools of one server", (await gateway.servers())["many"]["tools"])
            with contextlib.suppress(TimeoutError):
                await eventually(lambda: _explained(gateway), 20, "every server to be given up")
        states = {name: server for name, server in (await gateway.servers()).items() if name not in _GOOD}
        pages = {name: len(recorded(trial.directory, name, "list ")) for name in states}
        connected = {name: len(recorded(trial.directory, name, "initialize")) for name in states}
        most = max(pages[name] / max(connected[name], 1) for name in states)
        trial.measure("pages asked for", f"{most:.0f} at most per connection, {sum(pages.values())} in all")
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check("at most 1,000 pages and the other lists", most <= 1_010, most)
        trial.check(
            "the operator sees why",
            await _explained(gateway),
            {n: s.get("last_error") for n, s in states.items()},
        )
        trial.check("RSS at most +64 MB", usage.peak_growth_mib <= 64, f"{usage.peak_growth_mib:.0f} MB")
        again = await caller.list_tools()
        trial.check("and is still listed later", "steady_echo" in again, len(again))


async def _explained(gateway: AsyncGatewayProcess) -> bool:
    """Whether /ready says of every server but the good ones why it is not served."""
    servers = await gateway.servers()
    return all(
        "circles" in str(server.get("last_error")) for name, server in servers.items() if name not in _GOOD
    )


@case(
    "M11",
    "a server says 100,000 times that its prompts and resources have changed",
    "listed again a bounded number of times; clients told; others unaffected",
    quick_seconds=60,
)
async def change_flood(trial: Trial) -> None:
    """However often a server says so, it is asked at a pace, and clients hear of it at a pace."""
    count = trial.size(quick=20_000, full=100_000)
    script = {"prompts": [{"name": "greet"}], "resources": [{"uri": "text://one", "name": "one"}]}
    servers = {
        "old": chatty(trial.directory, "old", script=script),
        "new": chatty(trial.directory, "new", "--era", "stateless", script=script | {"resources": []}),
        "steady": misbehaving(),
    }
    async with trial.gateway(servers) as gateway, client(gateway.port) as caller:
        usage, before = Usage(gateway), len(recorded(trial.directory, "old", "list "))
        async with (
            bystander(trial, gateway, "steady_echo"),
            streaming(gateway.port, listen_request(caller)) as stream,
        ):
            started = time.monotonic()
            for server in ("old", "new"):
                for capability in ("prompts", "resources"):
                    flood = {"method": f"notifications/{capability}/list_changed", "count": count}
                    answer = await caller.call(f"{server}_tell_flood", flood)
                    trial.check(f"{server}, {capability}: the call is answered", answer.ok, answer.outcome)
            trial.measure("said", f"{4 * count} changes in {time.monotonic() - started:.1f} s")
            await asyncio.sleep(2.0)
            seconds = time.monotonic() - started
            told = await _drain(stream)
        asked = len(recorded(trial.directory, "old", "list ")) - before
        trial.measure("listed again", f"{asked} times in {seconds:.1f} s")
        trial.measure("clients told", told)
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.measure("CPU", usage.cpu_seconds, "s")
        trial.check("listed again at a pace", 0 < asked <= 10 + 5 * seconds, asked)
        trial.check("told a bounded number of times", told <= 10 * seconds, told)
        trial.check("RSS at most +64 MB", usage.peak_growth_mib <= 64, f"{usage.peak_growth_mib:.0f} MB")


async def _drain(stream: EventStream) -> int:
    """How many messages wait on a stream now."""
    messages = 0
    try:
        while await stream.message(0.3) is not None:
            messages += 1
    except TimeoutError:
        pass
    return messages


@case(
    "M12",
    "servers whose instructions and capabilities are 1 MB each",
    "every client is still served; a handshake stays small and cheap; memory bounded",
)
async def huge_greetings(trial: Trial) -> None:
    """What a server says of itself is bounded, and does not make every handshake dear."""
    handshakes = trial.size(quick=30, full=200)
    experiments = {f"com.example/{number}": {"text": "x" * 90} for number in range(10_000)}
    capabilities = {"tools": {}, "experimental": experiments}
    servers = {
        "wordy": chatty(trial.directory, "wordy", script={"instructions": "read me " * 131_072}),
        "able": chatty(trial.directory, "able", script={"capabilities": capabilities}),
        "deep": chatty(
            trial.directory, "deep", script={"capabilities": {"tools": {}, "experimental": {"d": _deep(900)}}}
        ),
        "steady": misbehaving(),
    }
    async with trial.gateway(servers) as gateway:
        usage = Usage(gateway)
        async with bystander(trial, gateway, "steady_echo"):
            for modern in (False, True):
                before = usage.cpu_seconds
                size = await _greet(gateway.port, handshakes, modern=modern)
                cost = (usage.cpu_seconds - before) / handshakes * 1000
                era = "discover" if modern else "initialize"
                trial.measure(era, f"{size / 1e3:.1f} KB, {cost:.1f} ms of CPU each")
                trial.check(f"{era}: at most 64 KB", size <= 64_000, size)
                trial.check(f"{era}: at most 25 ms of CPU each", cost <= 25, cost)
        async with client(gateway.port) as caller:
            for name in ("wordy", "able", "deep"):
                answer = await caller.call(f"{name}_echo", {"text": "x"})
                trial.check(f"{name} is served", answer.ok, answer.outcome)
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check("RSS at most +64 MB", usage.peak_growth_mib <= 64, f"{usage.peak_growth_mib:.0f} MB")


def _deep(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"d": value}
    return value


async def _greet(port: int, count: int, *, modern: bool) -> int:
    """Ask so many times for the greeting; how large it is."""
    size = 0
    async with client(port, modern=modern) as caller:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        }
        for _ in range(count):
            answer = await caller.request(
                "server/discover" if modern else "initialize", {} if modern else params
            )
            size = len(answer.raw)
    return size


@case(
    "M13",
    "resources/read of a 100 MB resource",
    "delivered whole; memory bounded; no stall; others unaffected",
    quick_seconds=60,
)
async def large_resource(trial: Trial) -> None:
    """A resource that is too large for memory goes by way of the disk, in either era."""
    size = trial.size(quick=16, full=100) * MEBIBYTE
    uri = f"big://{size}"
    script = {"resources": [{"uri": uri, "name": "big"}]}
    servers = {
        "old": chatty(trial.directory, "old", script=script),
        "new": chatty(trial.directory, "new", "--era", "stateless", script=script),
        "steady": misbehaving(),
    }
    async with trial.gateway(servers) as gateway:
        usage = Usage(gateway)
        async with bystander(trial, gateway, "steady_echo"):
            for modern in (False, True):
                async with client(gateway.port, modern=modern) as caller:
                    for where in (uri, f"headgate://new/{uri}"):
                        digest, seconds = await _digest(caller, where)
                        label = f"{'new' if modern else 'old'} client, {where.partition(':')[0]}"
                        trial.measure(label, seconds, "s")
                        right = digest == payload.filler_digest(size)
                        trial.check(f"{label}: whole", right, digest[:16])
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check("RSS at most +64 MB", usage.peak_growth_mib <= 64, f"{usage.peak_growth_mib:.0f} MB")
        left = list((gateway.log.parent / "data").rglob("*spool*"))
        trial.check("nothing is left on disk", not [one for one in left if one.is_file()], left)


async def _digest(caller: Client, uri: str) -> tuple[str, float]:
    """The SHA-256 of the resource's text, and how long it took to come."""
    answer = await caller.request("resources/read", {"uri": uri})
    start = answer.raw.find(b'"text":"') + len(b'"text":"')
    text = memoryview(answer.raw)[start : answer.raw.find(b'"', start)]
    return hashlib.sha256(text).hexdigest(), answer.seconds
