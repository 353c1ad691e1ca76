"""The file of the ledger on a host that fails: a full disk, EIO, kills, damage, locks (F34, F35, F36)."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

from campaign.histories import judge, said
from campaign.host_faults import failing_syncs, may_trace, preloaded_faults, privileged
from campaign.kills import Arena, check_tally
from campaign.small_disk import ran, small_disk
from campaign.trial import HEALTH_SECONDS, Trial, case
from testkit.async_gateway_process import AsyncGatewayProcess, running
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import audited
from testkit.servers.audit_log import read
from testkit.waiting import eventually

_CALLERS = 8
_REFUSED = "SERVICE_UNAVAILABLE/none"
# So that a disk of 2 MB is full after some hundred calls.
_PAD = "x" * 2_000
_MOST_CALLS = 20_000
# The gateway waits 5 s for a lock of another process, and a call may come while others have begun to wait.
_LOCK_SECONDS = 12.0
_FLIPPED_BYTES = 60


class _Payments:
    """Payments with keys, what their callers got, and what was done."""

    def __init__(self, gateway: AsyncGatewayProcess, deeds: Path) -> None:
        self.gateway = gateway
        self.deeds = deeds
        self.told: dict[str, str] = {}
        self.outcomes: Counter[str] = Counter()
        self.pad = ""
        self._numbers = itertools.count()

    async def pay(self, caller: Client, ref: str) -> Answer:
        """Make it once."""
        answer = await caller.call("bank_pay", {"ref": ref, "pad": self.pad}, key=ref)
        self.outcomes[answer.outcome] += 1
        if answer.ok:
            self.told.setdefault(ref, said(answer))
        return answer

    async def many(self, until: Callable[[Answer], bool], most: int = _MOST_CALLS, label: str = "") -> None:
        """Make new ones, several at once, until one of the answers is what is waited for."""
        over = asyncio.Event()

        async def work() -> None:
            async with client(self.gateway.port, modern=True) as caller:
                while not over.is_set() and (number := next(self._numbers)) < most:
                    if until(await self.pay(caller, f"{label}{number}")):
                        over.set()

        await asyncio.gather(*(work() for _ in range(_CALLERS)))

    async def repeated(self, refs: list[str]) -> dict[str, Answer]:
        """Make these again."""
        found: dict[str, Answer] = {}
        waiting = iter(refs)

        async def work() -> None:
            async with client(self.gateway.port, modern=True) as caller:
                for ref in waiting:
                    found[ref] = await self.pay(caller, ref)

        await asyncio.gather(*(work() for _ in range(_CALLERS)))
        return found

    def forgotten(self, answers: dict[str, Answer]) -> list[str]:
        """Those of which another answer came than the first, or none."""
        return [ref for ref, answer in answers.items() if not answer.ok or said(answer) != self.told.get(ref)]

    def executed(self) -> Counter[str]:
        """How often each was carried out."""
        return Counter(
            line.ref for line in read(self.deeds) if (line.event, line.tool) == ("executed", "pay")
        )

    def twice(self) -> list[str]:
        """Those that were carried out more than once."""
        return [ref for ref, count in self.executed().items() if count > 1]

    def false_acknowledgements(self) -> list[str]:
        """Those acknowledged and not carried out."""
        done = self.executed()
        return [ref for ref in self.told if not done[ref]]


def integrity(data: Path) -> str:
    """What SQLite says of the file, which no gateway has open."""
    with contextlib.closing(sqlite3.connect(data / "ledger.db")) as connection:
        return "; ".join(row[0] for row in connection.execute("PRAGMA integrity_check"))


@contextlib.asynccontextmanager
async def _bank(
    trial: Trial, directory: Path, deeds: Path, environment: dict[str, str] | None = None
) -> AsyncIterator[_Payments]:
    """A gateway of which the file may fail, and which itself may not."""
    config = {"mcpServers": {"bank": audited(deeds)}}
    async with running(directory, config, environment=environment) as gateway:
        await gateway.wait_ready(["bank"])
        yield _Payments(gateway, deeds)
        trial.verdict.log = gateway.log_lines()[-25:]
        if gateway.child.returncode is None:
            health = await gateway.get("/health")
            trial.check("/health within 1 s", health.status == 200 and health.seconds <= HEALTH_SECONDS)
        broken = [line for line in gateway.log_lines() if "Traceback" in line or "never retrieved" in line]
        trial.check("no traceback in the log", not broken, broken[:1])


@case(
    "F34",
    "calls with keys until a data directory of 2 MB is full; room again",
    "refused, nothing sent; acknowledged rows intact; reads work; recovers by itself",
    quick_seconds=60,
    full_seconds=120,
)
async def full_disk(trial: Trial) -> None:
    """The ledger itself fills the disk, and nothing that it acknowledged is lost by that."""
    directory, deeds = trial.directory / "gateway", trial.directory / "deeds"
    with small_disk(directory / "data") as disk:
        trial.measure("by", disk.way)
        for number in range(trial.size(quick=1, full=3)):
            async with _bank(trial, directory, deeds) as bank:
                bank.pad = _PAD
                disk.limit(bank.gateway)
                await bank.many(lambda answer: not answer.ok, label=f"{number}-")
                await _while_full(trial, bank, f"full-{number}-")
                disk.enlarge(bank.gateway)
                await _with_room(trial, bank, f"full-{number}-")
            if disk.mounted:
                # Full again: the rows of this round stay.
                used = sum(file.stat().st_size for file in (directory / "data").rglob("*") if file.is_file())
                ran("mount", "-o", f"remount,size={used + (2 << 20)}", str(directory / "data"))
        trial.check("integrity_check is ok", integrity(directory / "data") == "ok")


async def _while_full(trial: Trial, bank: _Payments, label: str) -> None:
    acknowledged = list(bank.told)
    trial.measure("rows acknowledged", len(acknowledged))
    trial.check("some calls were recorded", len(acknowledged) > 20, len(acknowledged))
    async with client(bank.gateway.port, modern=True) as caller:
        answers = [await bank.pay(caller, f"{label}{number}") for number in range(20)]
        reading = await caller.call("bank_get", {"ref": "reading"}, key=f"{label}reading")
        plain = await caller.call("bank_get", {"ref": "plain"})
    refused = [answer for answer in answers if not answer.ok]
    trial.measure("refused", f"{refused[0].outcome if refused else 'none'}, {len(refused)} of 20")
    trial.check("refused, nothing sent", refused, Counter(answer.outcome for answer in answers))
    trial.check("each refusal is one", all(a.outcome == _REFUSED for a in refused), bank.outcomes)
    told = refused and "disk is full" in refused[0].text
    trial.check("the error names the cause", told or not privileged(), refused and refused[0].text)
    sent = [line.ref for line in read(bank.deeds) if line.ref.startswith(label)]
    trial.check("what is refused is not sent", len(sent) <= 2 * (20 - len(refused)), sent)
    trial.check("reads work", reading.ok and plain.ok, f"{reading.outcome}, {plain.outcome}")
    lost = bank.forgotten(await bank.repeated(acknowledged))
    trial.measure("acknowledged and lost while full", len(lost))
    trial.check("acknowledged rows are known while it is full", not lost, lost[:3])


async def _with_room(trial: Trial, bank: _Payments, label: str) -> None:
    async with client(bank.gateway.port, modern=True) as caller:

        async def works() -> bool:
            return (await bank.pay(caller, f"{label}room")).ok

        trial.measure("recovered after", await eventually(works, 20, "the ledger to recover"), "s")
    arrived = {line.ref for line in read(bank.deeds) if line.tool == "pay"}
    answers = await bank.repeated(sorted(arrived | {f"{label}{number}" for number in range(20)}))
    lost = [ref for ref, answer in answers.items() if not answer.ok]
    trial.check("with room every call is answered", not lost, [answers[ref].outcome for ref in lost[:3]])
    _check_payments(trial, bank, answers)


def _check_payments(trial: Trial, bank: _Payments, answers: dict[str, Answer]) -> None:
    wrong = bank.forgotten({ref: answer for ref, answer in answers.items() if answer.ok})
    twice, false = bank.twice(), bank.false_acknowledgements()
    trial.measure("executed twice", len(twice))
    trial.measure("false acknowledgements", len(false))
    trial.check("executed twice = 0", not twice, twice[:3])
    trial.check("false acknowledgements = 0", not false, false[:3])
    trial.check("every answer is that of the one execution", not wrong, wrong[:3])


@case(
    "F35",
    "every fsync and fdatasync fails with EIO while calls with keys are made",
    "never acknowledged: false acks = 0; refused or in doubt; works again afterwards; executed once",
    quick_seconds=60,
    full_seconds=150,
)
async def failed_syncs(trial: Trial) -> None:
    """What is not durable is not acknowledged."""
    directory, deeds = trial.directory / "gateway", trial.directory / "deeds"
    directory.mkdir()
    rounds = trial.size(quick=2, full=12)
    async with contextlib.AsyncExitStack() as stack:
        traced = await may_trace()
        faults = None if traced else stack.enter_context(preloaded_faults(trial.directory))
        trial.measure("by", "strace, inject=fsync,fdatasync:error=EIO" if traced else "a preloaded library")
        bank = await stack.enter_async_context(
            _bank(trial, directory, deeds, faults.environment if faults else None)
        )
        failed = 0
        for number in range(rounds):
            log = trial.directory / f"strace-{number}"
            cut = await _under_way(bank, f"cut-{number}")
            if faults is None:
                async with failing_syncs(bank.gateway.pid, log):
                    await _without_syncs(trial, bank, number, cut)
                failed += log.read_text().count("INJECTED")
            else:
                faults.fail_syncs(failing=True)
                await _without_syncs(trial, bank, number, cut)
                faults.fail_syncs(failing=False)
                failed = faults.syncs_failed
            await _with_syncs(trial, bank, number)
        trial.measure("syncs failed", failed)
        trial.check("syncs did fail", failed >= rounds, failed)
        bank.gateway.child.kill()
        await bank.gateway.child.wait()
    await _after_the_crash(trial, directory, bank)


async def _under_way(bank: _Payments, ref: str) -> asyncio.Task[Answer]:
    """A call that is recorded before the disk fails, and answered while it does."""
    caller = Client(bank.gateway.port, modern=True)
    waits = {"ref": ref, "after": 1.5}
    call = asyncio.create_task(caller.call("bank_pay", waits, key=ref))
    await eventually(lambda: bank.executed()[ref], 5, "the call to be executed")
    return call


async def _without_syncs(trial: Trial, bank: _Payments, number: int, cut: asyncio.Task[Answer]) -> None:
    before = bank.outcomes.copy()
    answers = await bank.repeated([f"eio-{number}-{n}" for n in range(40)])
    trial.measure(
        "while they fail", ", ".join(f"{n} x {what}" for what, n in (bank.outcomes - before).items())
    )
    acknowledged = [ref for ref, answer in answers.items() if answer.ok]
    trial.check("nothing is acknowledged", not acknowledged, acknowledged[:3])
    executed = bank.executed()
    sent = [ref for ref, answer in answers.items() if answer.outcome == _REFUSED and executed[ref]]
    trial.check("what was said not to have happened did not", not sent, sent[:3])
    answer = await cut
    trial.measure("answered while they fail", answer.outcome)
    trial.check("no answer without a record", not answer.ok, answer.outcome)


async def _with_syncs(trial: Trial, bank: _Payments, number: int) -> None:
    async with client(bank.gateway.port, modern=True) as caller:

        async def works() -> bool:
            return (await bank.pay(caller, f"well-{number}")).ok

        trial.measure("recovered after", await eventually(works, 20, "the ledger to recover"), "s")
        cut = await caller.call("bank_pay", {"ref": f"cut-{number}", "after": 1.5}, key=f"cut-{number}")
    answers = await bank.repeated([f"eio-{number}-{n}" for n in range(40)])
    failed = Counter(answer.outcome for answer in answers.values() if not answer.ok)
    trial.check("afterwards each is answered", not failed, dict(failed))
    known = cut.ok or (cut.failure is not None and cut.failure.code == "IN_DOUBT")
    trial.measure("asked again for the answer that was lost", cut.outcome)
    trial.check("the call whose answer was lost is known", known, cut.outcome)


async def _after_the_crash(trial: Trial, directory: Path, before: _Payments) -> None:
    trial.check("integrity_check is ok", integrity(directory / "data") == "ok")
    async with _bank(trial, directory, before.deeds) as bank:
        bank.told = before.told
        answers = await bank.repeated(list(before.told))
        lost = bank.forgotten(answers)
        trial.measure("acknowledged", len(answers))
        trial.measure("lost after kill -9", len(lost))
        trial.check("acknowledged calls are known after a crash", not lost, lost[:3])
        _check_payments(trial, bank, answers)


@case(
    "F36",
    "the ledger's file: kill -9 during writes, flipped bytes, read-only, a second gateway, a foreign lock",
    "integrity_check ok; executed twice 0; damage is reported; a gateway that cannot write refuses",
    quick_seconds=120,
    full_seconds=600,
)
async def ledger_file(trial: Trial) -> None:
    """Whatever happens to the file, no payment is made twice."""
    # At the same time, because much of it is waiting.
    await asyncio.gather(_killed(trial), _read_only(trial), _shared(trial))
    await _damaged(trial)


async def _killed(trial: Trial) -> None:
    checks: Counter[str] = Counter()
    directory = trial.directory / "killed"
    arena = Arena(directory, 36, lambda: checks.update([_found(directory / "data")]))
    await arena.run(trial.size(quick=10, full=200))
    trial.measure("integrity_check", ", ".join(f"{count} x {what}" for what, count in checks.items()))
    trial.check("integrity_check is ok after each kill", not checks.keys() - {"ok", "no file"}, dict(checks))
    trial.check("there was a file to kill", checks["ok"] > 0, dict(checks))
    check_tally(trial, judge(arena.calls, read(arena.deeds)))


def _found(data: Path) -> str:
    return integrity(data) if (data / "ledger.db").exists() else "no file"


async def _read_only(trial: Trial) -> None:
    directory, deeds = trial.directory / "read-only", trial.directory / "read-only.deeds"
    directory.mkdir()
    async with _bank(trial, directory, deeds) as bank:
        await bank.repeated(["before"])
        await bank.gateway.stop()
    with _unwritable(directory / "data" / "ledger.db") as way:
        trial.measure("read-only by", way)
        async with _bank(trial, directory, deeds) as again:
            again.told = bank.told
            answers = await again.repeated([f"locked-{number}" for number in range(8)])
            outcomes = Counter(answer.outcome for answer in answers.values())
            trial.measure("read-only", ", ".join(outcomes))
            trial.check("refused, nothing sent", set(outcomes) == {_REFUSED}, dict(outcomes))
            trial.check("nothing was sent", again.executed().keys() == {"before"}, again.executed())
            text = answers["locked-0"].text
            trial.check("the error names the cause", "cannot be written" in text, text)
            async with client(again.gateway.port, modern=True) as caller:
                reading = await caller.call("bank_get", {"ref": "reading"}, key="reading")
            trial.check("reads work", reading.ok, reading.outcome)


@contextlib.contextmanager
def _unwritable(path: Path) -> Iterator[str]:
    """A mount of the file that is read-only; a mode is enough for all but root."""
    if privileged() and ran("mount", "--bind", str(path), str(path)):
        try:
            if not ran("mount", "-o", "remount,ro,bind", str(path)):
                raise RuntimeError("the file cannot be mounted read-only")
            yield "a mount"
        finally:
            ran("umount", "-l", str(path))
        return
    path.chmod(0o400)
    try:
        yield "its mode"
    finally:
        path.chmod(0o600)


async def _shared(trial: Trial) -> None:
    """A second gateway on the same directory may write; a process that keeps the lock makes both refuse."""
    directory, deeds = trial.directory / "shared", trial.directory / "shared.deeds"
    directory.mkdir()
    async with _bank(trial, directory, deeds) as one, _second_gateway(directory, deeds) as gateway:
        two = _Payments(gateway, deeds)
        refs = [f"both-{number}" for number in range(trial.size(quick=40, full=400))]
        answers = await asyncio.gather(one.repeated(refs), two.repeated(refs))
        unanswered = [a.outcome for found in answers for a in found.values() if not a.ok]
        trial.measure("two gateways", f"{len(refs)} payments at both, executed twice {len(one.twice())}")
        trial.check("two gateways: executed twice = 0", not one.twice(), one.twice()[:3])
        trial.check("two gateways: both answer", not unanswered, unanswered[:3])
        differ = [ref for ref in refs if one.told.get(ref) != two.told.get(ref)]
        trial.check("two gateways: the same answer", not differ, differ[:3])
        await _locked_out(trial, one, directory / "data")
    trial.check("two gateways: integrity_check is ok", integrity(directory / "data") == "ok")


@contextlib.asynccontextmanager
async def _second_gateway(directory: Path, deeds: Path) -> AsyncIterator[AsyncGatewayProcess]:
    """Another one with a directory of its own, in which the data is a link to that of the first."""
    other = directory / "second"
    other.mkdir()
    (other / "data").symlink_to(directory / "data")
    async with running(other, {"mcpServers": {"bank": audited(deeds)}}) as gateway:
        await gateway.wait_ready(["bank"])
        yield gateway


async def _locked_out(trial: Trial, bank: _Payments, data: Path) -> None:
    with contextlib.closing(sqlite3.connect(data / "ledger.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        answers = await bank.repeated([f"lock-{number}" for number in range(_CALLERS)])
        took = time.monotonic() - started
        connection.execute("ROLLBACK")
    outcomes = {answer.outcome for answer in answers.values()}
    trial.measure("a foreign lock", f"{', '.join(outcomes)} after {took:.1f} s")
    trial.check("a foreign lock: refused", outcomes == {_REFUSED}, outcomes)
    trial.check(f"a foreign lock: within {_LOCK_SECONDS:g} s", took <= _LOCK_SECONDS, f"{took:.1f} s")
    text = next(iter(answers.values())).text
    trial.check("a foreign lock: the error names the cause", "locked" in text, text)
    again = await bank.repeated(list(answers))
    trial.check("a foreign lock: works without it", all(answer.ok for answer in again.values()))
    trial.check("a foreign lock: executed once", not bank.twice(), bank.twice()[:3])


async def _damaged(trial: Trial) -> None:
    """Bytes of the file change while no gateway runs; then every payment is made again."""
    directory, deeds = trial.directory / "whole", trial.directory / "whole.deeds"
    directory.mkdir()
    refs = [f"paid-{number}" for number in range(trial.size(quick=300, full=2_000))]
    async with _bank(trial, directory, deeds) as bank:
        await bank.repeated(refs)
        await bank.gateway.stop()
    dice, totals, silent = random.Random(36), Counter[str](), list[str]()
    flips = trial.size(quick=3, full=10)
    damages: dict[str, Callable[[Path], None]] = {"emptied": _empty, "removed": Path.unlink}
    damages |= {f"flipped {number}": partial(_flip, dice) for number in range(flips)}
    for label, damage in damages.items():
        copy, log = trial.directory / label, trial.directory / f"{label}.deeds"
        shutil.copytree(directory, copy)
        shutil.copyfile(deeds, log)
        damage(copy / "data" / "ledger.db")
        found, reported = await _pay_again(trial, copy, log, bank.told)
        totals += found
        silent += [label] if found and not reported else []
    trial.measure("damaged copies", f"{_FLIPPED_BYTES} bytes flipped {flips} times, emptied, removed")
    trial.measure("payments in each", len(refs))
    trial.measure("made again", ", ".join(f"{count} x {name}" for name, count in totals.items()) or "no harm")
    trial.measure("damage not reported", f"{len(silent)} of {len(damages)}")
    trial.check("damage: executed twice = 0", not totals["executed twice"], dict(totals))
    trial.check("damage: wrong answer = 0", not totals["wrong answer"], dict(totals))
    trial.check("damage is reported", not silent, silent)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _flip(dice: random.Random, path: Path) -> None:
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        for place in dice.sample(range(size), _FLIPPED_BYTES):
            file.seek(place)
            (value,) = file.read(1)
            file.seek(place)
            file.write(bytes([value ^ (1 << dice.randrange(8))]))


async def _pay_again(
    trial: Trial, directory: Path, deeds: Path, told: dict[str, str]
) -> tuple[Counter[str], bool]:
    """What became of the payments, and whether the operator can see that something is wrong."""
    found: Counter[str] = Counter()
    async with _bank(trial, directory, deeds) as bank:
        answers = await bank.repeated(list(told))
        found["executed twice"] = len(bank.twice())
        known = [ref for ref, answer in answers.items() if answer.ok]
        found["wrong answer"] = sum(
            said(answers[ref]) != told[ref] for ref in known if bank.executed()[ref] == 1
        )
        found |= Counter(answer.outcome for answer in answers.values() if not answer.ok)
        reported = any(map(_reports_damage, bank.gateway.log_lines()))
    return +found, reported


def _reports_damage(line: str) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    said_by_ledger = "ledger" in line.lower() or "storage" in line.lower()
    return entry.get("level") in ("warning", "error", "critical") and said_by_ledger
