"""Any sequence of calls, faults, kills and clocks does what the model of the promises says.

HEADGATE_MACHINE_STEPS says how many steps are made, for a longer run than that of every day.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Collection, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headgate.delivery.ledger import OperationState
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.upstream_policy import ToolClass
from testkit.virtual_time import VirtualTimeLoop
from tests.delivery.delivery_model import Entry, Model, Span
from tests.delivery.fake_bank import Bank, Fault
from tests.delivery.gateway_process import REJOIN_SECONDS, CallOutcome, GatewayProcess, order

T = TypeVar("T")

_STEPS = int(os.environ.get("HEADGATE_MACHINE_STEPS", "400"))

# A disk that others use too may take a while for one commit.
_DISK_SECONDS = 20.0
_CANCELLED = "cancelled by the client"
KEYS = st.sampled_from(["a", "b"])
KINDS = st.sampled_from(list(ToolClass))
ARGUMENTS = st.sampled_from(["1", "2"])
# None is a bank that refuses each time.
FAULTS = st.sampled_from(
    [
        None,
        Fault.FINE,
        Fault.REFUSED,
        Fault.BAD_PARAMS,
        Fault.BUSY,
        Fault.LOST_BEFORE,
        Fault.LOST_AFTER,
        Fault.TIMEOUT_NEVER,
        Fault.TIMEOUT_LATE,
        Fault.TIMEOUT_SILENT,
        Fault.GARBLED,
        Fault.ERROR_RESULT,
        Fault.INTERNAL,
    ]
)
# Those after which a doubt is what it was.
FAULTS_IN_VAIN = st.sampled_from([None, Fault.BAD_PARAMS, Fault.LOST_BEFORE, Fault.TIMEOUT_NEVER])
SECONDS = st.sampled_from([10.0, 200.0, 25 * 3600.0, 8 * 24 * 3600.0])


_SETTINGS = settings(
    max_examples=10, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)


class Promises(RuleBasedStateMachine):
    """The gateway beside its model."""

    # Made so far, by all of them.
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._runner = self._stack.enter_context(asyncio.Runner(loop_factory=VirtualTimeLoop))
        self.bank = Bank()
        self.bank.parks = True
        self.model = Model()
        self.gateway = self._run(self._started())

    def teardown(self) -> None:
        self._run(self.gateway.__aexit__(None, None, None))
        self._stack.close()

    # What callers do.

    @rule(key=KEYS, kind=KINDS, argument=ARGUMENTS, fault=FAULTS, retries_doubt=st.booleans())
    def call(
        self, key: str, kind: ToolClass, argument: str, fault: Fault | None, *, retries_doubt: bool
    ) -> None:
        self._called(key, kind, argument, fault, callers=1, retries_doubt=retries_doubt)

    @rule(key=KEYS, fault=FAULTS, retries_doubt=st.booleans())
    def repeat(self, key: str, fault: Fault | None, *, retries_doubt: bool) -> None:
        entry = self.model.entries.get(key)
        if entry is not None:
            argument = entry.order.rpartition("-")[2]
            self._called(key, entry.kind, argument, fault, callers=1, retries_doubt=retries_doubt)

    @precondition(lambda self: self.model.doubts)
    @rule(which=st.integers(0, 1), fault=FAULTS_IN_VAIN)
    def retry(self, which: int, fault: Fault | None) -> None:
        """A caller takes its chances with a doubt."""
        key = self.model.doubts[which % len(self.model.doubts)]
        entry = self.model.entries[key]
        argument = entry.order.rpartition("-")[2]
        self._called(key, entry.kind, argument, fault, callers=1, retries_doubt=True)

    @rule(key=KEYS, kind=KINDS, argument=ARGUMENTS, fault=FAULTS, callers=st.integers(2, 4))
    def call_at_once(
        self, key: str, kind: ToolClass, argument: str, fault: Fault | None, callers: int
    ) -> None:
        self._called(key, kind, argument, fault, callers=callers, retries_doubt=False)

    @precondition(lambda self: not self.model.down)
    @rule(
        key=KEYS,
        kind=KINDS,
        argument=ARGUMENTS,
        carried_out=st.booleans(),
        end=st.sampled_from(["answered", "cancelled", "cut off", "back again", "killed"]),
    )
    def hold(self, key: str, kind: ToolClass, argument: str, *, carried_out: bool, end: str) -> None:
        """A call that takes its time, and what becomes of it meanwhile."""
        name = _order(key, kind, argument)
        self.model.forget(self._now, key)
        entry = self.model.entries.get(key)
        if entry is not None and (entry.state is not OperationState.FAILED or entry.order != name):
            return
        if entry is None:
            entry = self.model.entries[key] = Entry(kind, name, self._now)
        self.model.begin(entry, self._now)
        words = self.model.run(entry) if carried_out else ""
        told = self._run(self._held(key, kind, argument, end, carried_out=carried_out))
        if end == "killed":
            self.model.restart(self._now)
            return
        if end in ("answered", "back again"):
            words = words or self.model.run(entry)
            self.model.end(entry, OperationState.DONE, self._now, words)
            self._shown(entry, told[-1])
        else:
            self.model.end(entry, OperationState.DOUBT, self._now)
            entry.at_work = True
        expected = {"answered": [words, f"again {words}"], "back again": [f"again {words}"]}.get(end, [])
        assert [one.words for one in told] == expected

    @precondition(lambda self: not self.model.down)
    @rule(key=KEYS)
    def resolve(self, key: str) -> None:
        """A caller who knows what happened says so."""
        entry = self.model.entries.get(key)
        if entry is None or entry.state is not OperationState.DOUBT:
            return
        if not entry.runs and any(parked.entry is entry for parked in self.model.parked):
            # It has not happened yet, so the outcome is unknown.
            return
        if entry.owed is not None and entry.owed[0] is not OperationState.DOUBT:
            # The gateway knows how it ended and writes that down first, so that there is no doubt to resolve.
            return
        happened = entry.runs > 0
        self._run(self._resolved(key, happened=happened))
        self.model.end(
            entry,
            OperationState.DONE if happened else OperationState.FAILED,
            self._now,
            "word" if happened else "",
        )

    # What happens to them.

    @precondition(lambda self: self.model.parked)
    @rule(which=st.integers(0, 5))
    def carry_out_late(self, which: int) -> None:
        which %= len(self.model.parked)
        self._run(self._late(which))
        self.model.late(self.model.parked.pop(which), self._now)

    @rule()
    def kill(self) -> None:
        self._run(self._restarted())
        self.model.restart(self._now)

    @rule(method=st.sampled_from(["claim", "finish", ""]))
    def break_or_mend_the_store(self, method: str) -> None:
        self.model.down = method
        self.gateway.down = {method}

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    @rule()
    def sweep(self) -> None:
        assert self._run(self.gateway.ledger.sweep()) == self.model.forget(self._now)

    # What holds whatever happens.

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        Promises.steps += 1
        records = {record.key: record.state for record in self._run(self.gateway.records())}
        assert records == {key: entry.state for key, entry in self.model.entries.items()}

    @invariant()
    def the_bank_has_done_what_the_model_says_and_no_more(self) -> None:
        assert self.bank.runs == self.model.runs
        for entry in self.model.entries.values():
            if entry.kind in (ToolClass.UNSAFE, ToolClass.PROBEABLE):
                assert entry.runs <= entry.allowed
            if entry.kind is ToolClass.KEYED:
                assert entry.runs <= 1

    # How it is done.

    def _called(
        self,
        key: str,
        kind: ToolClass,
        argument: str,
        fault: Fault | None,
        *,
        callers: int,
        retries_doubt: bool,
    ) -> None:
        name = _order(key, kind, argument)
        self.bank.faults.extend([Fault.REFUSED] * 3 if fault is None else [fault])
        start = self._now
        calls = [order(kind, name, key=key, retries_doubt=retries_doubt) for _ in range(callers)]
        told = self._run(self._asked(calls))
        self.bank.faults.clear()
        span = Span(start, self._now)
        words, entry = self.model.call(key, kind, name, fault, retries_doubt=retries_doubt, now=span)
        others = words if " " in words or words.startswith("again") else f"again {words}"
        assert [one.words for one in told] == [words] + [others] * (callers - 1)
        for one in told:
            self._shown(entry, one)
        # Beyond the time for which a lost connection means that the bank may be at work.
        self._run(asyncio.sleep(2))

    def _shown(self, entry: Entry | None, told: CallOutcome) -> None:
        """An answer that a caller has seen is final."""
        if (
            entry is None
            or entry.state is not OperationState.DONE
            or told.answer is None
            or entry.words == "word"
        ):
            return
        seen = told.answer.error or told.result
        entry.shown = entry.shown or seen
        assert seen == entry.shown

    @property
    def _now(self) -> float:
        return self._runner.get_loop().time()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def _started(self) -> GatewayProcess:
        return await GatewayProcess(self.bank, self._directory).__aenter__()

    async def _asked(self, calls: list[Any]) -> list[CallOutcome]:
        return list(await asyncio.gather(*map(self.gateway.ask, calls)))

    async def _held(
        self, key: str, kind: ToolClass, argument: str, end: str, *, carried_out: bool
    ) -> list[CallOutcome]:
        self.bank.released.clear()
        self.bank.is_gone = False
        self.bank.faults.append(Fault.HELD_AFTER if carried_out else Fault.HELD_BEFORE)
        call = order(kind, _order(key, kind, argument), key=key)
        callers = [asyncio.create_task(self.gateway.ask(call))]
        await self.bank.holds()
        callers.append(asyncio.create_task(self.gateway.ask(call)))
        other = await self.gateway.ask(order(kind, "something else", key=key))
        assert other.words == "CONFLICT none"
        match end:
            case "answered":
                self.bank.released.set()
                return list(await asyncio.gather(*callers))
            case "cancelled" | "cut off" | "back again":
                for caller in callers:
                    caller.cancel(*([_CANCELLED] if end == "cancelled" else []))
                await asyncio.wait(callers)
                if end == "back again":
                    callers = [asyncio.create_task(self.gateway.ask(call))]
                    await asyncio.sleep(REJOIN_SECONDS * 2)
                    self.bank.released.set()
                    return [await callers[0]]
                await asyncio.sleep(REJOIN_SECONDS if end == "cut off" else 0)
                await self._settled([key])
            case "killed":
                self.gateway.kill()
                self.bank.is_gone = True
                self.bank.released.set()
                await asyncio.wait(callers)
                await self._restarted()
        return []

    async def _settled(self, keys: Collection[str]) -> None:
        """Wait until nothing with these keys is under way, without any time passing on the clock."""
        give_up_at = time.monotonic() + _DISK_SECONDS
        while time.monotonic() < give_up_at:
            records = await self.gateway.records()
            if all(record.state is not OperationState.INTENT for record in records if record.key in keys):
                return
            await asyncio.sleep(0)
        raise TimeoutError("an operation is still under way")

    async def _restarted(self) -> None:
        self.gateway.kill()
        await self.gateway.close()
        self.gateway = await self._started()
        await self.gateway.recover()
        await self._settled(self.model.entries)

    async def _late(self, which: int) -> None:
        self.bank.parked.pop(which)()
        # A store that is away is asked several times.
        await asyncio.sleep(3)

    async def _resolved(self, key: str, *, happened: bool) -> None:
        [record] = [record for record in await self.gateway.records() if record.key == key]
        await self.gateway.delivery.resolve(LOCAL_IDENTITY, record.op_id, happened=happened, by="caller")


def _order(key: str, kind: ToolClass, argument: str) -> str:
    return f"{key}-{kind}-{argument}"


# Ten steps a second is slow, even on a disk that others use too.
@pytest.mark.timeout(60 + _STEPS / 10)
def test_any_sequence_of_steps_does_what_the_model_says() -> None:
    Promises.steps = 0
    while Promises.steps < _STEPS:
        run_state_machine_as_test(Promises, settings=_SETTINGS)


def test_a_late_answer_to_what_is_done_already_is_not_owed_to_a_store_that_fails() -> None:
    machine = Promises()
    try:
        machine.call("a", ToolClass.READ, "1", Fault.TIMEOUT_LATE, retries_doubt=False)
        machine.break_or_mend_the_store("finish")
        machine.carry_out_late(0)
        machine.repeat("a", None, retries_doubt=False)
    finally:
        machine.teardown()


@pytest.mark.timeout(30)
def test_a_loop_in_a_hurry_goes_on_after_a_year() -> None:
    machine = Promises()
    try:
        for _ in range(50):
            machine.wait(8 * 24 * 3600.0)
    finally:
        machine.teardown()
