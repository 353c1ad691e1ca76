"""A ledger of an earlier version gets checksums, and forgets nothing."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from headgate.delivery.ledger import ClaimVerdict, OperationState
from headgate.delivery.transactions.transaction_store import TransactionKey
from headgate.storage.sqlite.ledger import LEDGER_NAME, ledger_group_commit, open_ledger
from headgate.storage.sqlite.transaction_store import SqliteTransactionStore
from tests.storage.ledger_first_version import write_first_shape
from tests.storage.ledger_stages import SqliteStage, intent, sqlite_stage

CALLS = 30


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[SqliteStage]:
    async with sqlite_stage(tmp_path) as stage:
        yield stage


@pytest.mark.parametrize("transactions", [None, 0, 3])
async def test_calls_of_the_first_shape_are_known_after_it(
    tmp_path: Path, stage: SqliteStage, transactions: int | None
) -> None:
    await asyncio.to_thread(write_first_shape, tmp_path / LEDGER_NAME, calls=CALLS, transactions=transactions)
    for _ in range(2):
        ledger = await stage.gateway()
        for number in range(CALLS):
            claim = await ledger.claim(intent(f"order-{number}"))
            assert (claim.verdict, claim.operation.state) == (ClaimVerdict.KNOWN, OperationState.DONE)
            answer = await ledger.read_answer(claim.operation.op_id)
            assert answer is not None
            assert answer.result == b'{"paid":%d}' % number
        assert await ledger.check() == CALLS + 1 + (transactions or 0)
        assert ledger.damage == ""
        await stage.end(ledger)
    again = await (await stage.gateway()).claim(intent(f"order-{CALLS}"))
    assert (again.verdict, again.operation.fence) == (ClaimVerdict.GRANTED, 2)


async def test_transactions_of_the_first_shape_keep_their_steps_and_history(tmp_path: Path) -> None:
    await asyncio.to_thread(write_first_shape, tmp_path / LEDGER_NAME, calls=1, transactions=3)
    async with (
        ledger_group_commit(tmp_path) as group_commit,
        open_ledger(group_commit, tmp_path) as ledger,
    ):
        found = await SqliteTransactionStore(group_commit, ledger.liveness).load(
            TransactionKey("shop", "ann", "t2")
        )
        assert found is not None
        assert [step.number for step in found.steps] == [1, 2]
        assert [event.text for event in found.history] == ["begun"]
        assert found.revision == 3


async def test_a_ledger_of_the_first_shape_in_place_of_a_newer_one_is_refused(
    tmp_path: Path, stage: SqliteStage
) -> None:
    ledger = await stage.gateway()
    await ledger.claim(intent())
    await stage.end(ledger)
    (tmp_path / LEDGER_NAME).unlink()
    await asyncio.to_thread(write_first_shape, tmp_path / LEDGER_NAME, calls=1, transactions=0)
    ledger = await stage.gateway()
    with pytest.raises(Exception, match="earlier version"):
        await ledger.claim(intent())
    with closing(sqlite3.connect(tmp_path / LEDGER_NAME)) as left:
        assert left.execute("PRAGMA user_version").fetchone() == (1,)
