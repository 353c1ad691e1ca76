"""A gateway that stands still in mid-call while another one goes on with the same ledger (S09)."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from campaign.histories import CLASSES, said, states
from campaign.trial import Trial, case
from testkit.async_gateway_process import AsyncGatewayProcess, running
from testkit.clients.async_http import Answer, Client
from testkit.misbehaving_upstreams import audited_http
from testkit.servers.audit_log import read
from testkit.waiting import eventually

_PER_CLASS = 4
# Over before the pause is, so that the answer comes to a gateway that stands still.
_WORK_SECONDS = 1.0
# With the 30 s that a lease has beyond the longest call, it is over within 60 s.
_LONGEST_SECONDS = 15.0
# How long a caller waits at the other gateway for what the first one has.
_ASK_SECONDS = 2.0
_UNSAFE = ("pay", "charge", "book")


@contextlib.asynccontextmanager
async def _two_gateways(
    trial: Trial, config: dict[str, Any]
) -> AsyncIterator[tuple[AsyncGatewayProcess, AsyncGatewayProcess]]:
    first, second = trial.directory / "first", trial.directory / "second"
    for directory in (first, second):
        directory.mkdir()
    (first / "data").mkdir(mode=0o700)
    (second / "data").symlink_to(first / "data")
    async with running(first, config) as one, running(second, config) as other:
        try:
            for gateway in (one, other):
                await gateway.wait_ready(config["mcpServers"])
            yield one, other
        finally:
            # A stopped process does not handle SIGTERM.
            one.child.send_signal(signal.SIGCONT)
            trial.verdict.log = (one.log_lines() + other.log_lines())[-25:]


@case(
    "S09",
    "a gateway is stopped by SIGSTOP for 60 s (5 s) in mid-call; its calls are made again at another one",
    "no second execution, no stale write; both say the same in the end, and what was done",
    quick_seconds=60,
    full_seconds=180,
)
async def paused_gateway(trial: Trial) -> None:
    """A gateway that comes back after its lease writes nothing over what another has recorded."""
    seconds, deeds = trial.size(quick=5, full=60), trial.directory / "deeds"
    async with audited_http(deeds) as web:
        config = {"mcpServers": {"web": web.entry(timeout=10, maxTimeout=_LONGEST_SECONDS)}}
        async with _two_gateways(trial, config) as (stopped, other):
            refs = [f"{tool}{number}" for tool in CLASSES for number in range(_PER_CLASS)]
            first = Client(stopped.port, modern=True)
            calls = {ref: asyncio.create_task(_call(first, ref)) for ref in refs}
            await eventually(lambda: _arrived(deeds) >= set(refs), 10, "all calls to arrive")
            os.kill(stopped.pid, signal.SIGSTOP)
            second = Client(other.port, modern=True)
            at_once = await _all(second, refs)
            await asyncio.sleep(seconds - _ASK_SECONDS)
            later = await _all(second, refs)
            os.kill(stopped.pid, signal.SIGCONT)
            originals = dict(zip(refs, await asyncio.gather(*calls.values()), strict=True))
            ends = [await _settled(caller, refs) for caller in (first, second)]
            first.close()
            second.close()
            trial.check("both gateways are alive", stopped.alive and other.alive)
            broken = [
                line for gateway in (stopped, other) for line in gateway.log_lines() if "Traceback" in line
            ]
            trial.check("no traceback in the log", not broken, broken[:1])
        recorded = states(trial.directory / "first" / "data")
    _judge(trial, deeds, originals, ends, recorded)
    trial.measure("at once elsewhere", _outcomes(at_once))
    trial.measure("after the pause", _outcomes(later))
    trial.measure("original callers", _outcomes(originals))


def _arrived(deeds: Path) -> set[str]:
    return {line.ref for line in read(deeds) if line.event == "arrived"}


async def _call(caller: Client, ref: str) -> Answer:
    tool = ref.rstrip("0123456789")
    arguments = {"ref": ref, "before": _WORK_SECONDS}
    return await caller.call(f"web_{tool}", arguments, key=f"key-{ref}")


async def _all(caller: Client, refs: list[str]) -> dict[str, Answer]:
    async def one(ref: str) -> Answer | None:
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                return await _call(caller, ref)
        except TimeoutError:
            # Still waiting for the gateway that has it.
            return None

    answers = await asyncio.gather(*map(one, refs))
    return {ref: answer for ref, answer in zip(refs, answers, strict=True) if answer is not None}


async def _settled(caller: Client, refs: list[str]) -> dict[str, Answer]:
    """What each call has come to, once none is under way any more."""
    answers = {ref: await _call(caller, ref) for ref in refs}
    for ref in refs:
        for _ in range(100):
            if answers[ref].outcome.startswith(("ok", "IN_DOUBT")):
                break
            await asyncio.sleep(0.2)
            answers[ref] = await _call(caller, ref)
    return answers


def _outcomes(answers: dict[str, Answer]) -> str:
    found: dict[str, int] = {}
    for answer in answers.values():
        found[answer.outcome] = found.get(answer.outcome, 0) + 1
    return ", ".join(f"{outcome} {count}" for outcome, count in sorted(found.items())) or "all wait"


def _judge(
    trial: Trial,
    deeds: Path,
    originals: dict[str, Answer],
    ends: list[dict[str, Answer]],
    recorded: dict[str, str],
) -> None:
    done = [line for line in read(deeds) if line.event == "executed"]
    nonces = {(line.ref, line.nonce) for line in done}
    twice = [
        ref for ref in originals if ref.startswith(_UNSAFE) and sum(line.ref == ref for line in done) != 1
    ]
    trial.measure("executed", f"{len(done)} of {len(originals)} calls")
    trial.check("what must not happen twice happened once", not twice, twice[:3])
    differ = [ref for ref in originals if said(ends[0][ref]) != said(ends[1][ref])]
    trial.check("both gateways say the same", not differ, differ[:3])
    # A probe says that it was done, and not what was answered.
    told = [
        (ref, said(answer))
        for answers in (originals, *ends)
        for ref, answer in answers.items()
        if answer.ok and said(answer)
    ]
    wrong = [ref for ref, nonce in told if (ref, nonce) not in nonces]
    trial.check("every answer is one of what was done", not wrong and told, wrong[:3])
    open_ones = [ref for ref in originals if not ends[0][ref].outcome.startswith(("ok", "IN_DOUBT"))]
    trial.check("each has ended", not open_ones, open_ones[:3])
    misfiled = [
        f"{ref} {recorded.get(f'key-{ref}')}"
        for ref in originals
        if (recorded.get(f"key-{ref}") == "done") != ends[0][ref].ok
    ]
    trial.check("the ledger says so too", not misfiled, misfiled[:3])
    late = [ref for ref in originals if originals[ref].ok and said(originals[ref]) != said(ends[0][ref])]
    trial.check("no stale write", not [ref for ref in late if ref.startswith(_UNSAFE)], late[:3])
