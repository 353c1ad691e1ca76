"""Packets that vanish on the way to an HTTP upstream (F24)."""

import asyncio
import json
import os
import sys

from campaign.trial import Trial, case
from campaign.upstream_http import SPARE_FILES
from testkit.clients.async_http import Answer, Client, client
from testkit.faults.tcp_proxy import Faults, fault_proxy, full_backlog
from testkit.misbehaving_upstreams import MisbehavingHttpProcess, misbehaving_http
from testkit.parts import ROOT
from testkit.waiting import eventually

_INSIDE = "CAMPAIGN_IN_A_NETWORK_OF_ITS_OWN"
_TIMEOUT, _CONNECT_TIMEOUT = 3.0, 1.0


@case("F24", "packets dropped in mid-call", "deadline honoured; connect timeout and read timeout told apart",
      quick_seconds=45, full_seconds=60)  # fmt: skip
async def dropped_packets(trial: Trial) -> None:
    """By iptables in a network namespace where that works, else by a proxy that swallows everything."""
    if os.environ.get(_INSIDE):
        await _with_iptables(trial)
    elif await _shell("unshare -n sh -c 'ip link set lo up && iptables -L -n'") == 0:
        await _again_in_a_namespace(trial)
    else:
        await _with_a_blackhole(trial)


async def _shell(command: str) -> int:
    child = await asyncio.create_subprocess_shell(
        command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return await child.wait()


async def _again_in_a_namespace(trial: Trial) -> None:
    """Run this same case in a process that has a network of its own, and take over what it found."""
    found = trial.directory / "inside.json"
    quick = ["--quick"] if trial.quick else []
    child = await asyncio.create_subprocess_exec(
        "unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh",
        sys.executable, "-m", "campaign", "F24", *quick, "--json", str(found),
        cwd=ROOT, env=os.environ | {_INSIDE: "1"},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await child.wait()
    finally:
        if child.returncode is None:
            child.terminate()
    (row,) = json.loads(found.read_text())
    trial.verdict.measured |= row["measured"]
    trial.verdict.failures += row["failures"]
    trial.check("the case ran in its namespace", row["passed"] or row["failures"])


async def _with_iptables(trial: Trial) -> None:
    trial.measure("by", "iptables DROP in a network namespace")
    async with misbehaving_http(trial.directory) as upstream:
        # One attempt, so that what is measured is the timeout and not how often it is tried.
        settings = {"timeout": _TIMEOUT, "connectTimeout": _CONNECT_TIMEOUT, "retry": {"attempts": 1}}
        servers = {"rogue": upstream.entry(**settings)}
        async with trial.gateway(servers, spare_files=SPARE_FILES) as gateway, client(gateway.port) as caller:
            call = await _call_under_way(caller, upstream)
            for side in ("dport", "sport"):
                rule = f"iptables -I INPUT -p tcp --{side} {upstream.port} -j DROP"
                trial.check("the rule is set", await _shell(rule) == 0, rule)
            _check_read(trial, await call)
            answers = [await caller.call("rogue_echo", {"text": "x"}) for _ in range(3)]
            unreachable = [
                a for a in answers if a.outcome in ("CONNECTION_ERROR/none", "TEMPORARY_FAILURE/none")
            ]
            trial.check("a later call cannot connect", unreachable, [a.outcome for a in answers])
            for answer in unreachable[:1]:
                _check_connect(trial, answer)
            await _shell("iptables -F INPUT")
            back = await eventually(lambda: _answers(caller), 40, "the upstream to be back")
            trial.measure("back after", back, "s")


async def _with_a_blackhole(trial: Trial) -> None:
    trial.measure("by", "a blackhole proxy and a full backlog (no network namespace here)")
    async with misbehaving_http(trial.directory) as upstream, fault_proxy(upstream.port) as proxy:
        settings = {"timeout": _TIMEOUT, "connectTimeout": _CONNECT_TIMEOUT, "retry": {"attempts": 1}}
        with full_backlog() as deaf_port:
            servers = {
                "rogue": {"url": f"http://127.0.0.1:{proxy.port}/mcp"} | settings,
                "deaf": {"url": f"http://127.0.0.1:{deaf_port}/mcp"} | settings,
            }
            async with (
                trial.gateway(servers, ready=["rogue"], spare_files=SPARE_FILES) as gateway,
                client(gateway.port) as caller,
            ):
                call = await _call_under_way(caller, upstream)
                proxy.faults = Faults(blackhole=True)
                _check_read(trial, await call)
                _check_connect(trial, await caller.call("deaf:echo", {"text": "x"}))


async def _call_under_way(caller: Client, upstream: MisbehavingHttpProcess) -> asyncio.Task[Answer]:
    call = asyncio.create_task(caller.call("rogue_latency", {"seconds": 60}))
    await eventually(upstream.calls, 5, "the call to arrive")
    return call


async def _answers(caller: Client) -> bool:
    return (await caller.call("rogue_echo", {"text": "x"})).ok


def _check_read(trial: Trial, answer: Answer) -> None:
    trial.measure("read", f"{answer.outcome} {answer.seconds:.2f} s")
    trial.check("the call under way times out", answer.outcome == "TIMEOUT/unknown", answer.outcome)
    in_time = _TIMEOUT - 0.1 <= answer.seconds <= _TIMEOUT + 1
    trial.check(f"after {_TIMEOUT:g} s", in_time, f"{answer.seconds:.2f} s")


def _check_connect(trial: Trial, answer: Answer) -> None:
    trial.measure("connect", f"{answer.outcome} {answer.seconds:.2f} s")
    failure = answer.failure
    told = failure is not None and failure.code in ("CONNECTION_ERROR", "TEMPORARY_FAILURE")
    trial.check("a later call cannot connect", told, answer.outcome)
    trial.check("nothing was sent", failure is not None and failure.effect == "none", answer.outcome)
    trial.check(
        f"within the connect timeout of {_CONNECT_TIMEOUT:g} s", answer.seconds <= _CONNECT_TIMEOUT + 0.7,
        f"{answer.seconds:.2f} s",
    )  # fmt: skip
