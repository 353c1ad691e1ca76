"""The promise table: what is answered, recorded and carried out, for each class of tool and each fault."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from headgate.domain.upstream_policy import ToolClass
from testkit.virtual_time import run_in_virtual_time
from tests.delivery.fake_bank import Bank, Fault
from tests.delivery.gateway_process import CallOutcome, GatewayProcess, order

# Longer than the bank needs to carry out what it was asked for, shorter than it may be at work.
_LATER_SECONDS = 100.0
_HELD = "held"

# Each fault befalls the first attempt only, unless it says "each time".
#
# The first caller, with a key:   what it gets, the state in the ledger some time later, and how often the
#                                 tool has run by then (one that takes a key: how often with an effect).
# The same call again:            what that gets, and how often the tool has run then.
# Instead with on_doubt "retry":  the same.
#
# `again answer` is the recorded answer, byte for byte; `again word` says that it happened, but no more.
_TABLE = """
nothing
    read       | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    idempotent | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    keyed      | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    unsafe     | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
connect refused
    read       | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    idempotent | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    keyed      | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    unsafe     | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
connect refused each time
    read       | CONNECTION_ERROR none    | failed   | 0 | answer           | 1 | answer                | 1
    idempotent | CONNECTION_ERROR none    | failed   | 0 | answer           | 1 | answer                | 1
    keyed      | CONNECTION_ERROR none    | failed   | 0 | answer           | 1 | answer                | 1
    probeable  | CONNECTION_ERROR none    | failed   | 0 | answer           | 1 | answer                | 1
    unsafe     | CONNECTION_ERROR none    | failed   | 0 | answer           | 1 | answer                | 1
rejected with -32602
    read       | -32602                   | failed   | 0 | answer           | 1 | answer                | 1
    idempotent | -32602                   | failed   | 0 | answer           | 1 | answer                | 1
    keyed      | -32602                   | failed   | 0 | answer           | 1 | answer                | 1
    probeable  | -32602                   | failed   | 0 | answer           | 1 | answer                | 1
    unsafe     | -32602                   | failed   | 0 | answer           | 1 | answer                | 1
rejected with HTTP 429
    read       | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    idempotent | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    keyed      | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    unsafe     | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
rejected with HTTP 429 each time
    read       | RATE_LIMIT none          | failed   | 0 | answer           | 1 | answer                | 1
    idempotent | RATE_LIMIT none          | failed   | 0 | answer           | 1 | answer                | 1
    keyed      | RATE_LIMIT none          | failed   | 0 | answer           | 1 | answer                | 1
    probeable  | RATE_LIMIT none          | failed   | 0 | answer           | 1 | answer                | 1
    unsafe     | RATE_LIMIT none          | failed   | 0 | answer           | 1 | answer                | 1
lost before execution
    read       | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    idempotent | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    keyed      | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    unsafe     | NETWORK_ERROR unknown    | in_doubt | 0 | IN_DOUBT unknown | 0 | answer                | 1
lost before execution each time
    read       | NETWORK_ERROR unknown    | in_doubt | 0 | answer           | 1 | answer                | 1
    idempotent | NETWORK_ERROR unknown    | in_doubt | 0 | answer           | 1 | answer                | 1
    keyed      | NETWORK_ERROR unknown    | in_doubt | 0 | answer           | 1 | answer                | 1
    probeable  | NETWORK_ERROR unknown    | in_doubt | 0 | answer           | 1 | answer                | 1
    unsafe     | NETWORK_ERROR unknown    | in_doubt | 0 | IN_DOUBT unknown | 0 | NETWORK_ERROR unknown | 0
lost after execution
    read       | answer                   | done     | 2 | again answer     | 2 | again answer          | 2
    idempotent | answer                   | done     | 2 | again answer     | 2 | again answer          | 2
    keyed      | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | word                     | done     | 1 | again word       | 1 | again word            | 1
    unsafe     | NETWORK_ERROR unknown    | in_doubt | 1 | IN_DOUBT unknown | 1 | answer                | 2
lost after execution each time
    read       | NETWORK_ERROR unknown    | in_doubt | 3 | answer           | 4 | answer                | 4
    idempotent | NETWORK_ERROR unknown    | in_doubt | 3 | answer           | 4 | answer                | 4
    keyed      | NETWORK_ERROR unknown    | in_doubt | 1 | answer           | 1 | answer                | 1
    probeable  | word                     | done     | 1 | again word       | 1 | again word            | 1
    unsafe     | NETWORK_ERROR unknown    | in_doubt | 1 | IN_DOUBT unknown | 1 | NETWORK_ERROR unknown | 2
timeout, never executed
    read       | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    idempotent | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    keyed      | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | TIMEOUT unknown          | in_doubt | 0 | IN_DOUBT unknown | 0 | answer                | 1
    unsafe     | TIMEOUT unknown          | in_doubt | 0 | IN_DOUBT unknown | 0 | answer                | 1
timeout, executed later, late answer
    read       | answer                   | done     | 2 | again answer     | 2 | again answer          | 2
    idempotent | answer                   | done     | 2 | again answer     | 2 | again answer          | 2
    keyed      | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | TIMEOUT unknown          | done     | 1 | again answer     | 1 | again answer          | 1
    unsafe     | TIMEOUT unknown          | done     | 1 | again answer     | 1 | again answer          | 1
timeout, executed later, no answer
    read       | answer                   | done     | 2 | again answer     | 2 | again answer          | 2
    idempotent | answer                   | done     | 2 | again answer     | 2 | again answer          | 2
    keyed      | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | TIMEOUT unknown          | in_doubt | 1 | again word       | 1 | again word            | 1
    unsafe     | TIMEOUT unknown          | in_doubt | 1 | IN_DOUBT unknown | 1 | answer                | 2
answer garbled
    read       | answer                   | done     | 2 | again answer     | 2 | again answer          | 2
    idempotent | answer                   | done     | 2 | again answer     | 2 | again answer          | 2
    keyed      | answer                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | word                     | done     | 1 | again word       | 1 | again word            | 1
    unsafe     | INVALID_MESSAGE unknown  | in_doubt | 1 | IN_DOUBT unknown | 1 | answer                | 2
answer is isError
    read       | isError                  | done     | 1 | again isError    | 1 | again isError         | 1
    idempotent | isError                  | done     | 1 | again isError    | 1 | again isError         | 1
    keyed      | isError                  | done     | 1 | again isError    | 1 | again isError         | 1
    probeable  | isError                  | done     | 1 | again isError    | 1 | again isError         | 1
    unsafe     | isError                  | done     | 1 | again isError    | 1 | again isError         | 1
answer is -32603
    read       | -32603                   | done     | 1 | again -32603     | 1 | again -32603          | 1
    idempotent | -32603                   | done     | 1 | again -32603     | 1 | again -32603          | 1
    keyed      | -32603                   | done     | 1 | again -32603     | 1 | again -32603          | 1
    probeable  | -32603                   | done     | 1 | again -32603     | 1 | again -32603          | 1
    unsafe     | -32603                   | done     | 1 | again -32603     | 1 | again -32603          | 1
cancelled before it is sent
    read       | cancelled                | failed   | 0 | answer           | 1 | answer                | 1
    idempotent | cancelled                | failed   | 0 | answer           | 1 | answer                | 1
    keyed      | cancelled                | failed   | 0 | answer           | 1 | answer                | 1
    probeable  | cancelled                | failed   | 0 | answer           | 1 | answer                | 1
    unsafe     | cancelled                | failed   | 0 | answer           | 1 | answer                | 1
cancelled before execution
    read       | cancelled                | in_doubt | 0 | answer           | 1 | answer                | 1
    idempotent | cancelled                | in_doubt | 0 | answer           | 1 | answer                | 1
    keyed      | cancelled                | in_doubt | 0 | answer           | 1 | answer                | 1
    probeable  | cancelled                | in_doubt | 0 | IN_DOUBT unknown | 0 | answer                | 1
    unsafe     | cancelled                | in_doubt | 0 | IN_DOUBT unknown | 0 | answer                | 1
cancelled after execution
    read       | cancelled                | in_doubt | 1 | answer           | 2 | answer                | 2
    idempotent | cancelled                | in_doubt | 1 | answer           | 2 | answer                | 2
    keyed      | cancelled                | in_doubt | 1 | answer           | 1 | answer                | 1
    probeable  | cancelled                | in_doubt | 1 | again word       | 1 | again word            | 1
    unsafe     | cancelled                | in_doubt | 1 | IN_DOUBT unknown | 1 | answer                | 2
killed after INTENT, before it is sent
    read       | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
    idempotent | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
    keyed      | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | killed                   | in_doubt | 0 | answer           | 1 | answer                | 1
    unsafe     | killed                   | in_doubt | 0 | IN_DOUBT unknown | 0 | answer                | 1
killed before execution, never executed
    read       | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
    idempotent | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
    keyed      | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | killed                   | in_doubt | 0 | answer           | 1 | answer                | 1
    unsafe     | killed                   | in_doubt | 0 | IN_DOUBT unknown | 0 | answer                | 1
killed before execution, executed later
    read       | killed                   | done     | 2 | again answer     | 2 | again answer          | 2
    idempotent | killed                   | done     | 2 | again answer     | 2 | again answer          | 2
    keyed      | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | killed                   | in_doubt | 1 | again word       | 1 | again word            | 1
    unsafe     | killed                   | in_doubt | 1 | IN_DOUBT unknown | 1 | answer                | 2
killed after execution, before DONE
    read       | killed                   | done     | 2 | again answer     | 2 | again answer          | 2
    idempotent | killed                   | done     | 2 | again answer     | 2 | again answer          | 2
    keyed      | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | killed                   | in_doubt | 1 | again word       | 1 | again word            | 1
    unsafe     | killed                   | in_doubt | 1 | IN_DOUBT unknown | 1 | answer                | 2
killed after DONE, before it is shown
    read       | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
    idempotent | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
    keyed      | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
    probeable  | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
    unsafe     | killed                   | done     | 1 | again answer     | 1 | again answer          | 1
store unavailable at INTENT
    read       | answer                   | -        | 1 | answer           | 2 | answer                | 2
    idempotent | SERVICE_UNAVAILABLE none | -        | 0 | answer           | 1 | answer                | 1
    keyed      | SERVICE_UNAVAILABLE none | -        | 0 | answer           | 1 | answer                | 1
    probeable  | SERVICE_UNAVAILABLE none | -        | 0 | answer           | 1 | answer                | 1
    unsafe     | SERVICE_UNAVAILABLE none | -        | 0 | answer           | 1 | answer                | 1
store unavailable at DONE
    read       | SERVICE_UNAVAILABLE done | intent   | 1 | again answer     | 1 | again answer          | 1
    idempotent | SERVICE_UNAVAILABLE done | intent   | 1 | again answer     | 1 | again answer          | 1
    keyed      | SERVICE_UNAVAILABLE done | intent   | 1 | again answer     | 1 | again answer          | 1
    probeable  | SERVICE_UNAVAILABLE done | intent   | 1 | again answer     | 1 | again answer          | 1
    unsafe     | SERVICE_UNAVAILABLE done | intent   | 1 | again answer     | 1 | again answer          | 1
"""

# Calls without a key leave no record: what the caller gets, and how often the tool has run.
_PLAIN_TABLE = """
nothing                                 | read idempotent keyed probeable unsafe | answer                  | 1
connect refused                         | read idempotent keyed probeable unsafe | answer                  | 1
connect refused each time               | read idempotent keyed probeable unsafe | CONNECTION_ERROR none   | 0
rejected with -32602                    | read idempotent keyed probeable unsafe | -32602                  | 0
rejected with HTTP 429                  | read idempotent keyed probeable unsafe | answer                  | 1
rejected with HTTP 429 each time        | read idempotent keyed probeable unsafe | RATE_LIMIT none         | 0
lost before execution                   | read idempotent keyed                  | answer                  | 1
lost before execution                   | probeable unsafe                       | NETWORK_ERROR unknown   | 0
lost before execution each time         | read idempotent keyed probeable unsafe | NETWORK_ERROR unknown   | 0
lost after execution                    | read idempotent                        | answer                  | 2
lost after execution                    | keyed                                  | answer                  | 1
lost after execution                    | probeable unsafe                       | NETWORK_ERROR unknown   | 1
lost after execution each time          | read idempotent                        | NETWORK_ERROR unknown   | 3
lost after execution each time          | keyed probeable unsafe                 | NETWORK_ERROR unknown   | 1
timeout, never executed                 | read idempotent keyed                  | answer                  | 1
timeout, never executed                 | probeable unsafe                       | TIMEOUT unknown         | 0
timeout, executed later, late answer    | read idempotent                        | answer                  | 2
timeout, executed later, late answer    | keyed                                  | answer                  | 1
timeout, executed later, late answer    | probeable unsafe                       | TIMEOUT unknown         | 1
timeout, executed later, no answer      | read idempotent                        | answer                  | 2
timeout, executed later, no answer      | keyed                                  | answer                  | 1
timeout, executed later, no answer      | probeable unsafe                       | TIMEOUT unknown         | 1
answer garbled                          | read idempotent                        | answer                  | 2
answer garbled                          | keyed                                  | answer                  | 1
answer garbled                          | probeable unsafe                       | INVALID_MESSAGE unknown | 1
answer is isError                       | read idempotent keyed probeable unsafe | isError                 | 1
answer is -32603                        | read idempotent keyed probeable unsafe | -32603                  | 1
cancelled before it is sent             | read idempotent keyed probeable unsafe | cancelled               | 0
cancelled before execution              | read idempotent keyed probeable unsafe | cancelled               | 0
cancelled after execution               | read idempotent keyed probeable unsafe | cancelled               | 1
killed before execution, never executed | read idempotent keyed probeable unsafe | killed                  | 0
killed before execution, executed later | read idempotent keyed probeable unsafe | killed                  | 1
killed after execution, before DONE     | read idempotent keyed probeable unsafe | killed                  | 1
"""


class Cell(NamedTuple):
    """One row of the table."""

    fault: str
    kind: str
    told: str
    state: str
    ran: str
    repeated: str
    ran_then: str
    retried: str
    ran_after_retry: str


class PlainCell(NamedTuple):
    """One class in a row of the table of plain calls."""

    fault: str
    kind: str
    told: str
    ran: str


def _cells() -> Iterator[Cell]:
    fault = ""
    for line in _TABLE.strip().splitlines():
        if "|" in line:
            yield Cell(fault, *map(str.strip, line.split("|")))
        else:
            fault = line


def _plain_cells() -> Iterator[PlainCell]:
    for line in _PLAIN_TABLE.strip().splitlines():
        fault, kinds, told, ran = map(str.strip, line.split("|"))
        for kind in kinds.split():
            yield PlainCell(fault, kind, told, ran)


@pytest.mark.parametrize("cell", list(_cells()), ids=lambda cell: f"{cell.kind}-{cell.fault}")
def test_each_cell_of_the_table_is_exact(cell: Cell, tmp_path: Path) -> None:
    assert run_in_virtual_time(_measured(cell.fault, cell.kind, tmp_path)) == cell


@pytest.mark.parametrize("cell", list(_plain_cells()), ids=lambda cell: f"{cell.kind}-{cell.fault}")
def test_each_cell_of_the_table_of_plain_calls_is_exact(cell: PlainCell, tmp_path: Path) -> None:
    assert run_in_virtual_time(_measured_plain(cell.fault, cell.kind, tmp_path)) == cell


def test_the_tables_have_every_class_with_every_fault() -> None:
    pairs = [(fault, kind.value) for fault in FAULTS for kind in ToolClass]
    assert sorted((cell.fault, cell.kind) for cell in _cells()) == sorted(pairs)
    # What befalls the ledger does not befall a call that leaves no record.
    plain = [(fault, kind) for fault, kind in pairs if not FAULTS[fault].ledger]
    assert sorted((cell.fault, cell.kind) for cell in _plain_cells()) == sorted(plain)


async def _measured(fault: str, kind: str, directory: Path) -> Cell:
    async with Scene(ToolClass(kind), directory) as scene:
        repeated = await _story(scene, FAULTS[fault], "repeat", retries_doubt=False)
        retried = await _story(scene, FAULTS[fault], "retry", retries_doubt=True)
    # Until the call is repeated it is the same.
    assert repeated[:3] == retried[:3]
    return Cell(fault, kind, *repeated, *retried[3:])


async def _measured_plain(fault: str, kind: str, directory: Path) -> PlainCell:
    async with Scene(ToolClass(kind), directory) as scene:
        told, state, ran, _, _ = await _story(scene, FAULTS[fault], "", retries_doubt=False)
    assert state == "-"
    return PlainCell(fault, kind, told, ran)


async def _story(scene: "Scene", point: "Point", key: str, *, retries_doubt: bool) -> list[str]:
    told = await scene.befall(point, key)
    await asyncio.sleep(_LATER_SECONDS)
    story = [told.words, await scene.state(key), scene.ran(key)]
    again = await scene.ask(key, retries_doubt=retries_doubt)
    if told.answer is not None and again.words.startswith("again"):
        assert again.answer is not None
        assert (again.answer.result, again.answer.error) == (told.answer.result, told.answer.error)
    return [*story, again.words, scene.ran(key)]


class Point(NamedTuple):
    """Where something goes wrong."""

    faults: tuple[Fault, ...] = ()
    # Whether the first caller cancels its call when the bank holds it.
    cancels: bool = False
    # When the gateway is killed: when the bank holds the call, or after a method of its ledger.
    dies: str = ""
    # Whether a bank that holds a call carries it out although the gateway was killed.
    goes_on: bool = False
    # The method of the ledger that fails for a while.
    down: str = ""

    @property
    def ledger(self) -> bool:
        """Whether it befalls the ledger rather than the call."""
        return bool(self.down) or self.dies not in ("", _HELD)


FAULTS = {
    "nothing": Point(),
    "connect refused": Point((Fault.REFUSED,)),
    "connect refused each time": Point((Fault.REFUSED,) * 3),
    "rejected with -32602": Point((Fault.BAD_PARAMS,)),
    "rejected with HTTP 429": Point((Fault.BUSY,)),
    "rejected with HTTP 429 each time": Point((Fault.BUSY,) * 3),
    "lost before execution": Point((Fault.LOST_BEFORE,)),
    "lost before execution each time": Point((Fault.LOST_BEFORE,) * 3),
    "lost after execution": Point((Fault.LOST_AFTER,)),
    "lost after execution each time": Point((Fault.LOST_AFTER,) * 3),
    "timeout, never executed": Point((Fault.TIMEOUT_NEVER,)),
    "timeout, executed later, late answer": Point((Fault.TIMEOUT_LATE,)),
    "timeout, executed later, no answer": Point((Fault.TIMEOUT_SILENT,)),
    "answer garbled": Point((Fault.GARBLED,)),
    "answer is isError": Point((Fault.ERROR_RESULT,)),
    "answer is -32603": Point((Fault.INTERNAL,)),
    "cancelled before it is sent": Point((Fault.HELD_UNSENT,), cancels=True),
    "cancelled before execution": Point((Fault.HELD_BEFORE,), cancels=True),
    "cancelled after execution": Point((Fault.HELD_AFTER,), cancels=True),
    "killed after INTENT, before it is sent": Point(dies="claim"),
    "killed before execution, never executed": Point((Fault.HELD_BEFORE,), dies=_HELD),
    "killed before execution, executed later": Point((Fault.HELD_BEFORE,), dies=_HELD, goes_on=True),
    "killed after execution, before DONE": Point((Fault.HELD_AFTER,), dies=_HELD),
    "killed after DONE, before it is shown": Point(dies="finish"),
    "store unavailable at INTENT": Point(down="claim"),
    "store unavailable at DONE": Point(down="finish"),
}


class Scene:
    """Callers of one tool, each with one call; a bank, and one gateway after the other."""

    def __init__(self, tool: ToolClass, directory: Path) -> None:
        self._tool = tool
        self._directory = directory
        self._bank = Bank()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        self._gateway = await self._stack.enter_async_context(GatewayProcess(self._bank, self._directory))

    def ran(self, key: str) -> str:
        """How often the tool has run for that caller."""
        return str(self._bank.runs[key])

    async def state(self, key: str) -> str:
        """What the ledger says of the call."""
        return ", ".join(one.state for one in await self._gateway.records() if one.key == key) or "-"

    async def ask(self, key: str, *, retries_doubt: bool = False) -> CallOutcome:
        """What a caller gets now."""
        return await self._gateway.ask(order(self._tool, key, key=key, retries_doubt=retries_doubt))

    async def befall(self, point: Point, key: str) -> CallOutcome:
        """What the first caller gets, to whom it happens."""
        self._bank.faults.clear()
        self._bank.faults.extend(point.faults)
        self._bank.released.clear()
        self._bank.is_gone = False
        self._gateway.dies_after = point.dies
        self._gateway.down = {point.down}
        first = asyncio.create_task(self.ask(key))
        if point.cancels or point.dies == _HELD:
            await self._bank.holds()
        if point.cancels:
            first.cancel("cancelled by the client")
            await asyncio.wait({first})
            return CallOutcome("cancelled")
        if point.dies == _HELD:
            self._gateway.kill()
        else:
            await asyncio.wait({first})
        self._gateway.down = set()
        if not self._gateway.is_dead:
            return await first
        await self._restarted(point)
        await asyncio.wait({first})
        return CallOutcome("killed")

    async def _restarted(self, point: Point) -> None:
        """The next gateway finds what the killed one left."""
        await self._gateway.close()
        await self._start()
        await self._gateway.recover()
        self._bank.is_gone = not point.goes_on
        self._bank.released.set()
