"""`headgate operations`: what is in doubt, what became of a call, and an operator's word on it."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate.app.operator_ledger import LedgerFilesSource
from headgate.cli.operation_text import format_operation, format_operations
from headgate.control.operations import OPEN_STATES, list_operations, resolve_operation, show_operation
from headgate.delivery.ledger import LedgerDamaged, OperationOutcome, OperationState
from headgate.domain.errors import ConfigError, InvalidArguments
from headgate.storage.sqlite.ledger import LEDGER_NAME, SqliteLedger
from testkit.gateway_process import clean_environment
from tests.storage.ledger_stages import SqliteStage, ended, granted, intent, sqlite_stage

SECONDS = 20.0


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[SqliteStage]:
    async with sqlite_stage(tmp_path / "data") as stage:
        stage.clock.time = time.time() - 3700
        yield stage


@pytest.fixture
async def ledger(stage: SqliteStage) -> SqliteLedger:
    """A gateway that runs meanwhile."""
    return await stage.gateway()


@pytest.fixture
def source(tmp_path: Path) -> LedgerFilesSource:
    return LedgerFilesSource(tmp_path / "data")


async def run(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "headgate", "operations", *arguments, "--data-dir", str(directory / "data")],
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
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


async def refused(directory: Path, *arguments: str) -> str:
    done = await run(directory, *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done
    (line,) = done.stderr.splitlines()
    assert line.startswith("headgate: ")
    return line


async def test_what_is_open_is_listed_in_a_table_the_oldest_first(
    tmp_path: Path, stage: SqliteStage, ledger: SqliteLedger, source: LedgerFilesSource
) -> None:
    doubt = await granted(ledger, intent("order\x1b[31m 7"))
    outcome = OperationOutcome(
        state=OperationState.DOUBT, attempts=2, error_code="TIMEOUT", error="no answer in time " * 5
    )
    await ledger.finish(doubt.op_id, 1, outcome)
    await ended(ledger, OperationState.DONE, intent("done"))
    stage.clock.time += 3600
    under_way = await granted(ledger, intent("under way", lease_until=stage.clock.time + 1000))
    lines = (await told(tmp_path, "list")).splitlines()
    assert lines[0].split() == ["op_id", "state", "age", "server", "tool", "key", "attempts", "error"]
    assert lines[1].split()[:6] == [doubt.op_id, "in_doubt", "1h", "1m", "bank", "pay"]
    assert "\x1b" not in lines[1]
    assert lines[-1].split()[:3] == [under_way.op_id, "intent", "1m"]
    place = lines[0].index("error")
    assert " ".join(line[place:] for line in lines[1:-1]).startswith("TIMEOUT: no answer in time no answer")
    found = await list_operations(source, (OperationState.DONE, OperationState.DOUBT))
    named = json.loads(format_operations(found, as_json=True))
    assert [(one["key"], one["state"]) for one in named] == [
        ("order\x1b[31m 7", "in_doubt"),
        ("done", "done"),
    ]


async def test_one_operation_is_shown_with_everything_that_is_known_of_it(
    tmp_path: Path, ledger: SqliteLedger, source: LedgerFilesSource
) -> None:
    doubt = await ended(ledger, OperationState.DOUBT)
    shown = dict(line.split(maxsplit=1) for line in (await told(tmp_path, "show", doubt.op_id)).splitlines())
    assert (shown["op_id"], shown["state"], shown["effect"]) == (doubt.op_id, "in_doubt", "unknown")
    assert shown["arguments"] == '{"amount":1}'
    found = await show_operation(source, doubt.op_id)
    document = json.loads(format_operation(found, as_json=True))
    assert (document["class"], document["created"]) == ("unsafe", doubt.created)


async def test_an_operator_settles_a_doubt_while_a_gateway_runs(tmp_path: Path, ledger: SqliteLedger) -> None:
    doubt = await ended(ledger, OperationState.DOUBT)
    assert await told(tmp_path, "resolve", doubt.op_id, "--happened") == f"Operation {doubt.op_id} is done.\n"
    found = await ledger.find(doubt.op_id)
    assert found is not None
    assert (found.state, found.resolved_by) == (OperationState.DONE, "operator")


async def test_what_did_not_happen_may_be_tried_again(
    ledger: SqliteLedger, source: LedgerFilesSource
) -> None:
    doubt = await ended(ledger, OperationState.DOUBT)
    settled = await resolve_operation(source, doubt.op_id, happened=False)
    assert (settled.state, settled.resolved_by) == (OperationState.FAILED, "operator")
    assert (await granted(ledger)).op_id == doubt.op_id


async def test_what_a_dead_gateway_left_can_be_settled_before_one_starts_again(
    stage: SqliteStage, ledger: SqliteLedger, source: LedgerFilesSource
) -> None:
    left = await granted(ledger)
    await stage.end(ledger)
    settled = await resolve_operation(source, left.op_id, happened=True)
    assert (settled.state, settled.fence) == (OperationState.DONE, 2)


async def test_what_is_not_in_doubt_is_not_settled(
    tmp_path: Path, stage: SqliteStage, ledger: SqliteLedger, source: LedgerFilesSource
) -> None:
    done = await ended(ledger, OperationState.DONE, intent("done"))
    with pytest.raises(InvalidArguments, match="is done, not in doubt"):
        await resolve_operation(source, done.op_id, happened=False)
    under_way = await granted(ledger, intent("under way", lease_until=stage.clock.time + 10_000))
    assert "under way" in await refused(tmp_path, "resolve", under_way.op_id, "--happened")
    assert await ledger.find(under_way.op_id) == under_way


async def test_without_a_ledger_there_is_nothing_to_tell_and_none_is_made(
    tmp_path: Path, source: LedgerFilesSource
) -> None:
    none = await list_operations(source, (OperationState.DOUBT,))
    said = f"No call has been recorded: there is no {LEDGER_NAME} in {tmp_path / 'data'}."
    assert format_operations(none, as_json=False) == said
    assert json.loads(format_operations(none, as_json=True)) == []
    assert "not found" in await refused(tmp_path, "show", "0" * 32)
    assert not (tmp_path / "data").exists()


async def test_where_nothing_is_found_the_sentence_says_what_was_looked_for(
    ledger: SqliteLedger, source: LedgerFilesSource
) -> None:
    await ended(ledger, OperationState.DONE)
    open_ones = await list_operations(source, OPEN_STATES)
    assert format_operations(open_ones, as_json=False) == "No operation is in doubt or under way."
    failed = await list_operations(source, (OperationState.FAILED,))
    assert format_operations(failed, as_json=False) == "No operation is failed."


async def test_a_file_that_is_no_ledger_is_named_in_one_sentence(
    tmp_path: Path, source: LedgerFilesSource
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / LEDGER_NAME).write_bytes(b"something else " * 100)
    with pytest.raises(ConfigError, match="is not a database"):
        await list_operations(source, (OperationState.DOUBT,))


async def test_a_word_that_says_nothing_is_a_mistake(tmp_path: Path, ledger: SqliteLedger) -> None:
    doubt = await ended(ledger, OperationState.DOUBT)
    done = await run(tmp_path, "resolve", doubt.op_id)
    assert done.returncode == 2
    assert "--did-not-happen" in done.stderr
    done = await run(tmp_path, "resolve", doubt.op_id, "--happened", "--did-not-happen")
    assert done.returncode == 2
    assert "contradict each other" in done.stderr
    assert await ledger.list_operations((OperationState.DOUBT,)) != []


# A damaged ledger.


async def test_a_ledger_that_is_lost_is_named_with_what_to_do(
    tmp_path: Path, stage: SqliteStage, ledger: SqliteLedger
) -> None:
    await ended(ledger, OperationState.DONE)
    assert "nothing to recover" not in await refused(tmp_path, "recover")
    await stage.end(ledger)
    assert await told(tmp_path, "recover") == "The ledger is whole, or there is none: nothing to recover.\n"
    (tmp_path / "data" / LEDGER_NAME).unlink()
    for command in (["list"], ["show", "0" * 32], ["resolve", "0" * 32, "--happened"]):
        line = await refused(tmp_path, *command)
        assert "ledger.db is missing" in line
        assert "headgate operations recover" in line
    assert "Nothing was changed" in await told(tmp_path, "recover")
    found = json.loads(await told(tmp_path, "recover", "--json"))
    assert (found["damage"], found["found"]["kept"], found["aside"]) == ("ledger.db is missing", 0, "")
    assert "A new ledger is in place." in await told(tmp_path, "recover", "--accept-loss")
    assert await told(tmp_path, "list") == "No operation is in doubt or under way.\n"


async def test_damage_that_the_command_finds_is_refused_until_the_operator_decides(
    tmp_path: Path, stage: SqliteStage, ledger: SqliteLedger
) -> None:
    await ended(ledger, OperationState.DONE)
    await stage.end(ledger)
    path = tmp_path / "data" / LEDGER_NAME
    content = path.read_bytes()
    assert content.count(b"one call") == 1
    # A gateway finds it only when it reads this row.
    path.write_bytes(content.replace(b"one call", b"one cell"))
    assert "are still refused" in await told(tmp_path, "recover")
    with pytest.raises(LedgerDamaged):
        await (await stage.gateway()).claim(intent("another"))
