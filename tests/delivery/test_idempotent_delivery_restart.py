"""What a gateway left behind when it was killed, and what several gateways do with one ledger."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from headgate.catalog.errors import ServerNotFound
from headgate.delivery.ledger import Operation, OperationState
from headgate.domain.errors import UpstreamUnavailable
from headgate.domain.item import Item
from headgate.domain.server_spec import ServerSpec
from headgate.domain.upstream_policy import ToolClass, ToolSafety
from testkit.virtual_time import run_in_virtual_time
from testkit.waiting import eventually
from tests.delivery.fake_bank import BANK_CARE, LATE_SECONDS, SPEC, TOOLS, Bank, Fault, item
from tests.delivery.gateway_process import CallOutcome, GatewayProcess, order
from tests.delivery.scripted_upstream import WAIT_SECONDS

READ, KEYED, PROBEABLE, UNSAFE = ToolClass.READ, ToolClass.KEYED, ToolClass.PROBEABLE, ToolClass.UNSAFE


class GatewayRestarts:
    """A bank, and the gateways that share one ledger in front of it."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.bank = Bank()
        self._directory = directory
        self._stack = stack

    async def gateway(self, spec: ServerSpec = SPEC) -> GatewayProcess:
        """One more."""
        return await self._stack.enter_async_context(GatewayProcess(self.bank, self._directory, spec))

    async def left_behind(self, kind: ToolClass, spec: ServerSpec = SPEC) -> None:
        """A gateway was killed while the bank was at a call, which it carried out."""
        gateway = await self.gateway(spec)
        self.bank.faults.append(Fault.HELD_AFTER)
        caller = asyncio.create_task(gateway.ask(order(kind)))
        await self.bank.holds()
        gateway.kill()
        self.bank.released.set()
        await asyncio.wait({caller})
        await gateway.close()


@asynccontextmanager
async def _restarts(directory: Path) -> AsyncIterator[GatewayRestarts]:
    async with AsyncExitStack() as stack:
        yield GatewayRestarts(directory, stack)


async def _redriven(gateway: GatewayProcess) -> None:
    """Wait until nothing is under way."""
    async with asyncio.timeout(100 * WAIT_SECONDS):
        while any(record.state is OperationState.INTENT for record in await gateway.records()):
            await asyncio.sleep(0.5)


def test_what_may_be_repeated_is_made_again_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            await restarts.left_behind(READ)
            gateway = await restarts.gateway()
            assert await gateway.recover() == 1
            assert await gateway.recover() <= 1
            await _redriven(gateway)
            assert restarts.bank.runs["1"] == 2
            assert (await gateway.ask(order(READ))).words == "again answer"
            assert restarts.bank.runs["1"] == 2

    run_in_virtual_time(story())


@pytest.mark.parametrize("kind", [PROBEABLE, UNSAFE])
def test_what_may_not_be_repeated_is_in_doubt(tmp_path: Path, kind: ToolClass) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            await restarts.left_behind(kind)
            gateway = await restarts.gateway()
            assert await gateway.recover() == 1
            [record] = await gateway.records()
            assert (record.state, record.error) == (
                OperationState.DOUBT,
                "the gateway ended while it was under way",
            )
            assert await gateway.recover() == 0
            assert restarts.bank.runs["1"] == 1

    run_in_virtual_time(story())


def test_a_caller_who_is_back_first_makes_it_again_itself(tmp_path: Path) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            await restarts.left_behind(READ)
            gateway = await restarts.gateway()
            found = asyncio.Event()

            async def tool(operation: Operation) -> Item:
                await found.wait()
                return item(READ)

            await gateway.delivery.recover(tool)
            restarts.bank.faults.append(Fault.HELD_BEFORE)
            restarts.bank.released.clear()
            caller = asyncio.create_task(gateway.ask(order(READ)))
            await restarts.bank.holds()
            found.set()
            await asyncio.sleep(1)
            restarts.bank.released.set()
            assert (await caller).words == "answer"
            await asyncio.sleep(LATE_SECONDS)
            assert restarts.bank.runs["1"] == 2

    run_in_virtual_time(story())


def test_whoever_asks_while_it_is_made_again_gets_that_answer(tmp_path: Path) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            await restarts.left_behind(READ)
            gateway = await restarts.gateway()
            restarts.bank.faults.append(Fault.HELD_BEFORE)
            restarts.bank.released.clear()
            await gateway.recover()
            await restarts.bank.holds()
            caller = asyncio.create_task(gateway.ask(order(READ)))
            await asyncio.sleep(1)
            restarts.bank.released.set()
            assert (await caller).words == "again answer"
            assert restarts.bank.runs["1"] == 2

    run_in_virtual_time(story())


def test_a_call_of_a_server_that_is_gone_is_in_doubt(tmp_path: Path) -> None:
    async def nothing(operation: Operation) -> Item:
        raise ServerNotFound(operation.server, [])

    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            await restarts.left_behind(READ)
            gateway = await restarts.gateway()
            await gateway.delivery.recover(nothing)
            await _redriven(gateway)
            [record] = await gateway.records()
            assert record.state is OperationState.DOUBT
            assert "Unknown server" in record.error
            # Repeatable calls may still be repeated.
            assert (await gateway.ask(order(READ))).words == "answer"

    run_in_virtual_time(story())


def test_arguments_are_not_sent_to_another_tool_that_has_the_name_now(tmp_path: Path) -> None:
    async def another(operation: Operation) -> Item:
        return item(ToolClass.IDEMPOTENT)

    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            await restarts.left_behind(READ)
            gateway = await restarts.gateway()
            await gateway.delivery.recover(another)
            await _redriven(gateway)
            [record] = await gateway.records()
            assert record.state is OperationState.DOUBT
            assert restarts.bank.sent == 1

    run_in_virtual_time(story())


def test_what_the_operator_calls_unsafe_by_now_is_not_made_again(tmp_path: Path) -> None:
    policy = msgspec.structs.replace(BANK_CARE, tools={TOOLS[READ]: ToolSafety(kind=UNSAFE)})

    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            await restarts.left_behind(READ)
            gateway = await restarts.gateway(msgspec.structs.replace(SPEC, policy=policy))
            await gateway.recover()
            await _redriven(gateway)
            [record] = await gateway.records()
            assert record.state is OperationState.DOUBT
            assert restarts.bank.sent == 1

    run_in_virtual_time(story())


def test_what_another_gateway_leaves_behind_is_found_without_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            gateway = await restarts.gateway()
            assert await gateway.recover() == 0
            await restarts.left_behind(UNSAFE)
            assert await gateway.recover() == 1
            [record] = await gateway.records()
            assert record.state is OperationState.DOUBT
            assert await gateway.recover() == 0

    run_in_virtual_time(story())


def test_what_waits_for_its_server_is_found_once(tmp_path: Path) -> None:
    ready = asyncio.Event()

    async def tool(operation: Operation) -> Item:
        await ready.wait()
        return item(READ)

    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            await restarts.left_behind(READ)
            gateway = await restarts.gateway()
            assert [await gateway.delivery.recover(tool) for _ in range(3)] == [1, 0, 0]
            ready.set()
            await _redriven(gateway)
            assert restarts.bank.sent == 2

    run_in_virtual_time(story())


@pytest.mark.parametrize("starts", [True, False], ids=["at the start", "by a caller"])
def test_a_key_that_the_server_has_forgotten_is_not_sent_again(tmp_path: Path, *, starts: bool) -> None:
    policy = msgspec.structs.replace(
        BANK_CARE, tools={TOOLS[KEYED]: ToolSafety(key_argument="key", key_window_seconds=60.0)}
    )
    spec = msgspec.structs.replace(SPEC, policy=policy)

    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            await restarts.left_behind(KEYED, spec)
            await asyncio.sleep(61.0)
            gateway = await restarts.gateway(spec)
            if starts:
                await gateway.recover()
                assert [record.state for record in await gateway.records()] == [OperationState.DOUBT]
            assert (await gateway.ask(order(KEYED))).words == "IN_DOUBT unknown"
            assert restarts.bank.sent == 1

    run_in_virtual_time(story())


def test_a_ledger_that_cannot_be_read_does_not_keep_a_gateway_from_starting(tmp_path: Path) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            await restarts.left_behind(READ)
            gateway = await restarts.gateway()
            gateway.down = {"orphans"}
            assert await gateway.recover() == 0

    run_in_virtual_time(story())


def test_a_gateway_that_ends_does_not_wait_for_the_servers_of_what_it_found(tmp_path: Path) -> None:
    async def never(operation: Operation) -> Item:
        await asyncio.Event().wait()
        raise AssertionError

    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            await restarts.left_behind(READ)
            gateway = await restarts.gateway()
            await gateway.delivery.recover(never)
            started = asyncio.get_running_loop().time()
            await gateway.delivery.close()
            assert asyncio.get_running_loop().time() == started
            await gateway.close()
            # The next one finds it.
            gateway = await restarts.gateway()
            assert await gateway.recover() == 1
            await _redriven(gateway)
            assert (await gateway.ask(order(READ))).words == "again answer"

    run_in_virtual_time(story())


# Two gateways at the same time.


async def _both(
    restarts: GatewayRestarts, kind: ToolClass = UNSAFE
) -> tuple[GatewayProcess, GatewayProcess, "asyncio.Task[CallOutcome]"]:
    """Two gateways, and a call of the first one that the bank holds after it has carried it out."""
    one, other = await restarts.gateway(), await restarts.gateway()
    restarts.bank.faults.append(Fault.HELD_AFTER)
    caller = asyncio.create_task(one.ask(order(kind)))
    await restarts.bank.holds()
    return one, other, caller


def test_another_gateway_waits_for_the_record_of_the_first(tmp_path: Path) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            _, other, first = await _both(restarts)
            second = asyncio.create_task(other.ask(order(UNSAFE)))
            await asyncio.sleep(10)
            restarts.bank.released.set()
            told = [await first, await second]
            assert [one.words for one in told] == ["answer", "again answer"]
            assert told[0].result == told[1].result
            assert restarts.bank.runs["1"] == 1

    run_in_virtual_time(story())


def test_another_gateway_waits_no_longer_than_its_caller(tmp_path: Path) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            _, other, first = await _both(restarts)
            started = asyncio.get_running_loop().time()
            told = await other.ask(order(UNSAFE, timeout_seconds=3.0))
            assert told.words == "IN_PROGRESS unknown"
            assert asyncio.get_running_loop().time() - started <= 4.0
            restarts.bank.released.set()
            assert (await first).op_id == told.op_id

    run_in_virtual_time(story())


@pytest.mark.parametrize(("kind", "words", "ran"), [(READ, "answer", 2), (UNSAFE, "IN_DOUBT unknown", 1)])
def test_another_gateway_notices_that_the_first_is_gone(
    tmp_path: Path, kind: ToolClass, words: str, ran: int
) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            one, other, first = await _both(restarts, kind)
            second = asyncio.create_task(other.ask(order(kind)))
            await asyncio.sleep(1)
            one.kill()
            restarts.bank.released.set()
            await asyncio.wait({first})
            await one.close()
            assert (await second).words == words
            assert restarts.bank.runs["1"] == ran

    run_in_virtual_time(story())


def test_a_probe_of_before_says_nothing_of_what_another_gateway_sent_since(tmp_path: Path) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            one, other = await restarts.gateway(), await restarts.gateway()
            restarts.bank.faults.extend([Fault.LOST_BEFORE] * 3)
            assert (await one.ask(order(PROBEABLE))).words == "NETWORK_ERROR unknown"
            await asyncio.sleep(10)
            slow = asyncio.Event()
            restarts.bank.probes.append(slow)
            second = asyncio.create_task(other.ask(order(PROBEABLE)))
            await eventually(lambda: not restarts.bank.probes, WAIT_SECONDS, "the bank is asked")
            # Meanwhile the first gateway sends it, and its outcome is lost.
            restarts.bank.faults.append(Fault.HELD_AFTER)
            first = asyncio.create_task(one.ask(order(PROBEABLE)))
            await restarts.bank.holds()
            first.cancel("cancelled by the client")
            await eventually(lambda: restarts.bank.cancelled == 1, WAIT_SECONDS, "the call is cancelled")
            await asyncio.sleep(1)
            slow.set()
            assert (await second).words == "again word"
            assert restarts.bank.runs["1"] == 1

    run_in_virtual_time(story())


def test_a_server_that_is_late_is_waited_for_until_the_next_look(tmp_path: Path) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            await restarts.left_behind(READ)
            gateway = await restarts.gateway()

            looked = asyncio.Event()

            async def late(operation: Operation) -> Item:
                looked.set()
                raise UpstreamUnavailable(operation.server, "it is still starting", retry_after_seconds=1.0)

            await gateway.delivery.recover(late)
            await asyncio.wait_for(looked.wait(), WAIT_SECONDS)
            [record] = await gateway.records()
            assert record.state is OperationState.INTENT
            await gateway.recover()
            await _redriven(gateway)
            [record] = await gateway.records()
            assert record.state is OperationState.DONE

    run_in_virtual_time(story())


def test_a_gateway_that_ends_while_it_waits_for_a_server_leaves_no_doubt(tmp_path: Path) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            restarts.bank.is_away.set()
            gateway = await restarts.gateway()
            asking = asyncio.ensure_future(gateway.ask(order(UNSAFE)))
            await eventually(lambda: restarts.bank.awaited == 1, WAIT_SECONDS, "somebody waits for the bank")
            assert await gateway.records() == []
            restarts.bank.is_away.clear()
            assert (await asking).words == "answer"
            [record] = await gateway.records()
            assert record.state is OperationState.DONE

    run_in_virtual_time(story())


def test_a_call_that_is_known_is_answered_while_its_server_is_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with _restarts(tmp_path) as restarts:
            gateway = await restarts.gateway()
            assert (await gateway.ask(order(UNSAFE))).words == "answer"
            restarts.bank.is_away.set()
            assert (await gateway.ask(order(UNSAFE))).words == "again answer"
            assert restarts.bank.awaited == 0

    run_in_virtual_time(story())
