"""The lives of stdio upstreams: orphans, groups, crash loops, slow starts, full pipes (F18-F22)."""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from pathlib import Path

from campaign.bystander import bystander
from campaign.trial import Trial, case
from campaign.upstream_stdio import recovery
from testkit import procfs
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import misbehaving
from testkit.waiting import eventually

ORPHAN_SECONDS = 2.0


async def _family(caller: Client) -> set[int]:
    """The child and seven grandchildren of it, all of which ignore a polite request to end.

    Four of them have called setsid, and two of these have lost their parent.
    """
    forked = await caller.call("rogue_fork_children", {"count": 3})
    detached = await caller.call("rogue_fork_children", {"count": 4, "detached": True})
    found = {int((await caller.call("rogue_pid")).text)}
    return found.union(map(int, forked.text.split()), map(int, detached.text.split()))


async def _survivors(pids: set[int], seconds: float) -> set[int]:
    """Who of them is alive after at most `seconds`; they are killed then, to leave nothing behind."""
    with contextlib.suppress(TimeoutError):
        await eventually(lambda: not any(map(procfs.alive, pids)), seconds, "the processes to end")
    left = {pid for pid in pids if procfs.alive(pid)}
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


@case("F18", "the child ignores EOF; kill -9 of the gateway", "no orphan 2 s later, grandchildren included")
async def killed_gateway(trial: Trial) -> None:
    """Nothing outlives a gateway that had no chance to clean up."""
    async with trial.gateway({"rogue": misbehaving("--ignore-eof")}, stall_seconds=None) as gateway:
        async with client(gateway.port, modern=True) as caller:
            family = await _family(caller)
        everyone = family | procfs.descendants(gateway.pid)
        trial.check("all are there before", all(map(procfs.alive, family)), family)
        killed = time.monotonic()
        await gateway.stop(signal.SIGKILL)
        orphans = await _survivors(everyone, ORPHAN_SECONDS)
        trial.measure("orphans", f"{len(orphans)} of {len(everyone)}")
        trial.measure("all gone after", time.monotonic() - killed, "s")
        trial.check("no orphan", not orphans, orphans)


@case(
    "F19",
    "the child forks grandchildren, some of which call setsid",
    "all of them are killed with the child, and with the gateway",
    quick_seconds=45,
)
async def forking_child(trial: Trial) -> None:
    """Grandchildren end when their parent is replaced and when the gateway stops."""
    async with (
        trial.gateway({"rogue": misbehaving("--ignore-eof")}) as gateway,
        client(gateway.port) as caller,
    ):
        family = await _family(caller)
        await caller.call("rogue_kill_self")
        left = await _survivors(family, 5)
        trial.measure("survivors of the child", f"{len(left)} of {len(family)}")
        trial.check("none survives the child", not left, left)
        await recovery(trial, caller, limit=5)
    async with trial.gateway({"rogue": misbehaving("--ignore-eof")}, stall_seconds=None) as gateway:
        async with client(gateway.port) as caller:
            family = await _family(caller)
        took = await gateway.stop(signal.SIGTERM)
        left = await _survivors(family, 2)
        trial.measure("survivors of SIGTERM", f"{len(left)} of {len(family)}")
        trial.measure("stopped in", took, "s")
        trial.check("none survives the gateway", not left, left)


def _spawns(log: Path) -> list[float]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [float(line.split()[1]) for line in lines]


@case(
    "F20",
    "crash loop, with the usual cap on restarts and with one of 3",
    "backoff grows, spawns per minute bounded, at the cap it is given up; state visible, others fine",
)
async def crash_loop(trial: Trial) -> None:
    """A server that crashes after each handshake is restarted ever more rarely."""
    log = trial.directory / "spawns"
    seconds = trial.size(quick=10, full=60)
    capped = trial.directory / "capped"
    servers = {
        "rogue": misbehaving("--crash-after", "0.1", "--spawn-log", str(log)),
        "capped": misbehaving("--crash-after", "0.1", "--spawn-log", str(capped), maxRestarts=3),
        "steady": misbehaving(),
    }
    async with trial.gateway(servers, ready=["steady"]) as gateway:
        states = set()
        async with bystander(trial, gateway, "steady_echo"):
            started = time.monotonic()
            while time.monotonic() - started < seconds:
                server = (await gateway.servers())["rogue"]
                states.add(server["state"])
                await asyncio.sleep(0.1)
        spawns = _spawns(log)
        gaps = [later - earlier for earlier, later in itertools.pairwise(spawns)]
        trial.measure("spawns", f"{len(spawns)} in {seconds} s")
        trial.measure("longest pause", max(gaps, default=0.0), "s")
        trial.check("restarted at all", len(spawns) >= 2, spawns)
        allowed = 10 if trial.quick else 20
        trial.check(f"at most {allowed} spawns", len(spawns) <= allowed, len(spawns))
        trial.check("the pauses grow", len(gaps) < 3 or gaps[-1] > gaps[0], gaps)
        trial.check("backoff is visible", "backoff" in states, states)
        trial.check("the cause is visible", server.get("last_error"), server)
        given_up = (await gateway.servers())["capped"]
        trial.measure("with a cap of 3", f"{given_up['state']} after {len(_spawns(capped))} spawns")
        trial.check("given up at the cap", given_up["state"] == "failed", given_up)
        trial.check("after 3 spawns", len(_spawns(capped)) == 3, _spawns(capped))
        trial.check("and the cause is shown", given_up.get("last_error"), given_up)


@case("F21", "slow start, exit before ready", "queued calls fail with the cause, in time")
async def never_ready(trial: Trial) -> None:
    """Calls to a server that is not there yet, or never will be, end with the reason."""
    delay = trial.size(quick=10, full=60)
    servers = {
        "slow": misbehaving("--start-delay", str(delay), startTimeout=3),
        "late": misbehaving("--start-delay", "1.5", startTimeout=20),
        "broken": misbehaving("--exit-before-ready", "cannot open the database"),
        "steady": misbehaving(),
    }
    async with trial.gateway(servers, ready=["steady"]) as gateway, client(gateway.port) as caller:
        slow, late, broken = await asyncio.gather(
            caller.call("slow:echo", {"text": "x"}),
            caller.call("late:echo", {"text": "x"}),
            caller.call("broken:echo", {"text": "x"}),
        )
        _check_cause(trial, "slow", slow, within=4.5)
        _check_cause(trial, "broken", broken, within=4.5)
        trial.measure("late", f"{late.outcome} {late.seconds:.2f} s")
        waits_or_says = late.ok or (late.failure and late.failure.code == "TEMPORARY_FAILURE")
        trial.check("late: waits or says try again", waits_or_says, late.outcome)
        await gateway.wait_ready(["late"])
        trial.check("late: answers once it is there", (await caller.call("late_echo", {"text": "x"})).ok)
        status = (await gateway.servers())["broken"]
        told = str(status.get("stderr_tail")) + str(status.get("last_error"))
        trial.check("the operator sees what it said", "cannot open the database" in told, status)


def _check_cause(trial: Trial, name: str, answer: Answer, *, within: float) -> None:
    failure = answer.failure
    trial.measure(name, f"{answer.outcome} {answer.seconds:.2f} s")
    codes = ("TEMPORARY_FAILURE", "CONNECTION_ERROR")
    trial.check(f"{name}: a typed error", failure is not None and failure.code in codes, answer.outcome)
    trial.check(f"{name}: nothing happened", failure is not None and failure.effect == "none", answer.outcome)
    trial.check(f"{name}: in time", answer.seconds <= within, f"{answer.seconds:.2f} s")
    trial.check(f"{name}: the text names the server", name in answer.text, answer.text)


@case("F22", "the child never reads stdin, pipe full", "write timeout, no stall, others fine, back again",
      quick_seconds=40)  # fmt: skip
async def full_pipe(trial: Trial) -> None:
    """Calls to a child that stopped reading end by a timeout, and the gateway stays free."""
    large = {"text": "x" * (1 << 20)}
    async with (
        trial.gateway({"rogue": misbehaving(timeout=2), "steady": misbehaving()}) as gateway,
        client(gateway.port) as caller,
    ):
        await caller.call("rogue_stop_reading")
        async with bystander(trial, gateway, "steady_echo"):
            answers = await asyncio.gather(*(caller.call("rogue_echo", large) for _ in range(8)))
        longest = max(answer.seconds for answer in answers)
        trial.measure("failed within", longest, "s")
        trial.measure("as", ", ".join(sorted({answer.outcome for answer in answers})))
        trial.check("all fail, typed", all(answer.failure for answer in answers))
        trial.check("within the timeout of 2 s", longest < 3.5, f"{longest:.2f} s")
        await recovery(trial, caller, limit=15)
