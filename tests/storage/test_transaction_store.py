"""Transactions in ledger.db: what was recorded comes back, and of two changes at once one is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from headgate.delivery.transactions.saga_rules import OnFailure, Phase, Remedy, StepState
from headgate.delivery.transactions.transaction_store import (
    HistoryEvent,
    StepRecord,
    TransactionKey,
    TransactionRecord,
)
from headgate.storage.files.ledger_files import ProcessLiveness
from headgate.storage.sqlite.group_commit import GroupCommit
from headgate.storage.sqlite.ledger import LEDGER_NAME, ledger_group_commit, open_ledger
from headgate.storage.sqlite.ledger_recovery import recover
from headgate.storage.sqlite.transaction_store import SqliteTransactionStore
from tests.storage.ledger_stages import Clock, granted, intent

WINDOW_SECONDS = 1_000.0
EVENT = HistoryEvent(5.0, "something happened")


class Gateway:
    """One gateway's store of transactions."""

    def __init__(self, group_commit: GroupCommit, directory: Path, clock: Clock) -> None:
        self.clock = clock
        self.liveness = ProcessLiveness(directory / "owners")
        self.store = SqliteTransactionStore(
            group_commit, self.liveness, window_seconds=WINDOW_SECONDS, now=clock
        )

    async def end(self) -> None:
        """Be gone."""
        await asyncio.to_thread(self.liveness.close)


@asynccontextmanager
async def gateway(directory: Path) -> AsyncIterator[Gateway]:
    """A gateway on the files of the directory."""
    async with ledger_group_commit(directory) as group_commit:
        opened = Gateway(group_commit, directory, Clock())
        yield opened
        await opened.end()


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path) as opened:
        yield opened


def transaction(id: str = "t", phase: Phase = Phase.RUNNING, updated: float = 1.0) -> TransactionRecord:
    return TransactionRecord(
        tenant="shop",
        principal="ann",
        id=id,
        created=1.0,
        updated=updated,
        deadline=9.0,
        phase=phase,
        history=(HistoryEvent(1.0, "begun"),),
    )


def step(number: int = 1, state: StepState = StepState.SENT) -> StepRecord:
    return StepRecord(number=number, tool="pay", arguments=b"{}", state=state)


async def saved(store: SqliteTransactionStore, changed: TransactionRecord, *steps: StepRecord) -> None:
    """Begin it, and record its steps."""
    assert await store.begin(changed)
    for revision, one_step in enumerate(steps):
        assert await store.save(structs.replace(changed, revision=revision), EVENT, one_step)


texts = st.text(max_size=20)
documents = st.binary(max_size=20)
steps = st.builds(
    StepRecord,
    number=st.just(1),
    tool=texts,
    arguments=documents,
    state=st.sampled_from(StepState),
    remedy=st.sampled_from(Remedy),
    named=texts,
    client=texts,
    op_id=texts,
    undo_tool=texts,
    undo_template=documents,
    undo_arguments=documents,
    undo_op_id=texts,
    undo_round=st.integers(1, 9),
    error=texts,
)


@settings(max_examples=20, deadline=None)
@given(
    step=steps,
    phase=st.sampled_from(Phase),
    on_failure=st.sampled_from(OnFailure),
    timed_out=st.booleans(),
    reason=texts,
)
async def test_what_was_recorded_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    step: StepRecord,
    phase: Phase,
    on_failure: OnFailure,
    *,
    timed_out: bool,
    reason: str,
) -> None:
    begun = structs.replace(transaction(), on_failure=on_failure)
    changed = structs.replace(
        begun, phase=phase, timed_out=timed_out, reason=reason, updated=7.0, steps=(step,)
    )
    async with gateway(tmp_path_factory.getbasetemp() / "same") as opened:
        # All examples share a file: each begins another one.
        id = str(sum((await opened.store.counts()).values()))
        begun, changed = structs.replace(begun, id=id), structs.replace(changed, id=id)
        assert await opened.store.begin(begun)
        assert await opened.store.save(changed, EVENT, step)
        found = await opened.store.load(changed.transaction_key)
        expected = structs.replace(changed, revision=1, history=(*begun.history, EVENT))
        assert found == expected


async def test_a_place_is_taken_once(one: Gateway) -> None:
    assert await one.store.begin(transaction())
    assert not await one.store.begin(structs.replace(transaction(), deadline=99.0))
    found = await one.store.load(transaction().transaction_key)
    assert found == transaction()


async def test_the_same_id_of_another_is_another_transaction(one: Gateway) -> None:
    await one.store.begin(transaction())
    for place in (
        TransactionKey("shop", "bob", "t"),
        TransactionKey("other", "ann", "t"),
        TransactionKey("shop", "ann", "u"),
    ):
        assert await one.store.load(place) is None
    assert await one.store.begin(structs.replace(transaction(), principal="bob"))


async def test_a_change_of_an_older_revision_changes_nothing(one: Gateway) -> None:
    await saved(one.store, transaction(), step())
    stale = structs.replace(transaction(), phase=Phase.DONE)
    assert not await one.store.save(stale, HistoryEvent(6.0, "too late"), step(2))
    found = await one.store.load(stale.transaction_key)
    assert found is not None
    assert (found.phase, len(found.steps), found.history[-1]) == (Phase.RUNNING, 1, EVENT)


async def test_half_a_character_of_a_server_is_recorded_as_its_number(one: Gateway) -> None:
    await one.store.begin(transaction())
    changed = structs.replace(transaction(), reason="\ud83d")
    assert await one.store.save(changed, HistoryEvent(2.0, "\ud83d"), structs.replace(step(), error="\ud83d"))
    found = await one.store.load(changed.transaction_key)
    assert found is not None
    assert (found.reason, found.steps[0].error, found.history[1].text) == (("\\ud83d",) * 3)


async def test_only_what_no_other_gateway_is_at_work_on_is_unfinished(one: Gateway, tmp_path: Path) -> None:
    for phase in Phase:
        await one.store.begin(transaction(phase.value, phase))
    async with gateway(tmp_path) as other:
        assert await other.store.list_unfinished() == []
        open_ones = [heading.transaction_key.id for heading in await one.store.list_unfinished()]
        assert open_ones == ["running", "compensating", "stuck"]
        await one.end()
        assert [heading.transaction_key.id for heading in await other.store.list_unfinished()] == open_ones
        assert (await other.store.counts()) == dict.fromkeys(Phase, 1)


async def test_a_step_that_another_gateway_may_be_about_to_send_says_so(one: Gateway, tmp_path: Path) -> None:
    await saved(one.store, transaction(), step(1, StepState.DONE), step(2))
    async with gateway(tmp_path) as other:
        # A change of the transaction itself does not take its step over.
        changed = structs.replace(transaction(), phase=Phase.COMPENSATING, revision=2)
        assert await other.store.save(changed, EVENT, None)
        for store, elsewhere in ((other.store, [False, True]), (one.store, [False, False])):
            found = await store.load(changed.transaction_key)
            assert found is not None
            assert [each.elsewhere for each in found.steps] == elsewhere
        await one.end()
        found = await other.store.load(changed.transaction_key)
        assert found is not None
        assert not found.steps[1].elsewhere


async def test_the_call_of_a_step_is_found_by_its_key(one: Gateway, tmp_path: Path) -> None:
    async with (
        ledger_group_commit(tmp_path) as group_commit,
        open_ledger(group_commit, tmp_path) as ledger,
    ):
        operation = await granted(ledger, intent(key="headgate:tx/t/1"))
    place = TransactionKey(operation.tenant, operation.principal, "t")
    assert await one.store.find_operation_id(place, "headgate:tx/t/1") == operation.op_id
    assert await one.store.find_operation_id(place, "headgate:tx/t/2") is None
    of_another = TransactionKey(operation.tenant, "somebody else", "t")
    assert await one.store.find_operation_id(of_another, "headgate:tx/t/1") is None


async def test_what_ended_is_forgotten_after_its_window_and_nothing_else(one: Gateway) -> None:
    old, young = one.clock() - WINDOW_SECONDS - 1, one.clock() - 1
    for phase in Phase:
        await saved(one.store, transaction(f"old-{phase}", phase, old))
        await saved(one.store, transaction(f"young-{phase}", phase, young))
    kept = structs.replace(transaction("old-done", Phase.DONE, old), revision=0)
    assert await one.store.save(kept, EVENT, step())
    assert await one.store.sweep() == len([phase for phase in Phase if phase.is_final])
    for phase in Phase:
        place = transaction(f"old-{phase}").transaction_key
        assert (await one.store.load(place) is None) == phase.is_final
        assert await one.store.load(transaction(f"young-{phase}").transaction_key) is not None
    assert await one.store.sweep() == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [(StepState.SENT, StepState.DOUBT), (StepState.UNDOING, StepState.UNDO_DOUBT)],
)
async def test_what_was_under_way_is_in_doubt_after_a_recovery_that_loses_calls(
    tmp_path: Path, before: StepState, after: StepState
) -> None:
    async with (
        ledger_group_commit(tmp_path) as group_commit,
        open_ledger(group_commit, tmp_path) as ledger,
    ):
        await granted(ledger, intent())
        store = SqliteTransactionStore(group_commit, ledger.liveness)
        await saved(store, transaction("open", Phase.COMPENSATING), step(1, before))
        await saved(store, transaction("ended", Phase.DONE), step(1, before))
    path = tmp_path / LEDGER_NAME
    # The record of a call is lost, and every commit is there.
    path.write_bytes(path.read_bytes().replace(b"one call", b"one cell"))
    report, _ = await asyncio.to_thread(recover, path, since=0.0, doubts_since=0.0)
    assert (report.missing, report.uncounted, report.stuck_transactions) == (1, False, 0)
    async with gateway(tmp_path) as recovered:
        for id, state in (("open", after), ("ended", before)):
            found = await recovered.store.load(transaction(id).transaction_key)
            assert found is not None
            assert [one.state for one in found.steps] == [state]
