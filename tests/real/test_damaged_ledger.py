"""A gateway whose ledger is damaged refuses what must not happen twice, says so, and goes on otherwise."""

import asyncio
import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.async_http import Answer, Client, client
from testkit.gateway_process import GatewayProcess, clean_environment, running_gateway
from testkit.misbehaving_upstreams import audited as bank
from testkit.servers.audit_log import read
from testkit.waiting import wait_until

PAYMENTS = 60
SECONDS = 30.0
MEBIBYTE = 1 << 20


class Bank:
    """A gateway in front of a bank that writes down every payment that it makes."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.data = directory / "data"
        self._deeds = directory / "deeds"
        self._config = {"mcpServers": {"bank": bank(self._deeds)}, "proxySettings": settings}

    @asynccontextmanager
    async def open(self, *, complete: bool = False) -> AsyncIterator[tuple[GatewayProcess, Client]]:
        """A gateway while the block lasts; `complete` ends it with SIGTERM before."""
        with running_gateway(self._config, self.directory) as gateway:
            async with client(gateway.port, modern=True) as caller:
                yield gateway, caller
            if complete:
                await asyncio.to_thread(gateway.stop)
                await asyncio.to_thread(empty_log, self.data / "ledger.db")
            else:
                gateway.kill()

    def made(self, ref: str = "") -> int:
        """How many payments were made, of that name."""
        return sum(line.event == "executed" and ref in ("", line.ref) for line in read(self._deeds))

    async def recover(self, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run the command."""
        command = [sys.executable, "-m", "headgate", "operations", "recover", *options]
        return await asyncio.to_thread(
            subprocess.run,
            [*command, "--data-dir", str(self.data)],
            cwd=self.directory,
            env=clean_environment() | {"HOME": str(self.directory)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )


async def pay(caller: Client, number: int, **arguments: Any) -> Answer:
    key = f"order-{number}"
    return await caller.call("bank_pay", {"ref": key, **arguments}, key=key)


async def pay_all(caller: Client) -> list[Answer]:
    return [await pay(caller, number) for number in range(PAYMENTS)]


def empty_log(path: Path) -> None:
    """The log may have newer copies of pages, so that bits of the file do not matter."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def flip(path: Path, seed: int) -> None:
    content, randomly = bytearray(path.read_bytes()), random.Random(seed)
    for _ in range(60):
        content[randomly.randrange(len(content))] ^= 1 << randomly.randrange(8)
    path.write_bytes(content)


def lose(path: Path, _: int) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("harm", "name", "complete"),
    [(flip, "ledger.db", True), (flip, "ledger.db-wal", False), (lose, "ledger.db-wal", False),
     (lose, "ledger.db", True)],
)  # fmt: skip
async def test_a_damaged_ledger_repeats_no_payment_until_the_operator_decides(
    tmp_path: Path,
    harm: Any,
    name: str,
    complete: bool,  # noqa: FBT001
) -> None:
    paid = Bank(tmp_path)
    async with paid.open(complete=complete) as (_, caller):
        assert all(answer.ok for answer in await pay_all(caller))
        running = await paid.recover()
        assert running.returncode == 2
        assert "a gateway uses" in running.stderr
    harm(paid.data / name, 7)
    async with paid.open() as (gateway, caller):
        await asyncio.to_thread(_await_damage, gateway)
        refused = await pay_all(caller)
        assert {answer.outcome for answer in refused} == {"SERVICE_UNAVAILABLE/none"}
        assert "the ledger is damaged (" in refused[0].text
        assert "headgate operations recover" in refused[0].text
        assert refused[0].failure is not None
        begun = await caller.call("transaction_begin", {})
        assert begun.outcome == "SERVICE_UNAVAILABLE/none"
        # What only reads, and what has no key, goes on.
        assert (await caller.call("bank_get", {"ref": "reading"}, key="reading")).ok
        assert (await caller.call("bank_pay", {"ref": "plain"})).ok
        page = await asyncio.to_thread(gateway.get, "/")
        assert b"The ledger is damaged (" in page.body
        assert gateway.log().count("the ledger is damaged, so") == 1
    assert paid.made() == PAYMENTS + 2
    listed = await paid.recover()
    assert listed.returncode == 0, listed.stderr
    assert "Nothing was changed" in listed.stdout
    assert "Kept: " in listed.stdout
    done = await paid.recover("--accept-loss")
    assert "A new ledger is in place." in done.stdout
    assert list(paid.data.glob("ledger-damaged-*")) or name == "ledger.db"
    async with paid.open() as (gateway, caller):
        outcomes = {answer.outcome for answer in await pay_all(caller)}
        # Of a call that is kept the answer may be lost, or the record that it was done.
        assert outcomes <= {"ok", "IN_DOUBT/unknown", "RESULT_NOT_FOUND/done"}
        assert "ledger_error" not in json.loads((await asyncio.to_thread(gateway.get, "/ready")).body)
    assert (await paid.recover()).stdout.startswith("The ledger is whole")


async def test_a_lost_answer_is_a_loss_that_the_operator_accepts(tmp_path: Path) -> None:
    paid = Bank(tmp_path)
    async with paid.open(complete=True) as (_, caller):
        answers = [await pay(caller, number) for number in range(3)]
    path = paid.data / "ledger.db"
    content = bytearray(path.read_bytes())
    content[content.rindex(answers[1].text.encode()) + 1] ^= 1
    path.write_bytes(content)
    listed = await paid.recover()
    assert "Kept: 3 recorded calls" in listed.stdout
    assert "Lost: the answers of 1 calls" in listed.stdout
    assert "Nothing was changed" in listed.stdout
    assert "repeated with its key is carried out again" not in listed.stdout
    assert "A new ledger is in place. The damaged one is " in (await paid.recover("--accept-loss")).stdout
    async with paid.open() as (_, caller):
        again = [await pay(caller, number) for number in range(3)]
        assert [answer.outcome for answer in again] == ["ok", "RESULT_NOT_FOUND/done", "ok"]
    assert paid.made() == 3


async def test_the_recovery_of_a_missing_ledger_names_no_damaged_one(tmp_path: Path) -> None:
    paid = Bank(tmp_path)
    async with paid.open(complete=True) as (_, caller):
        assert (await pay(caller, 0)).ok
    for path in paid.data.glob("ledger.db*"):
        path.unlink()
    done = await paid.recover("--accept-loss")
    assert "A new ledger is in place." in done.stdout
    assert "damaged one" not in done.stdout
    assert list(paid.data.glob("ledger-damaged-*")) == []


def _await_damage(gateway: GatewayProcess) -> None:
    wait_until(lambda: "ledger_error" in gateway.ready(), SECONDS, "the damage to be found")


async def test_an_answer_beyond_the_quota_is_not_kept_and_its_call_not_repeated(tmp_path: Path) -> None:
    paid = Bank(tmp_path, ledgerMaxBytes=8 * MEBIBYTE)
    async with paid.open() as (_, caller):
        for number in range(12):
            assert (await pay(caller, number, size=2 * MEBIBYTE)).status == 200
        files = [path for path in paid.data.rglob("ledger*") if path.is_file()]
        bodies = list((paid.data / "ledger").iterdir())
        assert sum(path.stat().st_size for path in (*files, *bodies)) <= 9 * MEBIBYTE
        again = await pay(caller, 0, size=2 * MEBIBYTE)
        assert again.outcome == "RESULT_NOT_FOUND/done"
        assert "was carried out" in again.text
        assert "its answer is no longer kept" in again.text
        assert (again.operation["state"], again.operation["duplicate"]) == ("done", True)
        shown = await caller.call("get_operation", {"op_id": again.operation["op_id"]})
        assert '"answer_dropped":true' in shown.text.replace(" ", "")
        last = await pay(caller, 11, size=2 * MEBIBYTE)
        assert last.ok
    assert paid.made() == 12


async def test_a_transaction_of_a_ledger_that_lost_commits_is_not_rolled_back_by_itself(
    tmp_path: Path,
) -> None:
    paid, older = Bank(tmp_path), tmp_path / "older.db"
    async with paid.open() as (_, caller):
        begun = await caller.call("transaction_begin", {"timeout_ms": 10_000})
        transaction = {"transaction_id": begun.result["structuredContent"]["transaction_id"]}
        undo = {"tool": "bank_undo", "args": {"ref": "refund"}}
        step = {"tool": "bank_pay", "args": {"ref": "rent"}, "compensate": undo, "sequence": 1}
        assert (await caller.call("transaction_step", transaction | step)).ok
        await asyncio.to_thread(back_up, paid.data / "ledger.db", older)
        committed = await caller.call("transaction_commit", transaction)
        assert committed.result["structuredContent"]["state"] == "completed"
    for path in paid.data.glob("ledger.db*"):
        path.unlink()
    older.rename(paid.data / "ledger.db")
    done = await paid.recover("--accept-loss")
    assert "Of these transactions 1 wait for a person" in done.stdout
    async with paid.open() as (_, caller):
        state = ""
        async with asyncio.timeout(SECONDS):
            while state not in ("failed", "rolled_back"):
                seen = await caller.call("get_transaction", transaction)
                state = seen.result["structuredContent"]["state"]
        assert (state, paid.made("refund")) == ("failed", 0)


def back_up(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
