"""What becomes of an operation when something else happens while it is under way, or is being recorded."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headgate.delivery.ledger import OperationState
from headgate.delivery.operation_runner import LEASE_GRACE_SECONDS
from headgate.domain.errors import UpstreamLost
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.mcp_request import McpResponse, UpstreamCall
from headgate.domain.upstream_policy import Probe, ToolClass, ToolSafety
from testkit.waiting import eventually
from tests.delivery.fake_bank import (
    BANK,
    BANK_CARE,
    LONGEST_SECONDS,
    SETTLE_SECONDS,
    SPEC,
    TOOLS,
    Bank,
    Fault,
)
from tests.delivery.gateway_process import GatewayProcess, on_gateway_loop, order, started
from tests.delivery.scripted_upstream import WAIT_SECONDS

IDEMPOTENT, KEYED, UNSAFE = ToolClass.IDEMPOTENT, ToolClass.KEYED, ToolClass.UNSAFE
CANCELLED = "the client cancelled"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with started(GatewayProcess(Bank(), tmp_path)) as gateway:
        yield gateway


# A caller joins while the call is being given up.


@pytest.mark.parametrize(
    ("kind", "words"), [(UNSAFE, "IN_DOUBT unknown"), (IDEMPOTENT, "answer")], ids=["unsafe", "idempotent"]
)
@on_gateway_loop
async def test_whoever_comes_as_the_last_one_leaves_gets_what_the_record_says(
    gateway: GatewayProcess, kind: ToolClass, words: str
) -> None:
    gateway.bank.faults.append(Fault.HELD_BEFORE)
    first = asyncio.ensure_future(gateway.delivery.send_recorded(order(kind)))
    await gateway.bank.holds()
    gateway.waits["finish"] = asyncio.Event()
    first.cancel(CANCELLED)
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(gateway.ask(order(kind)))
    await eventually(lambda: gateway.bank.cancelled == 1, WAIT_SECONDS, "the call is cancelled")
    gateway.waits.pop("finish").set()
    assert (await second).words == words
    assert gateway.bank.runs["1"] == (kind is IDEMPOTENT)


@on_gateway_loop
async def test_whoever_comes_as_a_call_is_given_up_that_was_not_sent_makes_it(
    gateway: GatewayProcess,
) -> None:
    gateway.bank.faults.append(Fault.HELD_UNSENT)
    first = asyncio.ensure_future(gateway.delivery.send_recorded(order(UNSAFE)))
    await gateway.bank.holds()
    first.cancel(CANCELLED)
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await gateway.ask(order(UNSAFE))).words == "answer"
    assert gateway.bank.runs["1"] == 1


# A caller leaves while the owed answer is being written.


@on_gateway_loop
async def test_whoever_leaves_while_an_answer_is_written_that_was_owed_does_not_take_it_along(
    gateway: GatewayProcess,
) -> None:
    gateway.down = {"finish"}
    told = await gateway.ask(order(UNSAFE))
    gateway.down = set()
    gateway.waits["finish"] = asyncio.Event()
    looking = asyncio.ensure_future(gateway.delivery.find_operation(LOCAL_IDENTITY, told.op_id))
    await asyncio.sleep(0)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    gateway.waits.pop("finish").set()
    assert (await gateway.ask(order(UNSAFE))).words == "again answer"


@on_gateway_loop
async def test_an_answer_that_is_owed_is_written_without_anybody_asking_for_it(
    gateway: GatewayProcess,
) -> None:
    gateway.down = {"finish"}
    told = await gateway.ask(order(UNSAFE))
    gateway.down = set()
    assert await gateway.recover() == 0
    assert (await gateway.find(told.op_id)).state is OperationState.DONE


def test_an_answer_that_is_owed_is_written_at_the_end(tmp_path: Path) -> None:
    bank = Bank()
    with started(GatewayProcess(bank, tmp_path)) as gateway:
        gateway.run(owe(gateway))
    with started(GatewayProcess(bank, tmp_path)) as gateway:
        gateway.run(replay(gateway))
    assert bank.runs["1"] == 1


async def owe(gateway: GatewayProcess) -> None:
    gateway.down = {"finish"}
    assert (await gateway.ask(order(UNSAFE))).words == "SERVICE_UNAVAILABLE done"
    gateway.down = set()


async def replay(gateway: GatewayProcess) -> None:
    assert (await gateway.ask(order(UNSAFE))).words == "again answer"


# An attempt before the one that was answered.


@pytest.mark.parametrize("kind", [IDEMPOTENT, KEYED])
@on_gateway_loop
async def test_a_refusal_of_the_second_attempt_says_nothing_of_the_first(
    gateway: GatewayProcess, kind: ToolClass
) -> None:
    gateway.bank.faults.extend([Fault.LOST_AFTER, Fault.BAD_PARAMS])
    told = await gateway.ask(order(kind))
    assert told.words == "-32602"
    assert gateway.bank.runs["1"] == 1
    assert (await gateway.find(told.op_id)).state is OperationState.DOUBT


@on_gateway_loop
async def test_a_refusal_after_attempts_that_were_not_sent_means_that_nothing_happened(
    gateway: GatewayProcess,
) -> None:
    gateway.bank.faults.extend([Fault.REFUSED, Fault.BAD_PARAMS])
    told = await gateway.ask(order(IDEMPOTENT))
    assert (await gateway.find(told.op_id)).state is OperationState.FAILED


# A server that may go on, although an earlier caller gave up.


class BehindAProxy(Bank):
    """A bank whose proxy waits for nothing; what it was asked is carried out later."""

    async def _work(self, call: UpstreamCall, fault: Fault) -> McpResponse:
        self.parks = True
        self._carry_out_late(call, tells=False)
        lost = UpstreamLost(BANK, call.item.name, "it answered with HTTP 504")
        lost.may_still_run = True
        raise lost


def test_a_probe_that_says_no_means_nothing_when_only_a_proxy_gave_up(tmp_path: Path) -> None:
    bank = BehindAProxy()
    with started(GatewayProcess(bank, tmp_path)) as gateway:
        gateway.run(asked_twice(gateway))
    [carry_out] = bank.parked
    carry_out()
    assert bank.runs["1"] == 1


async def asked_twice(gateway: GatewayProcess) -> None:
    assert (await gateway.ask(order(ToolClass.PROBEABLE))).words == "NETWORK_ERROR unknown"
    await asyncio.sleep(2 * SETTLE_SECONDS)
    assert (await gateway.ask(order(ToolClass.PROBEABLE))).words == "IN_DOUBT unknown"


def test_a_probe_that_says_no_of_a_remote_server_is_believed_only_when_no_call_could_take_that_long(
    tmp_path: Path,
) -> None:
    pay = TOOLS[ToolClass.PROBEABLE]
    probe = msgspec.structs.replace(BANK_CARE.tools[pay].probe or Probe(""), settle_seconds=None)
    policy = msgspec.structs.replace(BANK_CARE, tools={pay: ToolSafety(probe=probe)})
    spec = msgspec.structs.replace(SPEC, policy=policy)
    bank = Bank()
    bank.faults.append(Fault.LOST_BEFORE)

    async def asked_at_last(gateway: GatewayProcess) -> None:
        await asked_twice(gateway)
        assert bank.runs["1"] == 0
        await asyncio.sleep(LONGEST_SECONDS)
        assert (await gateway.ask(order(ToolClass.PROBEABLE))).words == "answer"

    with started(GatewayProcess(bank, tmp_path, spec=spec)) as gateway:
        gateway.run(asked_at_last(gateway))
    assert bank.runs["1"] == 1


# A clock that is ahead.


@on_gateway_loop
async def test_what_is_under_way_here_is_not_taken_for_left_behind_when_its_lease_is_over(
    gateway: GatewayProcess,
) -> None:
    gateway.bank.faults.append(Fault.HELD_BEFORE)
    asking = asyncio.ensure_future(gateway.ask(order(UNSAFE)))
    await gateway.bank.holds()
    await asyncio.sleep(LONGEST_SECONDS + LEASE_GRACE_SECONDS + 1)
    assert await gateway.recover() == 0
    gateway.bank.released.set()
    assert (await asking).words == "answer"
