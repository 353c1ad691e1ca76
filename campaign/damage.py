"""A ledger that is damaged, and one that is full of answers (S15, S16)."""

import asyncio
import json
import os
import random
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from campaign.histories import said
from campaign.trial import MEBIBYTE, WHOLE, Trial, case
from testkit.async_gateway_process import AsyncGatewayProcess, running
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import audited
from testkit.parts import ROOT
from testkit.servers.audit_log import read
from testkit.waiting import eventually

_BITS = 60
_FOUND_SECONDS = 20.0
_FILE = "ledger.db"
_LOG = "ledger.db-wal"

_Harm = Callable[[Path, random.Random], None]


def _flip(name: str) -> _Harm:
    def flip(data: Path, randomly: random.Random) -> None:
        content = bytearray((data / name).read_bytes())
        for _ in range(_BITS):
            content[randomly.randrange(len(content))] ^= 1 << randomly.randrange(8)
        (data / name).write_bytes(content)

    return flip


def _empty(data: Path, _: random.Random) -> None:
    (data / _FILE).write_bytes(b"")


def _remove(data: Path, _: random.Random) -> None:
    for path in data.glob(f"{_FILE}*"):
        path.unlink()


def _cut(data: Path, randomly: random.Random) -> None:
    pages = (data / _FILE).stat().st_size // 4096
    os.truncate(data / _FILE, randomly.randrange(1, pages) * 4096)


def _remove_log(data: Path, _: random.Random) -> None:
    (data / _LOG).unlink()


def _put_back(data: Path, randomly: random.Random) -> None:
    """The copy that was made when half of the payments were made."""
    _remove(data, randomly)
    shutil.copy(data.parent.parent / "older.db", data / _FILE)


# What is done to the ledger of a gateway that was stopped, or that was killed and so left its log.
_HARMS: dict[str, tuple[str, _Harm]] = {
    "60 bits of the file": ("stopped", _flip(_FILE)),
    "60 bits of the log": ("killed", _flip(_LOG)),
    "the log is gone": ("killed", _remove_log),
    "the file is empty": ("stopped", _empty),
    "the file is gone": ("killed", _remove),
    "the file is cut": ("stopped", _cut),
    "an older copy": ("killed", _put_back),
}
_RANDOM = ("60 bits of the file", "60 bits of the log", "the file is cut")


@case(
    "S15",
    "the ledger is damaged between two lives of the gateway; all payments are sent again with their keys",
    "executed twice 0; every round says what is wrong; reading goes on; the operator ends it",
    quick_seconds=90,
    full_seconds=900,
)
async def damaged_ledger(trial: Trial) -> None:
    """A ledger that has lost something carries out nothing that it may have recorded."""
    payments, rounds = trial.size(quick=100, full=1000), trial.size(quick=2, full=20)
    deeds = trial.directory / "deeds"
    config = {"mcpServers": {"bank": audited(deeds)}}
    for life in ("stopped", "killed"):
        await _make(trial.directory, config, life, payments)
    tally: Counter[str] = Counter()
    for name, (life, harm) in _HARMS.items():
        for seed in range(rounds if name in _RANDOM else 1):
            directory = trial.directory / "round"
            shutil.copytree(trial.directory / life / "data", directory / "data")
            harm(directory / "data", random.Random(seed))
            await _send_again(trial, directory, config, payments, f"{name} {seed}", tally)
            if name == "60 bits of the file" and seed == 0:
                await _recover(trial, directory, config)
            shutil.rmtree(directory)
    keys = Counter(line.ref for line in read(deeds) if line.event == "executed" and line.key == "")
    twice = sum(count - 1 for ref, count in keys.items() if ref.startswith(("stopped", "killed")))
    for what, count in sorted(tally.items()):
        trial.measure(what, count)
    trial.measure("executed twice", twice)
    trial.check("executed twice = 0", twice == 0, [ref for ref, count in keys.items() if count > 1][:3])


async def _make(directory: Path, config: dict[str, Any], life: str, payments: int) -> None:
    """Make all payments; a gateway that is killed leaves its write-ahead log behind."""
    place = directory / life
    place.mkdir()
    async with running(place, config) as gateway, client(gateway.port, modern=True) as caller:
        await gateway.wait_ready(["bank"])
        for number in range(payments):
            if number == payments // 2 and life == "killed":
                await asyncio.to_thread(_copy_file, place / "data" / _FILE, directory / "older.db")
            answer = await caller.call("bank_pay", {"ref": f"{life} {number}"}, key=f"{life} {number}")
            assert answer.ok, answer.outcome
        if life == "killed":
            gateway.child.kill()
            await gateway.child.wait()
        else:
            await gateway.stop()
            await asyncio.to_thread(_empty_log, place / "data" / _FILE)


def _empty_log(path: Path) -> None:
    """A log that a gateway leaves behind has newer copies of pages, so bits of the file do not matter."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _copy_file(source: Path, target: Path) -> None:
    """As SQLite makes a backup, with what is in the log."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


async def _send_again(
    trial: Trial,
    directory: Path,
    config: dict[str, Any],
    payments: int,
    name: str,
    tally: Counter[str],
) -> None:
    life = _HARMS[name.rsplit(" ", 1)[0]][0]
    async with running(directory, config) as gateway, client(gateway.port, modern=True) as caller:
        await gateway.wait_ready(["bank"])
        for number in range(payments):
            key = f"{life} {number}"
            answer = await caller.call("bank_pay", {"ref": key}, key=key)
            known = answer.ok and answer.operation.get("duplicate")
            tally["answered from the record" if known else answer.outcome] += 1
        await eventually(lambda: _is_shown(gateway), _FOUND_SECONDS, f"{name}: the damage to be shown")
        told = await caller.call("bank_pay", {"ref": "new"}, key=f"new {name}")
        refused = told.outcome == "SERVICE_UNAVAILABLE/none" and "operations recover" in told.text
        trial.check(f"{name}: refused with what to do", refused, told.text)
        reading = await caller.call("bank_get", {"ref": "reading"}, key=f"reading {name}")
        trial.check(f"{name}: reading goes on", reading.ok, reading.outcome)
        logged = sum("the ledger is damaged, so" in line for line in gateway.log_lines())
        trial.check(f"{name}: one line in the log", logged == 1, logged)
        tally["rounds"] += 1
        await gateway.stop()


async def _is_shown(gateway: AsyncGatewayProcess) -> bool:
    ready = json.loads((await gateway.get("/ready")).body)
    front = (await gateway.get("/")).body
    return "ledger_error" in ready and b"The ledger is damaged" in front


async def _recover(trial: Trial, directory: Path, config: dict[str, Any]) -> None:
    """The operator accepts the loss, and the gateway records again."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headgate", "operations", "recover", "--accept-loss", "--json",
        "--data-dir", str(directory / "data"),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    out, error = await child.communicate()
    trial.check("recovered", child.returncode == 0, error.decode())
    found = json.loads(out)["found"]
    trial.measure("recovered", f"{found['kept']} kept, {found['missing']} missing")
    kept = list((directory / "data").glob("ledger-damaged-*"))
    trial.check("the damaged file is kept", kept, kept)
    async with running(directory, config) as gateway, client(gateway.port, modern=True) as caller:
        await gateway.wait_ready(["bank"])
        answer = await caller.call("bank_pay", {"ref": "recovered"}, key="recovered")
        trial.check("calls with a key are accepted again", answer.ok, answer.outcome)
        await gateway.stop()


@case(
    "S16",
    "60 calls with answers of 5 MB (24 of 1 MB) and a quota of 64 MB (8 MB) for the ledger, then all again",
    "disk at most the quota and 8 MB; executed twice 0; an answer that is dropped is known as done",
    quick_seconds=60,
    full_seconds=180,
)
async def ledger_quota(trial: Trial) -> None:
    """The ledger forgets answers, and never calls."""
    calls, size = trial.size(quick=24, full=60), trial.size(quick=1, full=5) * MEBIBYTE
    quota = trial.size(quick=8, full=64) * MEBIBYTE
    deeds, directory = trial.directory / "deeds", trial.directory / "gateway"
    directory.mkdir()
    # The answer has the text twice.
    characters = size // 2
    config = {"mcpServers": {"bank": audited(deeds)}, "proxySettings": WHOLE | {"ledgerMaxBytes": quota}}
    async with running(directory, config) as gateway, client(gateway.port, modern=True) as caller:
        await gateway.wait_ready(["bank"])
        most, nonces = 0, []
        for number in range(calls):
            answer = await _pay(caller, number, characters)
            trial.check(f"call {number} is answered", answer.ok, answer.outcome)
            nonces.append(said(answer))
            most = max(most, await asyncio.to_thread(_disk_use, directory / "data"))
        repeats = [await _pay(caller, number, characters) for number in range(calls)]
        await gateway.stop()
    kept = sum(answer.ok and said(answer) == nonce for answer, nonce in zip(repeats, nonces, strict=True))
    dropped = sum(answer.outcome == "RESULT_NOT_FOUND/done" for answer in repeats)
    twice = sum(line.event == "executed" for line in read(deeds)) - calls
    trial.measure("answers", f"{calls * size // MEBIBYTE} MB")
    trial.measure("most on the disk", f"{most / MEBIBYTE:.1f} MB of {quota // MEBIBYTE} MB")
    trial.measure("repeats", f"{kept} answered, {dropped} known as done")
    trial.measure("executed twice", twice)
    trial.check("disk at most the quota and 8 MB", most <= quota + 8 * MEBIBYTE, most)
    trial.check("executed twice = 0", twice == 0, twice)
    trial.check("every repeat is answered or known as done", kept + dropped == calls, (kept, dropped))
    trial.check("some answers are kept, the oldest are not", kept and dropped, (kept, dropped))


async def _pay(caller: Client, number: int, characters: int) -> Answer:
    key = f"order {number}"
    return await caller.call("bank_pay", {"ref": key, "size": characters}, key=key)


def _disk_use(data: Path) -> int:
    files = [*data.glob("ledger*"), *(data / "ledger").glob("*")]
    return sum(path.stat().st_size for path in files if path.is_file())
