"""Streams that are not read, that are left alone, or whose gateway dies (M08-M10)."""

import asyncio
import signal
import socket
from typing import Any

from campaign.bystander import bystander
from campaign.questions import FORMS
from campaign.stored_results import metric
from campaign.streams import EventStream, listen_request, open_stream
from campaign.trial import Trial, Usage, case
from testkit.async_gateway_process import AsyncGatewayProcess, running
from testkit.clients.async_http import Client, client
from testkit.misbehaving_upstreams import chatty, misbehaving, recorded
from testkit.waiting import eventually

_URI = "text://one"
_SCRIPT = {"resources": [{"uri": _URI, "name": "one"}, {"uri": "text://two", "name": "two"}]}

_LARGE_BYTES, _LARGE_UPDATES = 40_000, 2_000
_NEW_SCRIPT = {"resources": [{"uri": "new://one", "name": "one"}]}


def _deaf(port: int, request: bytes) -> socket.socket:
    """A connection that asked for a stream, with a small buffer that is not read."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(("127.0.0.1", port))
    reader.sendall(request)
    return reader


@case(
    "M08",
    "GET and listen streams that never read, while 100,000 changes and log lines come",
    "memory bounded, others unaffected, readers are notified",
    quick_seconds=60,
)
async def deaf_listeners(trial: Trial) -> None:
    """Ten listeners of both eras do not read; servers of both eras have very much to say."""
    count = trial.size(quick=20_000, full=100_000)
    servers = {
        "old": chatty(trial.directory, "old", script=_SCRIPT),
        "new": chatty(trial.directory, "new", "--era", "stateless", script=_NEW_SCRIPT),
        "steady": misbehaving(),
    }
    # What they hold until they are shown out: their connections, and lines for log messages.
    async with trial.gateway(servers, spare_files=30, spare_lines=6) as gateway:
        callers = [Client(gateway.port, modern=False, capabilities=FORMS) for _ in range(5)]
        await asyncio.gather(*(_subscribe(caller) for caller in callers))
        modern = Client(gateway.port, modern=True)
        listen = {
            "notifications": {"resourceSubscriptions": [_URI, "new://one"], "resourcesListChanged": True}
        }
        requests = [listen_request(caller) for caller in callers]
        requests += [modern.post("subscriptions/listen", listen) for _ in range(5)]
        deaf = [await asyncio.to_thread(_deaf, gateway.port, request) for request in requests]
        hearing = await open_stream(gateway.port, modern.post("subscriptions/listen", listen))
        await hearing.message()
        usage = Usage(gateway)
        try:
            async with bystander(trial, gateway, "steady_echo"):
                heard = asyncio.create_task(_count(hearing))
                await _talk(callers[0], modern, count)
                # What was said last must still be on its way when the counting ends.
                await asyncio.sleep(0.5)
                heard.cancel()
        finally:
            for reader in deaf:
                reader.close()
        (updates,) = await asyncio.gather(heard)
        hearing.close()
        growth = usage.peak_growth_mib
        said = f"{3 * count} updates and changes, {_LARGE_UPDATES} of {_LARGE_BYTES} bytes, {count} log lines"
        trial.measure("said", said)
        trial.measure("heard by who reads", updates)
        trial.measure("RSS", f"+{growth:.0f} MB")
        trial.measure("CPU", usage.cpu_seconds, "s")
        trial.check("RSS at most +64 MB", growth <= 64, f"{growth:.0f} MB")
        trial.check("readers are notified", updates > 0, updates)
        dropped = await metric(gateway, r'outbound_dropped_total\{kind="notification"\}')
        trial.measure("dropped", dropped)
        trial.check("what is dropped is counted", dropped > 0, dropped)
        answers = [await caller.call("old_echo", {"text": "x"}) for caller in callers]
        trial.check("the sessions of the deaf go on", all(answer.ok for answer in answers))
        for caller in callers:
            caller.close()


async def _subscribe(caller: Client) -> None:
    await caller.open()
    await caller.request("logging/setLevel", {"level": "debug"})
    await caller.request("resources/subscribe", {"uri": _URI})


async def _talk(caller: Client, modern: Client, count: int) -> None:
    """Have both servers say everything that they may say unasked."""
    updated = "notifications/resources/updated"
    for server, uri in (("old", _URI), ("new", "new://one")):
        flood = {"method": updated, "params": {"uri": uri}, "count": count}
        await modern.call(f"{server}_tell_flood", flood)
    # Large ones: a bound on their number alone would be none on memory.
    large = {"uri": _URI, "padding": "x" * _LARGE_BYTES}
    await modern.call("old_tell_flood", {"method": updated, "params": large, "count": _LARGE_UPDATES})
    await modern.call("old_tell_flood", {"method": "notifications/resources/list_changed", "count": count})
    log = {"level": "info", "data": "x" * 100}
    # The answer, a stream of log lines, is not read either.
    flood = {"method": "notifications/message", "params": log, "count": count}
    stream = await open_stream(caller.port, caller.call_request("old_tell_flood", flood))
    await eventually_read(stream)


async def eventually_read(stream: EventStream) -> int:
    """Read a stream to its end; how many messages there were."""
    messages = 0
    try:
        while await stream.message(30) is not None:
            messages += 1
    finally:
        stream.close()
    return messages


async def _count(stream: EventStream) -> int:
    messages = 0
    try:
        while await stream.message(60) is not None:
            messages += 1
    except asyncio.CancelledError:
        pass
    return messages


@case(
    "M09",
    "a client opens 500 POST streams and leaves them all",
    "a bounded number goes on; the others are cancelled upstream; memory bounded",
    quick_seconds=60,
)
async def abandoned_streams(trial: Trial) -> None:
    """A client that could come back for its answers never does."""
    count = trial.size(quick=200, full=500)
    servers = {"talker": chatty(trial.directory, "talker", timeout=30), "steady": misbehaving()}
    async with trial.gateway(servers, spare_lines=1) as gateway, client(gateway.port) as caller:
        files, usage = gateway.census().files, Usage(gateway)
        async with bystander(trial, gateway, "steady_echo"):
            for start in range(0, count, 50):
                streams = await asyncio.gather(
                    *(_begin(gateway, caller) for _ in range(start, min(start + 50, count)))
                )
                for stream in streams:
                    stream.close()
            await eventually(lambda: gateway.census().files <= files + 4, 5, "the connections to be closed")
            cancelled = await _settled(trial)
        growth = usage.peak_growth_mib
        trial.measure("opened", count)
        trial.measure("cancelled upstream", cancelled)
        trial.measure("left to go on", count - cancelled)
        trial.measure("RSS", f"+{growth:.0f} MB")
        trial.check("a bounded number goes on", count - cancelled <= 66, count - cancelled)
        trial.check("RSS at most +64 MB", growth <= 64, f"{growth:.0f} MB")
        trial.check("the session goes on", (await caller.call("talker_echo", {"text": "x"})).ok)
    # With the session everything ends.
    left = count - len(recorded(trial.directory, "talker", "cancelled"))
    trial.measure("left after the session", left)
    trial.check("nothing goes on without the session", left == 0, left)


async def _begin(gateway: AsyncGatewayProcess, caller: Client) -> EventStream:
    """A call that never ends, on a stream of which the client knows an id."""
    params = {"name": "talker_hold", "arguments": {}}
    stream = await open_stream(
        gateway.port, caller.post("tools/call", params, {"Accept": "text/event-stream, application/json"})
    )
    await stream.event()
    return stream


async def _settled(trial: Trial) -> int:
    """How many cancellations have arrived when no more come."""
    seen = -1
    while seen != (now := len(recorded(trial.directory, "talker", "cancelled"))):
        seen = now
        await asyncio.sleep(0.3)
    return seen


@case(
    "M10",
    "kill -9 of the gateway in the middle of 200 sessions with open streams",
    "every session is served after the restart, under its id, and told what it may have missed",
    quick_seconds=60,
)
async def killed_with_sessions(trial: Trial) -> None:
    """The id of a session is all that a client needs."""
    count = trial.size(quick=100, full=200)
    servers = {"talker": chatty(trial.directory, "talker", script=_SCRIPT)}
    async with trial.gateway(servers, stall_seconds=None) as gateway:
        callers = [Client(gateway.port, modern=False) for _ in range(count)]
        await asyncio.gather(*(caller.open() for caller in callers))
        await asyncio.gather(
            *(caller.request("resources/subscribe", {"uri": _URI}) for caller in callers[:20])
        )
        streams = [await open_stream(gateway.port, listen_request(caller)) for caller in callers]
        ids = [await _first_id(stream) for stream in streams]
        # Some have a call under way; what was asked for is on disk within a second or so.
        calls = [asyncio.create_task(caller.call("talker_hold")) for caller in callers[:50]]
        await asyncio.sleep(1.5)
        await gateway.stop(signal.SIGKILL)
        await asyncio.gather(*calls, return_exceptions=True)
        for stream, caller in zip(streams, callers, strict=True):
            stream.close()
            caller.close()
        async with running(gateway.log.parent, {"mcpServers": servers}, gateway.port) as second:
            await second.wait_ready(servers)
            outcomes = await asyncio.gather(
                *(_come_back(caller, last) for caller, last in zip(callers, ids, strict=True))
            )
            told = await _updated(callers[0])
            metrics = (await second.get("/metrics")).body.decode()
    revived = [line for line in metrics.splitlines() if "restart" in line and "session" in line]
    right = sum(outcome == "ok" for outcome in outcomes)
    trial.measure("carried on", f"{right} of {count}")
    trial.measure("metric", "; ".join(revived) or "none")
    trial.measure("a subscription made before", "still told" if told else "lost")
    trial.check("every session carries on", right == count, [o for o in outcomes if o != "ok"][:3])
    trial.check("a metric counts them", any(line.endswith(f" {count}") for line in revived), revived)
    trial.check("subscriptions are kept", told)


async def _first_id(stream: EventStream) -> str:
    event = await stream.event()
    return event.id if event else ""


async def _come_back(caller: Client, last_id: str) -> str:
    """Open the stream again and call; `ok`, or what went wrong."""
    stream = await open_stream(caller.port, listen_request(caller, last_id))
    try:
        if stream.status != 200:
            return f"stream {stream.status}"
        told: set[str] = set()
        while len(told) < 3:
            message = await stream.message(10)
            if message is None:
                return f"stream ended after {told}"
            if message["method"].endswith("/list_changed"):
                told.add(message["method"])
    except TimeoutError:
        return f"only told of {told}"
    finally:
        stream.close()
    answer = await caller.call("talker_echo", {"text": "back"})
    return "ok" if answer.text == "back" else answer.outcome


async def _updated(caller: Client) -> bool:
    """Whether a session that subscribed before the restart hears of the resource after it."""
    stream = await open_stream(caller.port, listen_request(caller))
    try:
        flood: dict[str, Any] = {
            "method": "notifications/resources/updated",
            "params": {"uri": _URI},
            "count": 1,
        }
        await caller.call("talker_tell_flood", flood)
        while (message := await stream.message(5)) is not None:
            if message["method"] == "notifications/resources/updated":
                return True
    except TimeoutError:
        pass
    finally:
        stream.close()
        caller.close()
    return False
