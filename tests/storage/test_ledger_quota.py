"""The disk use of the ledger is bounded: the oldest answers go, and their calls stay known as done."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headgate.delivery.ledger import ClaimVerdict, OperationOutcome, OperationState
from headgate.domain.mcp_request import McpResponse
from headgate.storage.sqlite.ledger import SqliteLedger, bytes_used, ledger_group_commit, open_ledger
from tests.storage.ledger_stages import START, Clock, granted, intent

MEBIBYTE = 1 << 20
QUOTA = 4 * MEBIBYTE


def used(directory: Path) -> int:
    """The bytes of all files of the ledger."""
    files = [*directory.glob("ledger.*"), *(directory / "ledger").glob("*")]
    return sum(path.stat().st_size for path in files)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def ledger(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteLedger]:
    async with AsyncExitStack() as stack:
        group_commit = await stack.enter_async_context(ledger_group_commit(tmp_path))
        opened = open_ledger(group_commit, tmp_path, most_bytes=QUOTA, now=clock)
        yield await stack.enter_async_context(opened)


async def paid(ledger: SqliteLedger, clock: Clock, key: str, size: int) -> str:
    clock.time += 1
    operation = await granted(ledger, intent(key, lease_until=START + 10_000))
    outcome = OperationOutcome(state=OperationState.DONE, answer=McpResponse(b"x" * size))
    assert await ledger.finish(operation.op_id, 1, outcome)
    return operation.op_id


async def kept(ledger: SqliteLedger, op_id: str) -> bool:
    answer = await ledger.read_answer(op_id)
    if answer is not None and not isinstance(answer.result, bytes):
        answer.result.close()
    return answer is not None


async def test_the_oldest_large_answers_are_dropped_and_their_calls_are_known(
    tmp_path: Path, ledger: SqliteLedger, clock: Clock
) -> None:
    ids, most = [], 0
    for number in range(20):
        ids.append(await paid(ledger, clock, f"order-{number}", MEBIBYTE))
        most = max(most, used(tmp_path))
    # The log of what is about to be written to the file comes on top.
    assert most <= QUOTA + MEBIBYTE
    found = [await kept(ledger, op_id) for op_id in ids]
    assert found == sorted(found)
    assert sum(found) == 3
    for number, op_id in enumerate(ids):
        claim = await ledger.claim(intent(f"order-{number}"))
        assert (claim.verdict, claim.operation.state) == (ClaimVerdict.KNOWN, OperationState.DONE)
        assert claim.operation.dropped is not found[number]
        assert claim.operation.op_id == op_id
    assert await ledger.check() == 20


async def test_large_answers_at_once_stay_within_the_quota(
    tmp_path: Path, ledger: SqliteLedger, clock: Clock
) -> None:
    ids = await asyncio.gather(*(paid(ledger, clock, f"{number}", MEBIBYTE) for number in range(12)))
    await ledger.sweep()
    assert used(tmp_path) <= QUOTA + MEBIBYTE
    assert any([await kept(ledger, op_id) for op_id in ids])


async def test_an_answer_that_alone_is_too_large_is_not_kept(
    tmp_path: Path, ledger: SqliteLedger, clock: Clock
) -> None:
    before = await paid(ledger, clock, "before", MEBIBYTE)
    await paid(ledger, clock, "large", QUOTA + 1)
    claim = await ledger.claim(intent("large"))
    assert (claim.operation.state, claim.operation.dropped) == (OperationState.DONE, True)
    assert await kept(ledger, before)
    assert used(tmp_path) < QUOTA


async def test_answers_in_rows_are_dropped_too(tmp_path: Path, clock: Clock) -> None:
    async with (
        ledger_group_commit(tmp_path) as group_commit,
        open_ledger(group_commit, tmp_path, most_bytes=QUOTA, now=clock) as ledger,
    ):
        ids = [await paid(ledger, clock, f"order-{number}", 60_000) for number in range(200)]
        await ledger.sweep()
        found = [await kept(ledger, op_id) for op_id in ids]
        assert found == sorted(found)
        assert 0 < sum(found) < QUOTA // 60_000
        assert (await ledger.claim(intent("order-0"))).verdict is ClaimVerdict.KNOWN
        assert await ledger.check() == 200
    # 12 MB were written. A quarter of the file may be free.
    assert used(tmp_path) <= QUOTA * 4 / 3


async def test_the_file_becomes_smaller_when_calls_are_forgotten(tmp_path: Path, clock: Clock) -> None:
    async with (
        ledger_group_commit(tmp_path) as group_commit,
        open_ledger(group_commit, tmp_path, window_seconds=1000, now=clock) as ledger,
    ):
        for number in range(300):
            await paid(ledger, clock, f"order-{number}", 30_000)
        clock.time += 2000
        assert await ledger.sweep() == 300
        assert await ledger.check() == 0
    # 9 MB were written. A megabyte may be free.
    assert used(tmp_path) < 1.5 * MEBIBYTE


async def test_answers_of_a_time_before_those_that_were_dropped_are_dropped_too(
    tmp_path: Path, clock: Clock
) -> None:
    async with (
        ledger_group_commit(tmp_path) as group_commit,
        open_ledger(group_commit, tmp_path, most_bytes=QUOTA, now=clock) as ledger,
    ):
        clock.time += 3600
        for number in range(200):
            await paid(ledger, clock, f"before-{number}", 60_000)
        await ledger.sweep()
        # The clock is set back, and has passed the time of the last sweep again when the next one comes.
        clock.time -= 3600
        for number in range(200):
            await paid(ledger, clock, f"after-{number}", 60_000)
        clock.time += 7200
        await ledger.sweep()
        assert await group_commit.read(bytes_used) <= QUOTA
