"""A damaged ledger refuses calls: none that was carried out is carried out again."""

import asyncio
import math
import os
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headgate.control.ledger_recovery import LedgerRecoveryReport
from headgate.delivery.ledger import ClaimVerdict, LedgerDamaged, OperationOutcome, OperationState
from headgate.domain.mcp_request import McpResponse
from headgate.storage.sqlite.ledger import LEDGER_NAME, SqliteLedger, ledger_group_commit, open_ledger
from headgate.storage.sqlite.ledger_integrity import LEDGER_MIGRATIONS, LedgerGuard
from headgate.storage.sqlite.ledger_recovery import inspect, recover
from headgate.storage.sqlite.ledger_rows import forget_ended
from headgate.storage.sqlite.migrations import Migrations
from tests.storage.ledger_stages import WINDOW_SECONDS, SqliteStage, granted, intent, sqlite_stage

CALLS = 300
LONG_AGO = 0.0


def answer_of(number: int) -> McpResponse:
    return McpResponse(b'{"content":[{"type":"text","text":"paid %d"}]}' % number)


async def pay(ledger: SqliteLedger, numbers: range) -> None:
    async def one(number: int) -> None:
        operation = await granted(ledger, intent(f"order-{number}"))
        outcome = OperationOutcome(state=OperationState.DONE, answer=answer_of(number))
        assert await ledger.finish(operation.op_id, 1, outcome)

    await asyncio.gather(*(one(number) for number in numbers))


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Ledgers with payments: `closed`, `open` with its write-ahead log, and the `older` copy of a file."""
    found = {name: tmp_path_factory.mktemp("ledgers") / name for name in ("closed", "open", "older")}

    async def write() -> None:
        async with sqlite_stage(found["closed"]) as stage:
            ledger = await stage.gateway()
            await pay(ledger, range(CALLS // 2))
            await stage.end(ledger)
            shutil.copytree(found["closed"], found["older"])
            ledger = await stage.gateway()
            await pay(ledger, range(CALLS // 2, CALLS))
            shutil.copytree(found["closed"], found["open"], ignore=shutil.ignore_patterns("*-shm", "owners"))

    asyncio.run(write())
    return found


async def pay_again(directory: Path) -> tuple[int, int, int, str]:
    """Send every payment again: how many are granted, answered and refused, and the damage that is shown."""
    counts = [0, 0, 0]
    async with sqlite_stage(directory) as stage:
        ledger = await stage.gateway()
        for number in range(CALLS):
            try:
                claim = await ledger.claim(intent(f"order-{number}"))
                answer = None
                if claim.verdict is not ClaimVerdict.GRANTED:
                    answer = await ledger.read_answer(claim.operation.op_id)
                    assert answer in (None, answer_of(number))
            except LedgerDamaged:
                counts[2] += 1
            else:
                counts[0 if claim.verdict is ClaimVerdict.GRANTED else 2 if answer is None else 1] += 1
        await ledger.check()
        return counts[0], counts[1], counts[2], ledger.damage


def flip(path: Path, seed: int, bits: int) -> None:
    content, randomly = bytearray(path.read_bytes()), random.Random(seed)
    for _ in range(bits):
        content[randomly.randrange(len(content))] ^= 1 << randomly.randrange(8)
    path.write_bytes(content)


@pytest.mark.parametrize("bits", [1, 6, 60])
@pytest.mark.parametrize("seed", range(8))
async def test_no_payment_is_made_again_after_flipped_bits(
    tmp_path: Path, ledgers: dict[str, Path], seed: int, bits: int
) -> None:
    shutil.copytree(ledgers["closed"], tmp_path / "data")
    flip(tmp_path / "data" / LEDGER_NAME, seed, bits)
    granted_again, answered, refused, damage = await pay_again(tmp_path / "data")
    assert granted_again == 0
    assert answered + refused == CALLS
    # What is answered is right; what is not is explained.
    assert damage or answered == CALLS
    if bits == 60:
        assert damage


@pytest.mark.parametrize("seed", range(8))
async def test_no_payment_is_made_again_after_flipped_bits_in_the_log(
    tmp_path: Path, ledgers: dict[str, Path], seed: int
) -> None:
    shutil.copytree(ledgers["open"], tmp_path / "data")
    flip(tmp_path / "data" / f"{LEDGER_NAME}-wal", seed, 60)
    granted_again, answered, _, damage = await pay_again(tmp_path / "data")
    assert granted_again == 0
    assert damage or answered == CALLS


def _delete_log(data: Path, _: Path) -> None:
    (data / f"{LEDGER_NAME}-wal").unlink()


def _empty(data: Path, _: Path) -> None:
    (data / LEDGER_NAME).write_bytes(b"")


def _delete(data: Path, _: Path) -> None:
    (data / LEDGER_NAME).unlink()


def _delete_all(data: Path, _: Path) -> None:
    for path in data.glob(f"{LEDGER_NAME}*"):
        path.unlink()


def _cut(data: Path, _: Path) -> None:
    path = data / LEDGER_NAME
    os.truncate(path, path.stat().st_size // 8192 * 4096)


def _put_back(data: Path, older: Path) -> None:
    _delete_all(data, older)
    shutil.copy(older / LEDGER_NAME, data / LEDGER_NAME)


def _change_mark(data: Path, _: Path) -> None:
    flip(data / "ledger.mark", 1, 1)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (_delete_log, "commits of ledger.db are missing"),
        (_empty, "empty"),
        (_delete, "missing"),
        (_delete_all, "missing"),
        (_cut, ""),
        (_put_back, "commits of ledger.db are missing"),
        (_change_mark, "ledger.mark is changed"),
    ],
)
async def test_a_ledger_that_is_not_what_it_was_refuses_every_call(
    tmp_path: Path, ledgers: dict[str, Path], harm: Callable[[Path, Path], None], reason: str
) -> None:
    data = tmp_path / "data"
    shutil.copytree(ledgers["open"], data)
    harm(data, ledgers["older"])
    granted_again, _, refused, damage = await pay_again(data)
    assert granted_again == 0
    assert refused > 0
    assert reason in damage
    # And so does every later gateway, until the operator decides.
    assert await pay_again(data) == (0, 0, CALLS, damage)


@pytest.mark.parametrize(
    "text", [b"CREATE TABLE key_hashes", b"CREATE TABLE operations", b"bucket    INTEGER"]
)
async def test_a_schema_that_cannot_even_be_read_is_damage(
    tmp_path: Path, ledgers: dict[str, Path], text: bytes
) -> None:
    shutil.copytree(ledgers["closed"], tmp_path / "data")
    path = tmp_path / "data" / LEDGER_NAME
    content = bytearray(path.read_bytes())
    content[content.index(text) + 4] ^= 0x80
    path.write_bytes(content)
    granted_again, _, refused, damage = await pay_again(tmp_path / "data")
    assert (granted_again, refused) == (0, CALLS)
    assert damage
    report, _ = await recovered(path)
    assert report.kept == CALLS
    assert await pay_again(tmp_path / "data") == (0, CALLS, 0, "")


async def test_damage_that_two_threads_find_at_once_is_reported_once(
    tmp_path: Path, ledgers: dict[str, Path]
) -> None:
    for number in range(20):
        data = tmp_path / str(number)
        shutil.copytree(ledgers["closed"], data)
        (data / LEDGER_NAME).unlink()
        # The second gateway reads the report of the first one.
        for _ in range(2):
            assert await damage_found_by_two_threads(data) == [f"{LEDGER_NAME} is missing"]


async def damage_found_by_two_threads(data: Path) -> list[str]:
    reasons: list[str] = []
    async with (
        ledger_group_commit(data, on_damage=reasons.append) as group_commit,
        open_ledger(group_commit, data) as ledger,
    ):
        # The first is for the thread that writes, the second for the one that reads.
        works = ledger.claim(intent()), ledger.find("0" * 32)
        found = await asyncio.gather(*works, return_exceptions=True)
    assert [type(error) for error in found] == [LedgerDamaged] * 2
    return reasons


async def test_damage_is_found_without_any_call(tmp_path: Path, ledgers: dict[str, Path]) -> None:
    shutil.copytree(ledgers["closed"], tmp_path / "data")
    path = tmp_path / "data" / LEDGER_NAME
    content = bytearray(path.read_bytes())
    content[content.index(b'"paid 17"') + 3] ^= 1
    path.write_bytes(content)
    async with sqlite_stage(tmp_path / "data") as stage:
        ledger = await stage.gateway()
        assert await ledger.find("0" * 32) is None
        assert ledger.damage == ""
        assert await ledger.check() is None
        assert "the answer in row" in ledger.damage


async def test_two_gateways_on_one_ledger_do_not_take_each_other_for_damage(tmp_path: Path) -> None:
    async with sqlite_stage(tmp_path) as stage:
        one, other = await stage.gateway(), await stage.gateway()
        for start in range(0, 60, 20):
            await asyncio.gather(
                pay(one, range(start, start + 10)), pay(other, range(start + 10, start + 20))
            )
        assert [await one.check(), await other.check()] == [60, 60]
        assert await (await stage.gateway()).check() == 60


# What is recovered.


async def recovered(path: Path) -> tuple[LedgerRecoveryReport, Path]:
    report, aside = await asyncio.to_thread(recover, path, since=LONG_AGO, doubts_since=LONG_AGO)
    assert aside is not None
    return report, aside


def change(path: Path, text: bytes) -> None:
    """Flip one bit in the last copy of the text."""
    content = bytearray(path.read_bytes())
    content[content.rindex(text) + 3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("seed", range(6))
async def test_a_recovery_keeps_every_record_whose_checksum_holds(
    tmp_path: Path, ledgers: dict[str, Path], seed: int
) -> None:
    data, path = tmp_path / "data", tmp_path / "data" / LEDGER_NAME
    shutil.copytree(ledgers["open"], data)
    flip(path, seed, 60)
    damaged = path.read_bytes()
    found = await asyncio.to_thread(inspect, path, since=LONG_AGO, doubts_since=LONG_AGO)
    assert path.read_bytes() == damaged
    report, aside = await recovered(path)
    assert report == found
    assert aside.read_bytes() == damaged
    assert CALLS * 0.7 < report.kept <= CALLS
    granted_again, answered, refused, damage = await pay_again(data)
    assert damage == ""
    # Only what the report counts as lost is carried out again; of what is kept an answer may be lost.
    assert granted_again == CALLS - report.kept
    assert answered + refused == report.kept


async def test_a_recovery_loses_nothing_where_only_an_index_is_damaged(
    tmp_path: Path, ledgers: dict[str, Path]
) -> None:
    data, path = tmp_path / "data", tmp_path / "data" / LEDGER_NAME
    shutil.copytree(ledgers["closed"], data)
    content = bytearray(path.read_bytes())
    # The keys stand in the rows with what follows them, and in the index alone.
    at = content.index(b"localorder-299")
    while content[at + 14 : at + 22] == b"one call":
        at = content.index(b"localorder-299", at + 1)
    content[at + 7] ^= 1
    path.write_bytes(content)
    assert (await pay_again(data))[0] == 0
    report, _ = await recovered(path)
    assert report.loses_nothing, report
    assert await pay_again(data) == (0, CALLS, 0, "")


async def test_a_recovery_counts_a_lost_answer_as_a_loss(tmp_path: Path, ledgers: dict[str, Path]) -> None:
    path = tmp_path / "data" / LEDGER_NAME
    shutil.copytree(ledgers["closed"], tmp_path / "data")
    change(path, b'"paid 17"')
    report, _ = await recovered(path)
    assert (report.kept, report.lost_answers, report.loses_records) == (CALLS, 1, False)
    assert not report.loses_nothing
    assert await pay_again(tmp_path / "data") == (0, CALLS - 1, 1, "")


async def test_a_recovery_counts_an_answer_whose_file_is_lost(tmp_path: Path) -> None:
    async with sqlite_stage(tmp_path) as stage:
        ledger = await stage.gateway()
        await finish_large(ledger, "kept")
        await finish_large(ledger, "lost")
        await stage.end(ledger)
        for file in (tmp_path / "ledger").glob(f"{await operation_id(stage, 'lost')}*"):
            file.unlink()
        (tmp_path / "ledger.mark").write_bytes(b"")
        report, _ = await recovered(tmp_path / LEDGER_NAME)
        assert (report.kept, report.lost_answers) == (2, 1)
        recovered_ledger = await stage.gateway()
        found = await recovered_ledger.find_by_key("", "local", "lost")
        assert found is not None
        assert (found.state, found.answered, found.dropped) == (OperationState.DONE, False, True)


async def operation_id(stage: SqliteStage, key: str) -> str:
    ledger = await stage.gateway()
    found = await ledger.find_by_key("", "local", key)
    await stage.end(ledger)
    assert found is not None
    return found.op_id


async def test_a_recovery_takes_an_answer_from_any_copy_of_its_record(
    tmp_path: Path, ledgers: dict[str, Path]
) -> None:
    data, path = tmp_path / "data", tmp_path / "data" / LEDGER_NAME
    shutil.copytree(ledgers["open"], data)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        # Now the file and its log have the same records; the answer is lost in the file alone.
        content = path.read_bytes()
        log = path.with_name(f"{LEDGER_NAME}-wal").read_bytes()
        assert b'"paid 299"' in content
        assert b'"paid 299"' in log
        shutil.copytree(data, tmp_path / "harmed", ignore=shutil.ignore_patterns("*-shm", "owners"))
    change(tmp_path / "harmed" / LEDGER_NAME, b'"paid 299"')
    (tmp_path / "harmed" / "ledger.mark").write_bytes(b"")
    report, _ = await recovered(tmp_path / "harmed" / LEDGER_NAME)
    assert (report.kept, report.lost_answers) == (CALLS, 0)


async def test_a_recovery_of_a_missing_ledger_sets_nothing_aside(
    tmp_path: Path, ledgers: dict[str, Path]
) -> None:
    path = tmp_path / "data" / LEDGER_NAME
    shutil.copytree(ledgers["closed"], tmp_path / "data")
    _delete_all(tmp_path / "data", path)
    report, aside = await asyncio.to_thread(recover, path, since=LONG_AGO, doubts_since=LONG_AGO)
    assert (report.kept, report.uncounted) == (0, True)
    assert aside is None
    assert list(path.parent.glob("ledger-damaged-*")) == []


async def test_what_failed_is_in_doubt_after_a_recovery(tmp_path: Path) -> None:
    async with sqlite_stage(tmp_path) as stage:
        ledger = await stage.gateway()
        failed = await granted(ledger)
        assert await ledger.finish(failed.op_id, 1, OperationOutcome(state=OperationState.FAILED))
        await stage.end(ledger)
        (tmp_path / "ledger.mark").write_bytes(b"")
        report, _ = await recovered(tmp_path / LEDGER_NAME)
        assert (report.kept, report.doubted, report.uncounted) == (1, 1, True)
        claim = await (await stage.gateway()).claim(intent())
        assert (claim.verdict, claim.operation.state) == (ClaimVerdict.KNOWN, OperationState.DOUBT)


async def test_a_recovery_that_was_killed_can_be_run_again(
    tmp_path: Path, ledgers: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, path = tmp_path / "data", tmp_path / "data" / LEDGER_NAME
    shutil.copytree(ledgers["open"], data)
    flip(path, 1, 60)
    damaged = path.read_bytes()

    class KilledError(BaseException):
        """The process ends before it has removed the mark of the new file."""

    def kill(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(LedgerGuard, "advance", kill)
        with pytest.raises(KilledError):
            await recovered(path)
    assert path.read_bytes() == damaged
    report, aside = await recovered(path)
    assert aside.read_bytes() == damaged
    assert report.kept > CALLS * 0.7


async def test_a_recovery_leaves_nothing_that_others_may_read(
    tmp_path: Path, ledgers: dict[str, Path]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(ledgers["open"], data)
    modes: set[int] = set()

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if noting and event == "sqlite3.connect":
            modes.update(file.stat().st_mode & 0o077 for file in data.iterdir() if file.is_file())

    noting = True
    sys.addaudithook(note)
    try:
        await recovered(data / LEDGER_NAME)
    finally:
        noting = False
    assert modes == {0}


async def test_an_index_of_large_answers_that_names_no_row_is_damage(tmp_path: Path) -> None:
    path = tmp_path / LEDGER_NAME
    async with sqlite_stage(tmp_path) as stage:
        ledger = await stage.gateway()
        await finish_large(ledger, "first")
        await stage.end(ledger)
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'operations_by_body'")
        page = (found.fetchone()[0] - 1) * 4096
    content = bytearray(path.read_bytes())
    cell = page + int.from_bytes(content[page + 8 : page + 10])
    # The last type in the header of the record is that of the number: the constant 1 becomes 0.
    content[cell + content[cell + 1]] ^= 1
    path.write_bytes(content)
    async with ledger_group_commit(tmp_path) as group_commit, asyncio.timeout(10):
        async with open_ledger(group_commit, tmp_path, most_bytes=300_000) as ledger:
            assert await ledger.find("0" * 32) is None
            with pytest.raises(LedgerDamaged, match="an index names row 0"):
                await finish_large(ledger, "second")
        (tmp_path / "ledger.damaged").unlink()
    async with sqlite_stage(tmp_path) as stage:
        ledger = await stage.gateway()
        assert await ledger.check() is None
        assert "missing in an index" in ledger.damage


async def finish_large(ledger: SqliteLedger, key: str) -> None:
    operation = await granted(ledger, intent(key))
    outcome = OperationOutcome(state=OperationState.DONE, answer=McpResponse(b"x" * 150_000))
    assert await ledger.finish(operation.op_id, 1, outcome)


# What is no damage.


async def test_a_key_that_is_forgotten_while_it_is_looked_up_is_no_damage(tmp_path: Path) -> None:
    async with sqlite_stage(tmp_path) as stage, ledger_group_commit(tmp_path) as group_commit:
        await pay(await stage.gateway(), range(1))
        stage.clock.time += WINDOW_SECONDS + 1
        async with open_ledger(group_commit, tmp_path, now=stage.clock) as reader:

            def forget(statement: str) -> None:
                if "FROM operations" in statement:
                    _forget_all(tmp_path / LEDGER_NAME)

            await group_commit.read(lambda connection: connection.set_trace_callback(forget))
            await reader.find_by_key("", "local", "order-0")
            assert reader.damage == ""
            assert await reader.find_by_key("", "local", "order-0") is None


def _forget_all(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        forget_ended(connection, math.inf, math.inf, 10)
        connection.execute("COMMIT")


def test_a_ledger_with_a_mark_is_migrated_to_a_later_version(
    ledgers: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(ledgers["closed"], tmp_path / "data")
    later = tmp_path / "migrations"
    shutil.copytree(LEDGER_MIGRATIONS.all[0].path.parent, later)
    number = LEDGER_MIGRATIONS.latest_version + 1
    (later / f"{number:04}_a_note.sql").write_text("ALTER TABLE operations ADD COLUMN note TEXT;\n")
    guard = LedgerGuard(tmp_path / "data" / LEDGER_NAME)
    with closing(guard.open(Migrations(later), 1.0)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (number,)
        assert connection.execute("SELECT count(note), count(*) FROM operations").fetchone()[1] >= CALLS
    guard.close()
