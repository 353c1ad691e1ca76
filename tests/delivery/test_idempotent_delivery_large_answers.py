"""Answers that are too large for memory: everybody gets the same bytes, and every file is closed."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.delivery.ledger import OperationState
from headgate.domain.mcp_request import McpResponse
from headgate.domain.payload import Payload
from headgate.domain.upstream_policy import ToolClass
from testkit.waiting import eventually
from tests.delivery.fake_bank import Bank, Fault
from tests.delivery.gateway_process import CallOutcome, GatewayProcess, on_gateway_loop, order, started
from tests.delivery.scripted_upstream import WAIT_SECONDS

UNSAFE, READ = ToolClass.UNSAFE, ToolClass.READ
LARGE = b'{"content":[{"type":"text","text":"' + b"0123456789" * 20_000 + b'"}]}'
CANCELLED = "cancelled by the client"


class Pile:
    """A value on disk, as far as anybody can tell."""

    def __init__(self, value: bytes = LARGE) -> None:
        self._value = value
        self.closed = 0

    @property
    def size(self) -> int:
        return len(self._value)

    @property
    def first(self) -> bytes:
        return self._value[:1]

    def chunks(self) -> Iterator[bytes]:
        assert not self.closed
        for start in range(0, len(self._value), 64 * 1024):
            yield self._value[start : start + 64 * 1024]

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with started(GatewayProcess(Bank(), tmp_path)) as gateway:
        yield gateway


@pytest.fixture
def pile(gateway: GatewayProcess) -> Pile:
    """What the bank's next answer is."""
    pile = Pile()
    gateway.bank.answers.append(McpResponse(pile))
    return pile


def _taken(told: CallOutcome) -> bytes:
    """All bytes of the answer, which is closed then."""
    assert told.answer is not None
    payload: Payload = told.answer.result
    assert not isinstance(payload, bytes)
    value = b"".join(payload.chunks())
    payload.close()
    return value


@on_gateway_loop
async def test_the_first_gets_it_as_it_came_and_the_others_get_the_same_bytes(
    gateway: GatewayProcess, pile: Pile
) -> None:
    gateway.bank.faults.append(Fault.HELD_AFTER)
    callers = [asyncio.create_task(gateway.ask(order(UNSAFE))) for _ in range(3)]
    await gateway.bank.holds()
    gateway.bank.released.set()
    told = [*await asyncio.gather(*callers), await gateway.ask(order(UNSAFE))]
    assert told[0].answer is not None
    assert told[0].answer.result is pile
    assert [_taken(one) for one in told] == [LARGE] * 4
    assert [one.words for one in told] == ["answer"] + ["again answer"] * 3
    assert pile.closed == 1


@on_gateway_loop
async def test_it_is_closed_when_the_first_has_left_and_others_take_copies(
    gateway: GatewayProcess, pile: Pile
) -> None:
    gateway.bank.faults.append(Fault.HELD_AFTER)
    first, second = [asyncio.create_task(gateway.ask(order(UNSAFE))) for _ in range(2)]
    await gateway.bank.holds()
    first.cancel(CANCELLED)
    gateway.bank.released.set()
    assert _taken(await second) == LARGE
    assert pile.closed == 1


@on_gateway_loop
async def test_it_is_closed_when_the_first_leaves_at_the_last_moment(
    gateway: GatewayProcess, pile: Pile
) -> None:
    gateway.waits["finish"] = asyncio.Event()
    first = asyncio.create_task(gateway.ask(order(UNSAFE)))
    await eventually(lambda: gateway.bank.runs["1"] == 1, WAIT_SECONDS, "it is carried out")
    gateway.waits.pop("finish").set()
    await eventually(lambda: pile.closed == 1 or first.cancel(), WAIT_SECONDS, "somebody closes it")
    await asyncio.wait({first})
    await eventually(lambda: pile.closed == 1, WAIT_SECONDS, "somebody closes it")


@on_gateway_loop
async def test_it_is_closed_when_nobody_waits_for_it_any_more(gateway: GatewayProcess, pile: Pile) -> None:
    gateway.bank.faults.append(Fault.HELD_AFTER)
    caller = asyncio.create_task(gateway.ask(order(UNSAFE)))
    await gateway.bank.holds()
    caller.cancel()
    await asyncio.wait({caller})
    gateway.bank.released.set()
    await eventually(lambda: pile.closed == 1, WAIT_SECONDS, "somebody closes it")
    assert _taken(await gateway.ask(order(UNSAFE))) == LARGE


@on_gateway_loop
async def test_a_late_one_is_recorded_and_closed(gateway: GatewayProcess, pile: Pile) -> None:
    gateway.bank.faults.append(Fault.TIMEOUT_LATE)
    await gateway.ask(order(UNSAFE))
    await eventually(lambda: pile.closed == 1, 100.0, "it is recorded")
    assert _taken(await gateway.ask(order(UNSAFE))) == LARGE


@on_gateway_loop
async def test_one_that_cannot_be_recorded_is_closed_and_in_doubt(
    gateway: GatewayProcess, pile: Pile
) -> None:
    gateway.down = {"finish"}
    first = await gateway.ask(order(UNSAFE))
    gateway.down = set()
    assert first.words == "SERVICE_UNAVAILABLE done"
    assert pile.closed == 1
    assert (await gateway.ask(order(UNSAFE))).words == "IN_DOUBT unknown"
    assert (await gateway.find(first.op_id)).state is OperationState.DOUBT


@on_gateway_loop
async def test_without_a_ledger_whoever_joined_a_read_gets_one_of_its_own(
    gateway: GatewayProcess, pile: Pile
) -> None:
    other = Pile()
    gateway.bank.answers.append(McpResponse(other))
    gateway.down = {"claim"}
    gateway.bank.faults.append(Fault.HELD_AFTER)
    callers = [asyncio.create_task(gateway.ask(order(READ))) for _ in range(2)]
    await gateway.bank.holds()
    gateway.bank.released.set()
    assert [_taken(one) for one in await asyncio.gather(*callers)] == [LARGE] * 2
    assert (pile.closed, other.closed) == (1, 1)
