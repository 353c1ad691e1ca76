"""ledger.db: one commit for many, answers of any size, and what becomes of it when something breaks."""

import asyncio
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from headgate.delivery.ledger import ClaimVerdict, OperationOutcome, OperationState
from headgate.domain.errors import StoreFailed
from headgate.domain.mcp_request import McpResponse
from headgate.domain.payload import Payload, SpooledPayload
from headgate.results.result_store import FileContent
from headgate.storage.files.ledger_files import ProcessLiveness
from headgate.storage.sqlite.group_commit import GroupCommit
from headgate.storage.sqlite.ledger import LEDGER_NAME, SqliteLedger, ledger_group_commit, open_ledger
from headgate.storage.sqlite.migrations import Migrations
from headgate.upstream.message_assembly import SpooledValue, SpoolFile
from tests.storage.ledger_first_version import write_first_shape
from tests.storage.ledger_loop import answer_to
from tests.storage.ledger_stages import (
    ANSWER,
    WINDOW_SECONDS,
    SqliteStage,
    ended,
    granted,
    intent,
    same,
    sqlite_stage,
    state_of,
)

WAIT_SECONDS = 20.0
LARGE = 5 * 1024 * 1024


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[SqliteStage]:
    async with sqlite_stage(tmp_path) as stage:
        yield stage


@pytest.fixture
async def ledger(stage: SqliteStage) -> SqliteLedger:
    return await stage.gateway()


def bodies(directory: Path) -> list[Path]:
    return list((directory / "ledger").glob("*"))


def taken(payload: Payload) -> bytes:
    assert isinstance(payload, SpooledPayload)
    try:
        return b"".join(payload.chunks())
    finally:
        payload.close()


def spooled(directory: Path) -> SpooledValue:
    file = SpoolFile(directory / "spool")
    file.append(b'{"result":"' + b"ab" * 200_000 + b'"}')
    return SpooledValue(file, 10, file.size - 1)


# One commit for many.


async def test_what_waits_while_a_commit_runs_shares_the_next(tmp_path: Path) -> None:
    group_commit = ledger_group_commit(tmp_path)
    async with group_commit, open_ledger(group_commit, tmp_path) as ledger:
        await asyncio.gather(*(granted(ledger, intent(f"{number}")) for number in range(100)))
        assert group_commit.commits <= 10
        assert (await ledger.counts())[OperationState.INTENT] == 100


async def test_a_work_that_fails_costs_the_others_nothing(tmp_path: Path) -> None:
    def add(connection: sqlite3.Connection, number: int) -> int:
        connection.execute("INSERT INTO numbers VALUES (?)", (number,))
        if number == 13:
            raise LookupError("unlucky")
        return number

    (tmp_path / "0001_numbers.sql").write_text("CREATE TABLE numbers (number INTEGER PRIMARY KEY);\n")
    async with GroupCommit(tmp_path / "some.db", Migrations(tmp_path)) as group_commit:
        works = [group_commit.write(partial(add, number=number)) for number in (*range(20), 7)]
        results = await asyncio.gather(*works, return_exceptions=True)
        assert isinstance(results.pop(), StoreFailed)
        assert isinstance(results.pop(13), LookupError)
        kept = await group_commit.read(lambda c: [n for (n,) in c.execute("SELECT number FROM numbers")])
    assert results == kept == [number for number in range(20) if number != 13]


async def test_a_caller_that_leaves_does_not_take_its_work_with_it(
    stage: SqliteStage, ledger: SqliteLedger
) -> None:
    small, large = await granted(ledger, intent("small")), await granted(ledger, intent("large"))
    for operation, size in ((small, 10), (large, LARGE)):
        outcome = OperationOutcome(state=OperationState.DONE, answer=McpResponse(b"x" * size))
        finishing = asyncio.ensure_future(ledger.finish(operation.op_id, 1, outcome))
        await asyncio.sleep(0)
        finishing.cancel()
    await stage.end(ledger)
    again = await stage.gateway()
    assert [await state_of(again, known.op_id) for known in (small, large)] == [OperationState.DONE] * 2


async def test_reads_go_on_while_another_process_has_the_file_locked(
    tmp_path: Path, ledger: SqliteLedger
) -> None:
    first = await ended(ledger, OperationState.DONE)
    group_commit = ledger_group_commit(tmp_path, busy_seconds=0.1)
    async with group_commit, open_ledger(group_commit, tmp_path) as impatient:
        with closing(sqlite3.connect(tmp_path / LEDGER_NAME, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreFailed, match="locked"):
                await impatient.claim(intent("other"))
            assert await impatient.read_answer(first.op_id) == ANSWER
        await granted(impatient, intent("other"))


# Answers of any size.


async def test_a_large_answer_is_replayed_byte_for_byte(stage: SqliteStage, ledger: SqliteLedger) -> None:
    first = await granted(ledger)
    result = b'"%s"' % random.Random(7).randbytes(LARGE).hex().encode()[:LARGE]
    assert await ledger.finish(
        first.op_id, 1, OperationOutcome(state=OperationState.DONE, answer=McpResponse(result, typed=True))
    )
    await stage.end(ledger)
    answer = await (await stage.gateway()).read_answer(first.op_id)
    assert answer is not None
    assert answer.typed
    assert taken(answer.result) == result


async def test_a_spooled_answer_is_copied_and_can_be_mapped(
    tmp_path: Path, stage: SqliteStage, ledger: SqliteLedger
) -> None:
    value = await asyncio.to_thread(spooled, tmp_path)
    first = await granted(ledger)
    assert await ledger.finish(
        first.op_id, 1, OperationOutcome(state=OperationState.DONE, answer=McpResponse(value))
    )
    # It stays its owner's.
    result = taken(value)
    answer = await ledger.read_answer(first.op_id)
    assert answer is not None
    assert isinstance(answer.result, FileContent)
    assert (answer.result.size, answer.result.first) == (len(result), b'"')
    assert os.pread(answer.result.fileno(), 5, answer.result.start) == result[:5]
    # A sweep does not pull it away from who reads it.
    stage.clock.time += WINDOW_SECONDS + 1
    assert await ledger.sweep() == 1
    assert bodies(tmp_path) == []
    assert taken(answer.result) == result


async def test_files_of_answers_go_with_what_they_answer(
    tmp_path: Path, stage: SqliteStage, ledger: SqliteLedger
) -> None:
    large = McpResponse(b"x" * 100_000)
    for state in (OperationState.DONE, OperationState.ASKED, OperationState.FAILED):
        wanted = await granted(ledger, intent(state))
        assert await ledger.finish(wanted.op_id, 1, OperationOutcome(state=state, answer=large))
        assert not await ledger.finish(
            wanted.op_id, 1, OperationOutcome(state=OperationState.DONE, answer=large)
        )
    assert len(bodies(tmp_path)) == 3
    # Tried again, and so without an answer.
    await granted(ledger, intent(OperationState.ASKED))
    assert len(bodies(tmp_path)) == 2
    stage.clock.time += WINDOW_SECONDS + 1
    await granted(ledger, intent(OperationState.FAILED))
    assert len(bodies(tmp_path)) == 1
    assert await ledger.sweep() == 1
    assert bodies(tmp_path) == []


async def test_a_file_that_a_crash_left_behind_is_swept_but_not_one_that_may_still_be_named(
    tmp_path: Path, ledger: SqliteLedger
) -> None:
    under_way = await granted(ledger)
    left = [tmp_path / "ledger" / f"{op_id}.1.0123" for op_id in ("0" * 32, under_way.op_id)]
    left[0].parent.mkdir()
    for path in left:
        path.write_bytes(b"{}")
    assert await ledger.sweep() == 0
    assert bodies(tmp_path) == left[1:]
    assert await ledger.finish(under_way.op_id, 1, OperationOutcome(state=OperationState.DONE))
    assert await ledger.sweep() == 0
    assert bodies(tmp_path) == []


async def test_an_answer_whose_file_is_damaged_is_not_replayed(tmp_path: Path, ledger: SqliteLedger) -> None:
    first = await granted(ledger)
    await ledger.finish(
        first.op_id, 1, OperationOutcome(state=OperationState.DONE, answer=McpResponse(b"x" * 100_000))
    )
    (body,) = bodies(tmp_path)
    body.write_bytes(b"x" * 99_999)
    with pytest.raises(StoreFailed, match="damaged"):
        await ledger.read_answer(first.op_id)
    body.unlink()
    with pytest.raises(StoreFailed, match="gone"):
        await ledger.read_answer(first.op_id)


# The file itself.


async def test_only_its_owner_reads_what_is_recorded(tmp_path: Path, stage: SqliteStage) -> None:
    stage.directory = tmp_path / "new" / "data"
    ledger = await stage.gateway()
    first = await granted(ledger)
    await ledger.finish(
        first.op_id, 1, OperationOutcome(state=OperationState.DONE, answer=McpResponse(b"x" * 100_000))
    )
    files = [path for path in stage.directory.rglob("*") if path.is_file()]
    assert len(files) == 6
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


async def test_a_file_that_is_no_ledger_is_left_as_it_is(tmp_path: Path, ledger: SqliteLedger) -> None:
    path = tmp_path / LEDGER_NAME
    path.write_bytes(b"something else entirely, " * 100)
    for _ in range(2):
        with pytest.raises(StoreFailed, match="not a database"):
            await ledger.claim(intent())
        with pytest.raises(StoreFailed, match="not a database"):
            await ledger.find("0" * 32)
    assert path.read_bytes() == b"something else entirely, " * 100
    # Once it is mended, the ledger goes on by itself.
    path.unlink()
    await granted(ledger)


async def test_a_ledger_of_a_newer_version_is_left_as_it_is(tmp_path: Path, ledger: SqliteLedger) -> None:
    with closing(sqlite3.connect(tmp_path / LEDGER_NAME)) as newer:
        newer.execute("PRAGMA user_version = 99")
    content = (tmp_path / LEDGER_NAME).read_bytes()
    with pytest.raises(StoreFailed, match="newer version"):
        await ledger.claim(intent())
    assert (tmp_path / LEDGER_NAME).read_bytes() == content


async def test_a_file_gets_the_tables_that_another_part_adds_to_it(tmp_path: Path) -> None:
    await asyncio.to_thread(write_first_shape, tmp_path / LEDGER_NAME, calls=1, transactions=None)
    async with ledger_group_commit(tmp_path) as group_commit:
        assert await group_commit.read(lambda c: c.execute("SELECT * FROM steps").fetchall()) == []


async def test_many_gateways_open_a_new_ledger_at_once(stage: SqliteStage) -> None:
    gateways = [await stage.gateway() for _ in range(8)]
    claims = await asyncio.gather(*(gateway.claim(intent()) for gateway in gateways))
    assert [claim.verdict for claim in claims].count(ClaimVerdict.GRANTED) == 1


async def test_nothing_is_recorded_after_the_end(stage: SqliteStage, ledger: SqliteLedger) -> None:
    await granted(ledger)
    await stage.end(ledger)
    with pytest.raises(StoreFailed, match="closed"):
        await ledger.claim(intent("late"))


# Who is there.


def test_a_gateway_is_there_until_it_ends(tmp_path: Path) -> None:
    first, second = ProcessLiveness(tmp_path / "owners"), ProcessLiveness(tmp_path / "owners")
    assert not second.is_alive(first.register() + "0")
    assert second.is_alive(first.register())
    assert first.is_alive(second.register())
    assert first.is_alive(first.id)
    first.close()
    assert not second.is_alive(first.id)
    assert not first.is_alive(first.id)
    with pytest.raises(OSError, match="closed"):
        first.register()
    second.close()
    assert list((tmp_path / "owners").iterdir()) == []


def test_whoever_comes_clears_away_who_was_killed(tmp_path: Path) -> None:
    owners = tmp_path / "owners"
    owners.mkdir()
    # What is left of a process: a file without a lock.
    for name in ("f" * 32, "e" * 32 + ".draft"):
        (owners / name).touch()
    living, newcomer = ProcessLiveness(owners), ProcessLiveness(owners)
    living.register()
    newcomer.register()
    assert {path.name for path in owners.iterdir()} == {living.id, newcomer.id}
    living.close()
    newcomer.close()


# Other processes.


def looping(directory: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.storage.ledger_loop", "loop", str(directory)],
        stdout=subprocess.PIPE,
        text=True,
    )


def killed_after(process: "subprocess.Popen[str]", lines: int) -> list[list[str]]:
    """What was acknowledged until it was killed; the last line may be torn."""
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    said.extend(process.stdout)
    process.stdout.close()
    process.wait(WAIT_SECONDS)
    return [line.split() for line in said if line.endswith("\n")]


async def test_whatever_was_acknowledged_before_a_kill_is_there_after_it(
    tmp_path: Path, stage: SqliteStage
) -> None:
    chance = random.Random(11)
    acknowledged: list[list[str]] = []
    for _ in range(5):
        # Four gateways at a time share the directory.
        kills = [(looping(tmp_path), chance.randrange(1, 60)) for _ in range(4)]
        for said in await asyncio.gather(*(asyncio.to_thread(killed_after, *kill) for kill in kills)):
            acknowledged += said
    ledger = await stage.gateway()
    done = {op_id for word, _, op_id in acknowledged if word == "done"}
    for _, key, op_id in acknowledged:
        found = await ledger.find(op_id)
        assert found is not None
        assert found.key == key
        assert found.state is OperationState.DONE or (
            found.state is OperationState.INTENT and op_id not in done
        )
        if found.state is OperationState.DONE:
            answer = await ledger.read_answer(op_id)
            assert answer is not None
            stored = answer.result
            assert (stored if isinstance(stored, bytes) else taken(stored)) == answer_to(key)
    assert len(done) > 100
    under_way = (await ledger.counts())[OperationState.INTENT]
    assert len(await ledger.list_orphans()) == under_way > 0
    # Nothing is left of those who were killed but what they recorded.
    await granted(ledger)
    assert len(list((tmp_path / "owners").iterdir())) == 1


async def test_what_a_living_process_has_under_way_is_known_and_what_a_killed_one_had_is_in_doubt(
    tmp_path: Path, stage: SqliteStage
) -> None:
    process = looping(tmp_path)
    assert process.stdout is not None
    _, key, op_id = (await asyncio.to_thread(process.stdout.readline)).split()
    os.kill(process.pid, signal.SIGSTOP)
    ledger = await stage.gateway()
    # Where it stands is chance, but a process that only waits is never taken for dead.
    assert await ledger.list_orphans() == []
    under_way = await ledger.list_operations((OperationState.INTENT,))
    await asyncio.to_thread(killed_after, process, 0)
    assert [orphan.op_id for orphan in await ledger.list_orphans()] == [found.op_id for found in under_way]
    found = await ledger.find(op_id)
    assert found is not None
    assert found.key == key
    for orphan in under_way:
        assert same(await ledger.claim(intent(orphan.key)), ClaimVerdict.KNOWN, orphan, OperationState.DOUBT)


async def test_a_full_disk_refuses_what_is_new_and_keeps_what_is_old(tmp_path: Path) -> None:
    filling = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.storage.ledger_loop", "fill", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert filling.returncode == 0, filling.stderr
    said = [line.split() for line in filling.stdout.splitlines()]
    assert [words[:2] for words in said[:2]] == [["claim", "refused:"], ["answer", "refused:"]]
    assert said[2][0] == "kept"
    assert int(said[2][1]) > 0
