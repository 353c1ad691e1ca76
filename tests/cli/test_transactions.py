"""`headgate transactions`: what is stuck, what is known of it, and an operator's decision about it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from headgate.app.operator_ledger import LedgerFilesSource
from headgate.cli.operation_text import format_operations
from headgate.cli.transaction_text import format_resolution, format_transaction, format_transactions
from headgate.control.operations import list_operations, resolve_operation, show_operation
from headgate.control.operator_decision import OperatorDecision
from headgate.control.transactions import (
    OPEN_PHASES,
    PHASES,
    TransactionResolution,
    list_transactions,
    resolve_transaction,
    show_transaction,
)
from headgate.delivery.errors import TransactionFailed
from headgate.delivery.ledger import OperationState
from headgate.delivery.transactions.saga_rules import Phase
from headgate.domain.delivery_request import DeliveryRequest
from headgate.domain.errors import ConfigError
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.mcp_request import McpRequest
from headgate.domain.upstream_policy import ToolClass
from headgate.storage.sqlite.ledger import LEDGER_NAME
from testkit.gateway_process import clean_environment
from tests.delivery.transaction_gateway import (
    LOST_AFTER,
    LOST_BEFORE,
    REFUSES,
    Clock,
    CrashPoint,
    Shop,
    TransactionHarness,
    asked,
    harness,
    place_of,
    quick_directory,
    until_killed,
)

SECONDS = 60.0
SECRET = "hunter2"
FIELDS = {
    "transaction_id",
    "status",
    "state",
    "tenant",
    "principal",
    "client",
    "created",
    "updated",
    "deadline",
    "timed_out",
    "on_failure",
    "reason",
    "step_count",
    "steps_done",
    "steps_undone",
    "not_undone",
    "stuck_step",
    "stuck_tool",
    "stuck_compensation",
    "stuck_error",
}


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def gateway(tmp_path: Path, shop: Shop) -> AsyncIterator[TransactionHarness]:
    """A gateway that runs meanwhile."""
    (tmp_path / "data").mkdir()
    async with harness(tmp_path / "data", shop) as gateway:
        yield gateway


@pytest.fixture
def source(tmp_path: Path) -> LedgerFilesSource:
    return LedgerFilesSource(tmp_path / "data")


async def stuck(gateway: TransactionHarness, undo: Sequence[str] = (REFUSES,) * 5, **more: Any) -> str:
    """The id of a transaction of two steps whose rollback stops at the second."""
    gateway.shop.script["undo_charge"] = list(undo)
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    await gateway.step(id, "charge", **more)
    told = await gateway.ask("transaction_rollback", transaction_id=id)
    assert told["state"] == "failed"
    return id


async def resolve(
    source: LedgerFilesSource,
    id: str,
    decision: OperatorDecision,
    *,
    repeats_doubt: bool = False,
    note: str = "",
) -> TransactionResolution:
    return await resolve_transaction(source, id, None, decision, repeats_doubt=repeats_doubt, note=note)


async def go_on(gateway: TransactionHarness) -> None:
    """What a running gateway does within about a second."""
    await gateway.saga_runner.resume_handed_over()
    await gateway.saga_runner.wait_until_idle()


async def run(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return await command(directory, "transactions", *arguments, "--data-dir", str(directory / "data"))


async def command(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "headgate", *arguments],
        cwd=directory,
        env=clean_environment() | {"HOME": str(directory), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


async def told(directory: Path, *arguments: str) -> str:
    done = await run(directory, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


async def refused(directory: Path, *arguments: str) -> str:
    done = await run(directory, *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done
    (line,) = done.stderr.splitlines()
    assert line.startswith("headgate: ")
    return line


# What is there.


async def test_stuck_transactions_come_first_and_the_list_says_what_to_do(
    tmp_path: Path, gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    running = await gateway.begin()
    done = await gateway.begin()
    await gateway.ask("transaction_commit", transaction_id=done)
    id = await stuck(gateway)
    lines = (await told(tmp_path, "list")).splitlines()
    assert lines[0].split() == ["transaction", "state", "started", "age", "caller", "done", "problem"]
    assert lines[1].split()[:2] == [id, "stuck"]
    assert "2 of 2" in lines[1]
    place = lines[0].index("problem")
    problem = " ".join(line[place:] for line in lines[1 : lines.index(next_row(lines, running))])
    assert problem == "the compensation of step 2 (charge) failed: no; not undone: 2, 1"
    assert next_row(lines, running).split()[1] == "running"
    command = f"`headgate transactions show {id} --data-dir {tmp_path / 'data'}`"
    assert lines[-1] == f"1 transaction is stuck and waits for a person: {command} shows how to resolve it."
    everything = await list_transactions(source, tuple(PHASES))
    assert [found.id for found in everything.transactions] == [id, running, done]


def next_row(lines: list[str], id: str) -> str:
    return next(line for line in lines if id in line and "headgate" not in line)


async def test_the_list_as_json_has_the_same_members_for_every_transaction(
    tmp_path: Path, gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    await gateway.begin()
    id = await stuck(gateway)
    first, second = json.loads(await told(tmp_path, "list", "--json"))
    assert first.keys() == second.keys() == FIELDS
    assert (first["transaction_id"], first["status"], first["state"]) == (id, "stuck", "failed")
    assert (first["step_count"], first["steps_done"], first["not_undone"]) == (2, 2, [2, 1])
    assert (first["stuck_step"], first["stuck_compensation"]) == (2, "undo_charge")
    assert (first["stuck_error"], first["principal"]) == ("no", LOCAL_IDENTITY.principal)
    assert (second["status"], second["stuck_step"]) == ("running", None)
    only = await list_transactions(source, ("running",))
    assert [one["status"] for one in json.loads(format_transactions(only, as_json=True))] == ["running"]


async def test_an_empty_list_says_so(
    tmp_path: Path, gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    id = await gateway.begin()
    await gateway.ask("transaction_commit", transaction_id=id)
    none = await list_transactions(source, OPEN_PHASES)
    assert format_transactions(none, as_json=False) == "No transaction is stuck or rolling back or running."
    assert json.loads(format_transactions(none, as_json=True)) == []
    done = await run(tmp_path, "list", "--all", "--state", "stuck")
    assert (done.returncode, "without --state" in done.stderr) == (2, True)


async def test_without_a_ledger_there_is_nothing_to_tell_and_none_is_made(
    tmp_path: Path, source: LedgerFilesSource
) -> None:
    none = await list_transactions(source, OPEN_PHASES)
    said = f"No transaction has been recorded: there is no {LEDGER_NAME} in {tmp_path / 'data'}."
    assert format_transactions(none, as_json=False) == said
    for arguments in (("show", "0" * 32), ("resolve", "0" * 32, "--leave")):
        assert "not found or expired" in await refused(tmp_path, *arguments)
    assert not (tmp_path / "data").exists()


async def test_a_file_that_is_no_ledger_is_named_in_one_sentence(
    tmp_path: Path, source: LedgerFilesSource
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / LEDGER_NAME).write_bytes(b"something else " * 100)
    with pytest.raises(ConfigError, match="is not a database"):
        await list_transactions(source, OPEN_PHASES)


async def test_a_data_directory_that_cannot_be_read_is_named_in_one_sentence(
    tmp_path: Path, source: LedgerFilesSource
) -> None:
    # Not even root can look into a path whose names are longer than the system allows.
    unreadable = LedgerFilesSource(tmp_path / ("x" * 300))
    with pytest.raises(ConfigError, match="cannot be used"):
        await list_transactions(unreadable, OPEN_PHASES)


async def test_the_list_of_operations_says_how_many_transactions_are_stuck(
    gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    line = "for a person: `headgate transactions list` shows"
    assert line not in format_operations(
        await list_operations(source, (OperationState.DOUBT,)), as_json=False
    )
    await stuck(gateway)
    found = await list_operations(source, (OperationState.DOUBT,))
    assert format_operations(found, as_json=False).splitlines() == [
        "No operation is in doubt.",
        f"1 transaction is stuck and waits {line} it.",
    ]
    await stuck(gateway)
    found = await list_operations(source, (OperationState.DONE,))
    assert (
        format_operations(found, as_json=False).splitlines()[-1]
        == f"2 transactions are stuck and wait {line} them."
    )
    # Programs that read the calls are not told of anything else.
    assert all("op_id" in one for one in json.loads(format_operations(found, as_json=True)))


# One transaction.


async def test_one_transaction_is_shown_with_its_steps_its_calls_and_the_commands(
    tmp_path: Path, gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    arguments = {"n": "charge", "card": {"token": {"value": SECRET}}, "note": "x" * 1000}
    id = await stuck(gateway, args=arguments)
    shown = await told(tmp_path, "show", id[:6])
    assert SECRET not in shown
    assert '"token":"[REDACTED]"' in shown
    assert "bytes)" in shown, "long arguments are cut"
    assert "state         stuck (its client sees: failed)" in shown
    assert "Step 2: charge, carried out" in shown
    assert "compensation  undo_charge, failed" in shown
    assert "step 2: undo_failed (no)" in shown
    where = f"--data-dir {tmp_path / 'data'}"
    for option in ("--retry", "--compensated", "--leave"):
        assert f"headgate transactions resolve {id} {option} {where}" in shown
    details = await show_transaction(source, id, None)
    document = json.loads(format_transaction(details, as_json=True))
    assert document.keys() == FIELDS | {"steps", "history", "known", "commands"}
    second = document["steps"][1]
    assert (second["state"], second["error"]) == ("undo_failed", "no")
    assert (second["compensation"]["state"], second["compensation"]["rounds"]) == ("failed", 5)
    ids = [second["op_id"], *(one["op_id"] for one in second["compensation"]["operations"])]
    assert len(ids) == 6
    for op_id in ids:
        assert (await show_operation(source, op_id)).op_id == op_id


async def test_an_id_that_looks_like_an_option_can_be_copied(
    tmp_path: Path, gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    await gateway.tools.run_step(plain("-x"), gateway.use)
    await gateway.ask("transaction_rollback", transaction_id="-x")
    listing = format_transactions(await list_transactions(source, OPEN_PHASES), as_json=False)
    assert "`headgate transactions show -- -x`" in listing
    document = json.loads(format_transaction(await show_transaction(source, "-x", None), as_json=True))
    assert document["commands"][0] == "headgate transactions resolve --compensated -- -x"
    where = ("--data-dir", str(tmp_path / "data"))
    done = await command(tmp_path, "transactions", "resolve", "--leave", *where, "--", "-x")
    assert (done.returncode, done.stderr) == (0, "")


async def test_an_unknown_or_ambiguous_id_is_one_sentence(
    tmp_path: Path, gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    for id in ("order-1", "order-12", "order-2"):
        await gateway.tools.run_step(plain(id), gateway.use)
    assert "not found or expired" in await refused(tmp_path, "show", "nothing")
    assert "not found or expired" in await refused(tmp_path, "show", "")
    assert "not found or expired" in await refused(tmp_path, "show", "order_1")
    assert "not found or expired" in await refused(tmp_path, "show", os.fsdecode(b"order-\xff"))
    assert "3 transactions begin with 'ord': order-1, order-12, order-2; give more" in await refused(
        tmp_path, "show", "ord"
    )
    # One that is named in full is meant, also if another begins so.
    assert (await show_transaction(source, "order-1", None)).transaction.id == "order-1"
    await gateway.tools.run_step(plain("order-1", Identity(principal="somebody")), gateway.use)
    line = await refused(tmp_path, "show", "order-1")
    assert (
        "2 callers have a transaction 'order-1': local, somebody; name one of them with --principal" in line
    )
    found = await show_transaction(source, "order-1", "somebody")
    assert found.transaction.principal == "somebody"


def plain(id: str, caller: Identity = LOCAL_IDENTITY) -> McpRequest:
    return asked("reserve", caller, DeliveryRequest(transaction=id, sequence=1), n="reserve")


# Decisions.


async def test_a_retry_runs_the_remaining_compensations(
    gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    id = await stuck(gateway)
    resolution = await resolve(source, id, OperatorDecision.RETRY, note="mended")
    assert resolution.gateway_runs
    assert "the gateway that runs on" in format_resolution(resolution, as_json=False)
    assert await gateway.state(id) == "in_progress"
    await go_on(gateway)
    after = await gateway.ask("get_transaction", transaction_id=id)
    assert (after["state"], gateway.shop.effects[2:]) == ("rolled_back", ["undo_charge", "undo_reserve"])
    assert after["reason"] == "it was stuck at step 2, and an operator retried it"
    assert "operator: retry from step 2 on (mended)" in [one["event"] for one in after["history"]]
    # It is taken over once.
    await go_on(gateway)
    assert len(gateway.shop.effects) == 4


async def test_a_retry_that_fails_waits_for_a_person_again(
    gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    id = await stuck(gateway, [REFUSES] * 10)
    await resolve(source, id, OperatorDecision.RETRY)
    await go_on(gateway)
    assert await gateway.state(id) == "failed"
    assert len((await list_transactions(source, ("stuck",))).transactions) == 1
    await resolve(source, id, OperatorDecision.RETRY)
    await go_on(gateway)
    assert (await gateway.state(id), gateway.shop.effects[2:]) == (
        "rolled_back",
        ["undo_charge", "undo_reserve"],
    )


async def test_a_retry_without_a_gateway_is_made_by_one_that_starts_days_later(
    tmp_path: Path, shop: Shop, source: LedgerFilesSource
) -> None:
    (tmp_path / "data").mkdir()
    async with harness(tmp_path / "data", shop) as gateway:
        id = await stuck(gateway)
    resolution = await resolve(source, id, OperatorDecision.RETRY)
    assert not resolution.gateway_runs
    assert "No gateway runs on" in format_resolution(resolution, as_json=False)
    async with harness(tmp_path / "data", shop) as gateway:
        gateway.clock.seconds = resolution.transaction.updated + 3 * 86_400.0
        await gateway.resume()
        assert await gateway.state(id) == "rolled_back"
    assert shop.effects[2:] == ["undo_charge", "undo_reserve"]


@pytest.mark.parametrize(("outcome", "happened"), [(LOST_AFTER, True), (LOST_BEFORE, False)])
async def test_a_compensation_in_doubt_is_not_made_again_unless_somebody_knows(
    tmp_path: Path, gateway: TransactionHarness, source: LedgerFilesSource, outcome: str, *, happened: bool
) -> None:
    id = await stuck(gateway, [outcome])
    before = await gateway.saga_runner.find_transaction(place_of(id))
    line = await refused(tmp_path, "resolve", id, "--retry")
    op_id = before.steps[1].undo_op_id
    assert f"`headgate operations resolve {op_id} --happened` or `--did-not-happen`" in line
    assert "--on-doubt retry" in line
    assert await gateway.saga_runner.find_transaction(place_of(id)) == before
    shown = format_transaction(await show_transaction(source, id, None), as_json=False)
    assert f"headgate operations resolve {op_id} --did-not-happen" in shown
    assert f"resolve {id} --retry --on-doubt retry" in shown
    assert f"resolve {id} --retry " not in shown.replace("--retry --on-doubt", "")
    await resolve_operation(source, op_id, happened=happened)
    await resolve(source, id, OperatorDecision.RETRY)
    await go_on(gateway)
    assert await gateway.state(id) == "rolled_back"
    assert gateway.shop.effects[2:] == ["undo_charge", "undo_reserve"]


async def test_consent_makes_a_compensation_in_doubt_again(
    gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    id = await stuck(gateway, [LOST_AFTER])
    await resolve(source, id, OperatorDecision.RETRY, repeats_doubt=True)
    await go_on(gateway)
    after = await gateway.ask("get_transaction", transaction_id=id)
    assert (after["state"], gateway.shop.effects[2:]) == (
        "rolled_back",
        ["undo_charge", "undo_charge", "undo_reserve"],
    )
    texts = [one["event"] for one in after["history"]]
    assert "operator: retry from step 2 on, although its compensation may have been carried out" in texts


async def test_a_compensation_that_may_be_repeated_needs_no_consent(
    tmp_path: Path, shop: Shop, source: LedgerFilesSource
) -> None:
    (tmp_path / "data").mkdir()
    async with harness(tmp_path / "data", shop, kind=ToolClass.IDEMPOTENT) as gateway:
        id = await stuck(gateway, [LOST_BEFORE] * 5)
        await resolve(source, id, OperatorDecision.RETRY)
        await go_on(gateway)
        assert await gateway.state(id) == "rolled_back"


@pytest.mark.parametrize("lost", ["charge", "undo_charge"])
async def test_what_the_ledger_has_forgotten_is_left_to_the_operator(
    gateway: TransactionHarness, source: LedgerFilesSource, lost: str
) -> None:
    gateway.shop.script[lost] = [LOST_AFTER]
    id = await gateway.begin()
    with suppress(TransactionFailed):
        await gateway.step(id, "charge")
    await gateway.ask("transaction_rollback", transaction_id=id)
    gateway.clock.forward(8 * 86_400.0)
    await gateway.sweep()
    with pytest.raises(TransactionFailed, match="may have been carried out") as refusal:
        await resolve(source, id, OperatorDecision.RETRY)
    assert "--compensated" in refusal.value.hint
    assert "operations resolve" not in refusal.value.hint
    shown = format_transaction(await show_transaction(source, id, None), as_json=False)
    assert "operations resolve" not in shown
    await resolve(source, id, OperatorDecision.COMPENSATED)
    assert await gateway.state(id) == "rolled_back"


async def test_a_gateway_that_is_killed_at_any_point_of_a_retry_makes_no_compensation_twice() -> None:
    point, killed = 0, True
    with quick_directory() as directory:
        source = LedgerFilesSource(directory)
        while killed:
            point += 1
            shop, clock = Shop(), Clock()
            async with harness(directory, shop, clock) as gateway:
                id = await stuck(gateway)
            await resolve(source, id, OperatorDecision.RETRY)
            async with harness(directory, shop, clock) as gateway:
                crash_point = CrashPoint(point)
                gateway.arm(crash_point)
                killed = await until_killed(crash_point, partial(go_on, gateway))
            async with harness(directory, shop, clock) as gateway:
                await gateway.resume()
                state = await gateway.state(id)
            undone = shop.effects[2:]
            assert len(set(undone)) == len(undone), point
            if state == "rolled_back":
                assert undone == ["undo_charge", "undo_reserve"], point
            else:
                found = (await show_transaction(source, id, None)).transaction
                assert "may have been carried out" in found.reason, point
                await resolve(source, id, OperatorDecision.LEAVE)
    # Each of the two compensations alone passes five.
    assert point > 10


async def test_a_step_in_doubt_is_settled_first(
    gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    gateway.shop.script["charge"] = [LOST_AFTER]
    id = await gateway.begin()
    await gateway.step(id, "reserve")
    with pytest.raises(TransactionFailed):
        await gateway.step(id, "charge")
    await gateway.ask("transaction_rollback", transaction_id=id)
    for repeats_doubt in (False, True):
        with pytest.raises(TransactionFailed, match="which decides what is undone") as refusal:
            await resolve(source, id, OperatorDecision.RETRY, repeats_doubt=repeats_doubt)
    op_id = (await gateway.saga_runner.find_transaction(place_of(id))).steps[1].op_id
    assert op_id in refusal.value.hint
    await resolve_operation(source, op_id, happened=True)
    await resolve(source, id, OperatorDecision.RETRY)
    await go_on(gateway)
    assert await gateway.state(id) == "rolled_back"
    assert gateway.shop.effects == ["reserve", "charge", "undo_charge", "undo_reserve"]


async def test_a_step_without_a_compensation_is_not_retried(
    gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    id = await stuck(gateway, undo=(), compensate={"tool": "undo_charge", "args": {"id": "$result.nothing"}})
    with pytest.raises(
        TransactionFailed, match="no compensation to retry: its compensation cannot be filled"
    ):
        await resolve(source, id, OperatorDecision.RETRY)
    shown = format_transaction(await show_transaction(source, id, None), as_json=False)
    assert "--retry" not in shown
    await resolve(source, id, OperatorDecision.COMPENSATED)
    assert await gateway.state(id) == "rolled_back"


async def test_what_was_undone_by_hand_is_rolled_back(
    tmp_path: Path, gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    id = await stuck(gateway, [LOST_AFTER])
    op_id = (await gateway.saga_runner.find_transaction(place_of(id))).steps[1].undo_op_id
    said = await told(
        tmp_path, "resolve", id, "--compensated", "--note", os.fsdecode(b"by\n phone\xff \x1b[31m")
    )
    first, second = said.splitlines()
    assert first == f"Transaction {id} is rolled_back: it was undone by hand."
    assert second.startswith(f"Operation {op_id} is still in doubt")
    after = await gateway.ask("get_transaction", transaction_id=id)
    assert (after["state"], [step["state"] for step in after["steps"]]) == (
        "rolled_back",
        ["undone_by_hand"] * 2,
    )
    assert after["steps"][1]["compensation"]["state"] == "in_doubt"
    assert after["history"][-1]["event"] == "operator: undone by hand, steps 1, 2 (by phone? \x1b[31m)"
    # Nothing follows, also not from a word about the call that it was in doubt about.
    await resolve_operation(source, op_id, happened=False)
    await gateway.resume()
    assert (await gateway.ask("transaction_rollback", transaction_id=id))["state"] == "rolled_back"
    assert gateway.shop.effects == ["reserve", "charge", "undo_charge"]
    shown = format_transaction(await show_transaction(source, id, None), as_json=False)
    assert "\x1b" not in shown


async def test_what_is_left_stays_failed_and_asks_for_nobody(
    tmp_path: Path, gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    id = await stuck(gateway)
    document = json.loads(await told(tmp_path, "resolve", id, "--leave", "--json"))
    assert document.keys() == FIELDS | {"decision", "gateway_runs", "operations_in_doubt"}
    assert (document["status"], document["state"], document["decision"]) == ("left", "failed", "leave")
    after = await gateway.ask("get_transaction", transaction_id=id)
    assert (after["state"], after["not_undone"], "waits_for" in after) == ("failed", [2, 1], False)
    assert after["reason"] == "an operator left it as it is; not undone: 2, 1"
    await gateway.resume()
    assert (await gateway.saga_runner.counts())[Phase.STUCK] == 0
    with pytest.raises(TransactionFailed, match="left it as it is"):
        await gateway.ask("transaction_rollback", transaction_id=id)
    assert gateway.shop.effects == ["reserve", "charge"]
    assert [one.id for one in (await list_transactions(source, ("left",))).transactions] == [id]


@pytest.mark.parametrize("decision", OperatorDecision)
async def test_what_is_not_stuck_is_not_resolved(
    gateway: TransactionHarness, source: LedgerFilesSource, decision: OperatorDecision
) -> None:
    running, done, left = await gateway.begin(), await gateway.begin(), await stuck(gateway)
    await gateway.ask("transaction_commit", transaction_id=done)
    await resolve(source, left, OperatorDecision.LEAVE)
    for id, state in ((running, "initiated"), (done, "completed"), (left, "failed")):
        with pytest.raises(TransactionFailed, match=f"is {state}.*, not stuck"):
            await resolve(source, id, decision)


async def test_of_two_operators_at_once_one_wins_and_the_other_is_told(
    gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    for _ in range(5):
        id = await stuck(gateway)
        outcomes = await asyncio.gather(
            *(
                resolve(source, id, decision)
                for decision in (OperatorDecision.LEAVE, OperatorDecision.COMPENSATED)
            ),
            return_exceptions=True,
        )
        (won,) = (one for one in outcomes if isinstance(one, TransactionResolution))
        (lost,) = (one for one in outcomes if isinstance(one, TransactionFailed))
        assert "was quicker" in lost.message or "not stuck" in lost.message
        found = await gateway.saga_runner.find_transaction(place_of(id))
        assert structs.replace(found, history=(), revision=0) == structs.replace(
            won.transaction, history=(), revision=0
        )


async def test_a_decision_about_an_older_state_is_not_recorded(
    gateway: TransactionHarness, source: LedgerFilesSource
) -> None:
    id = await stuck(gateway)
    old = await gateway.saga_runner.find_transaction(place_of(id))
    await resolve(source, id, OperatorDecision.LEAVE)
    newest = await gateway.saga_runner.find_transaction(place_of(id))
    assert not await gateway.store.save_decision(old, old.history[0], old.steps)
    assert await gateway.saga_runner.find_transaction(place_of(id)) == newest


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "exactly one of"),
        (("--retry", "--leave"), "exactly one of"),
        (("--leave", "--on-doubt", "retry"), "--on-doubt goes with --retry"),
        (("--retry", "--on-doubt", "always"), "'always' is not 'retry'"),
        (("--leave", "--note", "x" * 501), "at most 500"),
    ],
)
async def test_options_that_say_nothing_or_too_much_are_refused(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    done = await run(tmp_path, "resolve", "x", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
