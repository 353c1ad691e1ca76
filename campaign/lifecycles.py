"""Servers and the trust in them: hints that lie, starts and ends, the era that they speak (R18, R20, R24)."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from campaign.paged import OWN
from campaign.trial import Trial, case
from testkit.async_gateway_process import AsyncGatewayProcess, running
from testkit.clients.async_http import client
from testkit.misbehaving_upstreams import chatty, recorded
from testkit.waiting import eventually

_TRUST_ME = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False, "openWorldHint": False}


@case(
    "R18",
    "tools that call themselves read-only and idempotent, of a server that dies in the call",
    "without trust nothing is sent twice on the word of a server; the hints are shown as they are",
)
async def untrusted_hints(trial: Trial) -> None:
    """What a server says of itself decides something only where its operator trusts it."""
    tools = [
        {"name": name, "inputSchema": {"type": "object"}, "annotations": _TRUST_ME}
        for name in ("ask_and_die", "echo")
    ]
    script = {"tools": tools, "own_tools": False, "serverInfo": "headgate-trusted"}
    servers = {
        "old": chatty(trial.directory, "old", script=script, trustAnnotations=False),
        "new": chatty(trial.directory, "new", "--era", "stateless", script=script, trustAnnotations=False),
        "trusted": chatty(trial.directory, "trusted", script=script),
    }
    async with trial.gateway(servers) as gateway:
        for modern in (False, True):
            async with client(gateway.port, modern=modern) as caller:
                for server in ("old", "new"):
                    await gateway.wait_ready([server])
                    label = f"{'new' if modern else 'old'} client, {server}"
                    before = len(recorded(trial.directory, server, "call ask_and_die"))
                    answer = await caller.call(f"{server}_ask_and_die", {"count": 0, "seconds": 0})
                    failure = answer.failure
                    trial.check(
                        f"{label}: effect unknown", failure and failure.effect == "unknown", answer.outcome
                    )
                    await gateway.wait_ready([server])
                    sent = len(recorded(trial.directory, server, "call ask_and_die")) - before
                    trial.measure(label, f"{answer.outcome}, sent {sent} time")
                    trial.check(f"{label}: sent once", sent == 1, sent)
                    listed = (await caller.request("tools/list")).result["tools"]
                    shown = [tool.get("annotations") for tool in listed if tool["name"] not in OWN]
                    trial.check(
                        f"{label}: shown as they are", all(one == _TRUST_ME for one in shown), shown[:1]
                    )
        async with client(gateway.port) as caller:
            answer = await caller.call("trusted_ask_and_die", {"count": 0, "seconds": 0})
            sent = len(recorded(trial.directory, "trusted", "call ask_and_die"))
            trial.measure("with trust", f"{answer.outcome}, sent {sent} times")
            trial.check("with trust what only reads is sent again", sent > 1, sent)


@case(
    "R20",
    "stderr at the start; an unexpected end; the end of the gateway, with a child that will not leave",
    "no error; restarted and listed again; stdin closed, then SIGTERM, then SIGKILL",
    quick_seconds=40,
)
async def lifecycle(trial: Trial) -> None:
    """A child is started, replaced and ended in the order that the specification gives."""
    first = {
        "tools": [{"name": "before", "inputSchema": {"type": "object"}}],
        "prompts": [{"name": "before"}],
    }
    options = ("--ignore-eof", "--stderr", "ERROR: this is only a log line")
    servers = {"talker": chatty(trial.directory, "talker", *options, script=first)}
    async with (
        trial.gateway(servers, stall_seconds=None) as gateway,
        client(gateway.port, modern=True) as caller,
    ):
        status = (await gateway.servers())["talker"]
        trial.check("stderr is no error", status["state"] == "ready" and not status.get("last_error"), status)
        second = {
            "tools": [{"name": "after", "inputSchema": {"type": "object"}}],
            "prompts": [{"name": "after"}],
        }
        (trial.directory / "talker.script.json").write_text(json.dumps(second))
        started = time.monotonic()
        os.kill(status["pid"], signal.SIGKILL)
        await eventually(lambda: _lists_after(caller), 10, "the server to be listed again")
        trial.measure("listed again after", time.monotonic() - started, "s")
        prompts = (await caller.request("prompts/list")).result["prompts"]
        trial.check("prompts too", [prompt["name"] for prompt in prompts] == ["talker_after"], prompts)
        # It is listed as soon as it has told, which is a moment before it counts as ready.
        await eventually(lambda: _restarted_once(gateway), 2, "the restart to be counted")
        # The record of the second child alone.
        (trial.directory / "talker.record").write_text("")
        took = await gateway.stop(signal.SIGTERM)
        eof, term = (_when(trial.directory, word) for word in ("eof", "term"))
        trial.measure("ended in", took, "s")
        trial.measure("SIGTERM after the end of stdin", (term or 0.0) - (eof or 0.0), "s")
        trial.check(
            "stdin was closed first", eof is not None and term is not None and eof < term, (eof, term)
        )
        trial.check("it was given time before SIGTERM", eof and term and term - eof >= 1.0, (eof, term))
        trial.check("and made to leave after it", took < 10, took)


async def _lists_after(caller: Any) -> bool:
    return "talker_after" in await caller.list_tools()


async def _restarted_once(gateway: AsyncGatewayProcess) -> bool:
    return (await gateway.servers())["talker"].get("restarts") == 1


def _when(directory: Path, word: str) -> float | None:
    lines = recorded(directory, "talker", word)
    return float(lines[0].split()[1]) if lines else None


def _of_each_era(directory: Path) -> dict[str, dict[str, Any]]:
    """Servers that answer `server/discover` in different ways."""

    def server(name: str, *options: str, supported: tuple[str, ...] = ()) -> dict[str, Any]:
        return chatty(directory, name, *options, script={"supported": supported})

    return {
        "both": server("both", "--era", "both"),
        "new": server("new", "--era", "stateless"),
        "old": server("old"),
        # Errors that only a server of the stateless era gives: it is broken, and not old.
        "mismatch": server("mismatch", "--era", "both", "--discover-error", "-32020"),
        "missing": server("missing", "--era", "both", "--discover-error", "-32021"),
        "later": server("later", "--era", "both", "--discover-error", "-32022", supported=("2031-01-01",)),
        # Errors with which an old server answers what it does not know.
        "invalid": server("invalid", "--discover-error", "-32600"),
        "versions": server("versions", "--discover-error", "-32022", supported=("2025-11-25",)),
    }


_READY = {
    "both": "2026-07-28",
    "new": "2026-07-28",
    "old": "2025-11-25",
    "invalid": "2025-11-25",
    "versions": "2025-11-25",
}
_BROKEN = ("mismatch", "missing", "later")


@case(
    "R24",
    "servers of both eras, of either, and with errors that only a modern one gives",
    "the newest era that a server has; no fallback on a modern error; the verdict remembered",
    quick_seconds=40,
)
async def eras(trial: Trial) -> None:
    """Which era a server speaks is found out once; a modern error says that it is a modern one."""
    servers = _of_each_era(trial.directory)
    async with trial.gateway(servers, ready=_READY, stall_seconds=None) as gateway:
        await _check_verdicts(trial, gateway)
        asked = {name: _asked(trial.directory, name) for name in servers}
        trial.measure("asked to shake hands after a modern error", sum(asked[name][1] for name in _BROKEN))
        trial.check("no fallback", not any(asked[name][1] for name in _BROKEN), asked)
        trial.check("the newest era is taken", asked["both"] == (1, 0), asked["both"])
        trial.check("an old one is asked in its words", asked["old"] == (1, 1), asked["old"])
        await gateway.stop()
        for name in servers:
            (trial.directory / f"{name}.record").write_text("")
        async with running(gateway.log.parent, {"mcpServers": servers}, gateway.port) as second:
            await second.wait_ready(_READY)
            await _check_verdicts(trial, second)
            again = {name: _asked(trial.directory, name) for name in _READY}
            trial.measure("asked after a restart", ", ".join(f"{n} {d}+{i}" for n, (d, i) in again.items()))
            remembered = all(again[name] == (0, 1) for name in ("old", "invalid", "versions"))
            trial.check("the verdict is remembered", remembered, again)


async def _check_verdicts(trial: Trial, gateway: AsyncGatewayProcess) -> None:
    await asyncio.sleep(0.3)
    states = await gateway.servers()
    versions = {name: states[name].get("protocol_version") for name in _READY}
    trial.measure("versions", ", ".join(f"{name} {version}" for name, version in versions.items()))
    trial.check("each speaks what it should", versions == _READY, versions)
    broken = {name: states[name] for name in _BROKEN}
    trial.check("the broken are not served", all(one["state"] != "ready" for one in broken.values()), broken)
    trial.check("and the operator sees why", all(one.get("last_error") for one in broken.values()), broken)


def _asked(directory: Path, name: str) -> tuple[int, int]:
    """How often a server was asked in the words of each era."""
    return len(recorded(directory, name, "server/discover")), len(recorded(directory, name, "initialize"))
