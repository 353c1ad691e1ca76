"""How calls end before their answer: by a client that leaves or cancels, and by the maximum (R05, R06)."""

import asyncio
from collections.abc import Callable
from typing import Any

from campaign.streams import EventStream, open_stream
from campaign.trial import Trial, case
from campaign.upstream_http import SPARE_FILES
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import LEGACY, MODERN, Client, client
from testkit.clients.async_stdio import AsyncStdioClient, stdio_gateway
from testkit.misbehaving_upstreams import MisbehavingHttpProcess, chatty, misbehaving_http, recorded
from testkit.waiting import eventually

CANCEL_SECONDS = 1.0
_META = "io.modelcontextprotocol/"


def _servers(trial: Trial, web: MisbehavingHttpProcess, **settings: Any) -> dict[str, Any]:
    return {
        "old": chatty(trial.directory, "old", **settings),
        "new": chatty(trial.directory, "new", "--era", "stateless", **settings),
        "web": web.entry(**settings),
    }


def _hold(server: str) -> str:
    """The tool of a server that goes on for ever and says so."""
    return f"{server}_hold" if server == "web" else f"{server}_progress_forever"


class _Endings:
    """How many cancellations each upstream received."""

    def __init__(self, trial: Trial, web: MisbehavingHttpProcess) -> None:
        self._trial = trial
        self._web = web

    def count(self, server: str) -> int:
        """So many until now."""
        if server == "web":
            return sum(row["line"] == "closed" for row in self._web.received())
        return len(recorded(self._trial.directory, server, "cancelled"))

    async def next(self, server: str, do: Callable[[], Any]) -> float:
        """Do something; gives the seconds until the upstream receives one more cancellation."""
        before = self.count(server)
        done = do()
        if asyncio.iscoroutine(done):
            await done
        return await eventually(lambda: self.count(server) > before, 5, f"{server} to be told")


@case(
    "R05",
    "clients of both eras leave or cancel a call, towards servers of both eras",
    "cancelled upstream within 1 s; no frame afterwards",
    quick_seconds=40,
)
async def cancellations(trial: Trial) -> None:
    """Closing the response cancels in the stateless era, a notification in the other and on stdio."""
    async with misbehaving_http(trial.directory, "web", "--stateless") as web:
        servers, endings = _servers(trial, web), _Endings(trial, web)
        async with trial.gateway(servers, spare_files=SPARE_FILES) as gateway:
            seconds: list[float] = []
            frames = 0
            for server in servers:
                for leave in (_leave_half, _leave_whole, _cancel):
                    took, after = await leave(gateway, server, endings)
                    seconds.append(took)
                    frames += after
            trial.measure(
                "over HTTP", f"cancelled upstream after {max(seconds):.3f} s at most, of {len(seconds)}"
            )
            trial.check("cancelled upstream within 1 s", max(seconds) <= CANCEL_SECONDS, seconds)
            trial.check("no frame after the client left", frames == 0, frames)
        for version in (LEGACY, MODERN):
            config = {"mcpServers": servers}
            async with stdio_gateway(trial.directory / f"stdio-{version}", config) as pipe:
                took, more = await _cancel_on_stdio(pipe, version, endings)
                frames += more
                trial.measure(f"stdio {version}", f"cancelled upstream after {took:.3f} s")
                trial.check(f"stdio {version}: within 1 s", took <= CANCEL_SECONDS, took)
        trial.measure("frames afterwards", frames)
        trial.check("no frame after a cancellation on stdio", frames == 0, frames)


async def _begin(gateway: AsyncGatewayProcess, caller: Client, server: str) -> EventStream:
    """A call on a stream on which something has been said."""
    stream = await open_stream(gateway.port, caller.call_request(_hold(server), progress=True))
    await stream.message()
    return stream


async def _leave_half(gateway: AsyncGatewayProcess, server: str, endings: _Endings) -> tuple[float, int]:
    """Close only our side, so that what the gateway says afterwards can be heard."""
    async with client(gateway.port, modern=True) as caller:
        stream = await _begin(gateway, caller, server)
        took = await endings.next(server, stream.connection.writer.write_eof)
        frames = 0
        try:
            while await stream.message(0.6) is not None:
                frames += 1
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            pass
        stream.close()
    return took, frames


async def _leave_whole(gateway: AsyncGatewayProcess, server: str, endings: _Endings) -> tuple[float, int]:
    async with client(gateway.port, modern=True) as caller:
        stream = await _begin(gateway, caller, server)
        return await endings.next(server, stream.close), 0


async def _cancel(gateway: AsyncGatewayProcess, server: str, endings: _Endings) -> tuple[float, int]:
    """A client of the handshake era says so; its response ends, and nothing but its end comes."""
    async with client(gateway.port) as caller:
        request = caller.call_request(_hold(server), progress=True)
        stream = await open_stream(gateway.port, request)
        await stream.message()
        request_id = int(request.partition(b'"id":')[2].partition(b",")[0])
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": request_id}}
        took = await endings.next(server, lambda: caller.tell(cancelled))
        # What was on its way may still come, and then the response ends.
        while await stream.message(2) is not None:
            pass
        stream.close()
    return took, 0


async def _cancel_on_stdio(pipe: AsyncStdioClient, version: str, endings: _Endings) -> tuple[float, int]:
    """Cancel one call to each server; the longest wait, and how much was said of them afterwards."""
    meta: dict[str, Any] = {}
    if version == MODERN:
        meta = {_META + "protocolVersion": MODERN, _META + "clientCapabilities": {}}
    else:
        about = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        pipe.send({"id": 0, "method": "initialize", "params": about})
        await pipe.answer(0)
        pipe.send({"method": "notifications/initialized"})
    longest = 0.0
    for number, server in enumerate(("old", "new", "web"), start=1):
        params = {"name": _hold(server), "arguments": {}, "_meta": meta | {"progressToken": f"t{number}"}}
        pipe.send({"id": number, "method": "tools/call", "params": params})
        # The lists of servers may change before the call has reached its own.
        while (await pipe.message()).get("method") != "notifications/progress":
            pass
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": number}}
        longest = max(longest, await endings.next(server, lambda cancelled=cancelled: pipe.send(cancelled)))  # type: ignore[misc]
    pipe.send(
        {
            "id": 9,
            "method": "tools/call",
            "params": {"name": "old_echo", "arguments": {"text": "x"}, "_meta": meta},
        }
    )
    await pipe.answer(9)
    frames = 0
    try:
        while True:
            # That the tools have changed since the start is no frame of a call.
            frames += not str((await pipe.message(0.6)).get("method")).endswith("/list_changed")
    except TimeoutError:
        return longest, frames


@case(
    "R06", "progress for ever, from servers of both eras to clients of both", "every call ends at maxTimeout"
)
async def endless_progress(trial: Trial) -> None:
    """Progress keeps a call alive beyond its timeout, and not beyond its maximum."""
    timeout, maximum = 1.0, 2.5
    async with misbehaving_http(trial.directory, "web", "--stateless") as web:
        servers, endings = _servers(trial, web, timeout=timeout, maxTimeout=maximum), _Endings(trial, web)
        async with trial.gateway(servers, spare_files=SPARE_FILES + 4) as gateway:
            callers = [Client(gateway.port, modern=modern) for modern in (False, True)]
            await asyncio.gather(*(caller.open() for caller in callers))
            calls = [(caller, server) for caller in callers for server in servers]
            answers = await asyncio.gather(
                *(caller.call(_hold(server), progress=True) for caller, server in calls)
            )
            for (caller, server), answer in zip(calls, answers, strict=True):
                label = f"{'new' if caller.modern else 'old'} client, {server}"
                trial.measure(
                    label, f"{answer.outcome} {answer.seconds:.2f} s, {len(answer.events) - 1} reports"
                )
                right = answer.failure and answer.failure.code == "TIMEOUT"
                trial.check(
                    f"{label}: cut by the maximum",
                    right and abs(answer.seconds - maximum) < 0.6,
                    answer.seconds,
                )
                trial.check(f"{label}: progress came", len(answer.events) > 3, len(answer.events))
            for server in servers:
                await eventually(lambda server=server: endings.count(server) >= 2, 2, f"{server} to be told")  # type: ignore[misc]
            trial.check("the servers were told", all(endings.count(server) == 2 for server in servers))
            for caller in callers:
                caller.close()
