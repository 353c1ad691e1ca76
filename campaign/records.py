"""The ledger under strain: results of 100 MB, a disk that is full, and a model of it (S10, S12, S14)."""

import asyncio
import os
import re
import sys
from functools import partial
from pathlib import Path

from campaign.child_bytes import TextDigest
from campaign.histories import said
from campaign.small_disk import SmallDisk, small_disk
from campaign.trial import MEBIBYTE, WHOLE, Trial, Usage, case
from testkit.async_gateway_process import AsyncGatewayProcess, running
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import audited, misbehaving
from testkit.parts import ROOT
from testkit.servers.audit_log import read
from testkit.waiting import eventually

# Until a refusal, since SQLite may have room in its own file on a disk that is full.
_MOST_CALLS = 400
# So many characters make an answer that is too large for a row.
_LARGE = 100_000


@case(
    "S10",
    "the model of the promises beside the implementation: 100,000 steps (500)",
    "they agree at every step",
    quick_seconds=60,
    full_seconds=3600,
)
async def model(trial: Trial) -> None:
    """Any sequence of calls, faults, kills and clocks does what the model says."""
    steps = trial.size(quick=500, full=100_000)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-q",
        "tests/delivery/test_machine.py",
        cwd=ROOT, env=os.environ | {"HEADGATE_MACHINE_STEPS": str(steps)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        said_last, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
    lines = said_last.decode(errors="replace").splitlines()
    trial.measure("steps", steps)
    trial.measure("pytest", lines[-1] if lines else "nothing")
    passed = re.search(r"\d+ passed", lines[-1]) if lines else None
    trial.check("the model and the implementation agree", child.returncode == 0 and passed, lines[-15:])


@case(
    "S12",
    "a result of 128 MiB with a key, and its replay, also after a restart",
    "byte for byte; executed once; memory bounded",
    quick_seconds=60,
    full_seconds=180,
)
async def large_replay(trial: Trial) -> None:
    """A large answer is kept on disk and told again as it was."""
    size, record = trial.size(quick=101, full=128) * MEBIBYTE, trial.directory / "record"
    directory = trial.directory / "gateway"
    directory.mkdir()
    config = {
        "mcpServers": {"rogue": misbehaving("--record", str(record), timeout=60)},
        "proxySettings": WHOLE,
    }
    answers: list[bool] = []
    port = 0
    for life in ("first", "after a restart"):
        async with running(directory, config, port) as gateway, client(gateway.port, modern=True) as caller:
            port = gateway.port
            await gateway.wait_ready(["rogue"])
            for _ in range(2):
                usage, text = Usage(gateway), TextDigest(size)
                answer = await caller.call("rogue_big_line", {"size": size}, take=text.take, key="large")
                trial.check(f"{life}: whole", answer.status == 200, answer.status)
                answers.append(text.whole)
                growth = usage.peak_growth_mib
                trial.measure(f"{life} {len(answers)}", f"{answer.seconds:.1f} s, RSS +{growth:.0f} MB")
                trial.check(f"{life}: RSS at most +64 MB", growth <= 64, f"{growth:.0f} MB")
            await gateway.stop()
    done = sum(line.startswith("call big_line") for line in record.read_text().splitlines())
    trial.measure("right by SHA-256", f"{sum(answers)} of {len(answers)}")
    trial.measure("executed", done)
    trial.check("byte for byte", all(answers), answers)
    trial.check("executed once", done == 1, done)


@case(
    "S14",
    "the disk of the ledger is full, before a call and while it is under way, with small and large answers",
    "what must not happen twice is not sent; reading goes on, flagged; with room again all works",
    quick_seconds=60,
)
async def full_disk(trial: Trial) -> None:
    """Without a record nothing is done that needs one."""
    deeds, directory = trial.directory / "deeds", trial.directory / "gateway"
    with small_disk(directory / "data") as disk:
        trial.measure("by", disk.way)
        config = {"mcpServers": {"bank": audited(deeds)}, "proxySettings": WHOLE}
        async with running(directory, config) as gateway:
            await gateway.wait_ready(["bank"])
            async with client(gateway.port, modern=True) as caller:
                await _with_a_full_disk(trial, gateway, caller, disk, deeds)
            trial.check("the gateway is alive", gateway.alive)
            broken = [line for line in gateway.log_lines() if "Traceback" in line]
            trial.check("no traceback in the log", not broken, broken[:1])


async def _with_a_full_disk(
    trial: Trial, gateway: AsyncGatewayProcess, caller: Client, disk: SmallDisk, deeds: Path
) -> None:
    first = await _pay(caller, "before")
    large = await _pay(caller, "large before", size=_LARGE)
    trial.check("a large answer before it", large.ok and len(large.raw) > 2 * _LARGE, large.outcome)
    cut = asyncio.create_task(_pay(caller, "cut", after=1.0))
    large_cut = asyncio.create_task(_pay(caller, "large cut", after=1.0, size=_LARGE))
    for ref in ("cut", "large cut"):
        await eventually(partial(_count, deeds, "arrived", ref), 5, "the call to arrive")
    disk.fill(gateway)
    refused = await _until_refused(caller)
    trial.measure("refused", refused.outcome)
    trial.check("refused, nothing sent", refused.outcome == "SERVICE_UNAVAILABLE/none", refused.outcome)
    for tool in ("put", "charge", "book", "pay"):
        answer = await caller.call(f"bank_{tool}", {"ref": f"full {tool}"}, key=f"full {tool}")
        trial.check(f"{tool}: refused", answer.outcome == "SERVICE_UNAVAILABLE/none", answer.outcome)
    sent = sum(line.ref.startswith("full ") for line in read(deeds))
    trial.measure("sent", sent)
    trial.check("sent = 0", sent == 0, sent)
    reading = await caller.call("bank_get", {"ref": "reading"}, key="reading")
    trial.measure("reading", f"{reading.outcome}, unrecorded {reading.operation.get('unrecorded')}")
    trial.check("reading goes on, flagged", reading.ok and reading.operation.get("unrecorded"), reading.raw)
    plain = await caller.call("bank_pay", {"ref": "plain"})
    trial.check("calls without a key go on", plain.ok, plain.outcome)
    again = await _pay(caller, "before")
    trial.check("what was recorded is known", again.ok and said(again) == said(first), again.outcome)
    again = await _pay(caller, "large before", size=_LARGE)
    trial.check("a large answer is known too", again.ok and said(again) == said(large), again.outcome)
    cut_large = await large_cut
    await _after_it(trial, gateway, caller, disk, deeds, await cut)
    await _after_large(trial, caller, deeds, cut_large)


async def _after_large(trial: Trial, caller: Client, deeds: Path, cut: Answer) -> None:
    """An answer that is too large to be held back is lost, and its call is not made again."""
    trial.measure("large, full at the answer", cut.outcome)
    trial.check("no large answer without a record", not cut.ok, cut.outcome)
    found = await _pay(caller, "large cut", after=1.0, size=_LARGE)
    done = _count(deeds, "executed", "large cut")
    trial.measure("large, asked again", f"{found.outcome}, executed {done}")
    trial.check("large, asked again: executed once", done == 1, done)
    trial.check("and in doubt, or answered", found.ok or found.outcome == "IN_DOUBT/unknown", found.outcome)
    new = await _pay(caller, "large after", size=_LARGE)
    trial.check("with room again a large answer is recorded", new.ok, new.outcome)


async def _after_it(
    trial: Trial, gateway: AsyncGatewayProcess, caller: Client, disk: SmallDisk, deeds: Path, cut: Answer
) -> None:
    disk.free(gateway)
    trial.measure("full at the answer", cut.outcome)
    trial.check("no answer without a record", not cut.ok, cut.outcome)
    found = await _pay(caller, "cut", after=1.0)
    nonces = [line.nonce for line in read(deeds) if line.ref == "cut" and line.nonce]
    trial.measure("asked again", f"{found.outcome}, executed {len(nonces)}")
    trial.check("asked again: executed once", len(nonces) == 1, nonces)
    trial.check("and answered", found.ok and said(found) in nonces, found.outcome)
    for tool in ("put", "charge", "book", "pay"):
        answer = await caller.call(f"bank_{tool}", {"ref": f"full {tool}"}, key=f"full {tool}")
        trial.check(f"{tool}: works again", answer.ok, answer.outcome)
        trial.check(f"{tool}: executed once", _count(deeds, "executed", f"full {tool}") == 1)


def _count(deeds: Path, event: str, ref: str) -> int:
    return sum(line.event == event and line.ref == ref for line in read(deeds))


async def _pay(caller: Client, ref: str, **arguments: float) -> Answer:
    return await caller.call("bank_pay", {"ref": ref, **arguments}, key=ref)


async def _until_refused(caller: Client) -> Answer:
    for number in range(_MOST_CALLS):
        answer = await _pay(caller, f"filling {number}")
        if not answer.ok:
            break
    return answer
