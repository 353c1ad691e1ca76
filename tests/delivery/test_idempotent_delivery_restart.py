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
from tests.delivery.gateway_process import GatewayProcess, Told, order
from tests.delivery.scripted_upstream import WAIT_SECONDS

READ, KEYED, PROBEABLE, UNSAFE = ToolClass.READ, ToolClass.KEYED, ToolClass.PROBEABLE, ToolClass.UNSAFE


class Town:
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
        life = await self.gateway(spec)
        self.bank.faults.append(Fault.HELD_AFTER)
        caller = asyncio.create_task(life.ask(order(kind)))
        await self.bank.holds()
        life.kill()
        self.bank.released.set()
        await asyncio.wait({caller})
        await life.close()


@asynccontextmanager
async def _town(directory: Path) -> AsyncIterator[Town]:
    async with AsyncExitStack() as stack:
        yield Town(directory, stack)


async def _redriven(life: GatewayProcess) -> None:
    """Wait until nothing is under way."""
    async with asyncio.timeout(100 * WAIT_SECONDS):
        while any(record.state is OperationState.INTENT for record in await life.records()):
            await asyncio.sleep(0.5)


def test_what_may_be_repeated_is_made_again_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            await town.left_behind(READ)
            life = await town.gateway()
            assert await life.recover() == 1
            assert await life.recover() <= 1
            await _redriven(life)
            assert town.bank.runs["1"] == 2
            assert (await life.ask(order(READ))).words == "again answer"
            assert town.bank.runs["1"] == 2

    run_in_virtual_time(story())


@pytest.mark.parametrize("kind", [PROBEABLE, UNSAFE])
def test_what_may_not_be_repeated_is_in_doubt(tmp_path: Path, kind: ToolClass) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            await town.left_behind(kind)
            life = await town.gateway()
            assert await life.recover() == 1
            [record] = await life.records()
            assert (record.state, record.error) == (
                OperationState.DOUBT,
                "the gateway ended while it was under way",
            )
            assert await life.recover() == 0
            assert town.bank.runs["1"] == 1

    run_in_virtual_time(story())


def test_a_caller_who_is_back_first_makes_it_again_itself(tmp_path: Path) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            await town.left_behind(READ)
            life = await town.gateway()
            found = asyncio.Event()

            async def tool(operation: Operation) -> Item:
                await found.wait()
                return item(READ)

            await life.journal.recover(tool)
            town.bank.faults.append(Fault.HELD_BEFORE)
            town.bank.released.clear()
            caller = asyncio.create_task(life.ask(order(READ)))
            await town.bank.holds()
            found.set()
            await asyncio.sleep(1)
            town.bank.released.set()
            assert (await caller).words == "answer"
            await asyncio.sleep(LATE_SECONDS)
            assert town.bank.runs["1"] == 2

    run_in_virtual_time(story())


def test_whoever_asks_while_it_is_made_again_gets_that_answer(tmp_path: Path) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            await town.left_behind(READ)
            life = await town.gateway()
            town.bank.faults.append(Fault.HELD_BEFORE)
            town.bank.released.clear()
            await life.recover()
            await town.bank.holds()
            caller = asyncio.create_task(life.ask(order(READ)))
            await asyncio.sleep(1)
            town.bank.released.set()
            assert (await caller).words == "again answer"
            assert town.bank.runs["1"] == 2

    run_in_virtual_time(story())


def test_a_call_of_a_server_that_is_gone_is_in_doubt(tmp_path: Path) -> None:
    async def nothing(operation: Operation) -> Item:
        raise ServerNotFound(operation.server, [])

    async def story() -> None:
        async with _town(tmp_path) as town:
            await town.left_behind(READ)
            life = await town.gateway()
            await life.journal.recover(nothing)
            await _redriven(life)
            [record] = await life.records()
            assert record.state is OperationState.DOUBT
            assert "Unknown server" in record.error
            # Somebody may still repeat what may be repeated.
            assert (await life.ask(order(READ))).words == "answer"

    run_in_virtual_time(story())


def test_arguments_are_not_sent_to_another_tool_that_has_the_name_now(tmp_path: Path) -> None:
    async def another(operation: Operation) -> Item:
        return item(ToolClass.IDEMPOTENT)

    async def story() -> None:
        async with _town(tmp_path) as town:
            await town.left_behind(READ)
            life = await town.gateway()
            await life.journal.recover(another)
            await _redriven(life)
            [record] = await life.records()
            assert record.state is OperationState.DOUBT
            assert town.bank.sent == 1

    run_in_virtual_time(story())


def test_what_the_operator_calls_unsafe_by_now_is_not_made_again(tmp_path: Path) -> None:
    policy = msgspec.structs.replace(BANK_CARE, tools={TOOLS[READ]: ToolSafety(kind=UNSAFE)})

    async def story() -> None:
        async with _town(tmp_path) as town:
            await town.left_behind(READ)
            life = await town.gateway(msgspec.structs.replace(SPEC, policy=policy))
            await life.recover()
            await _redriven(life)
            [record] = await life.records()
            assert record.state is OperationState.DOUBT
            assert town.bank.sent == 1

    run_in_virtual_time(story())


def test_what_another_gateway_leaves_behind_is_found_without_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            life = await town.gateway()
            assert await life.recover() == 0
            await town.left_behind(UNSAFE)
            assert await life.recover() == 1
            [record] = await life.records()
            assert record.state is OperationState.DOUBT
            assert await life.recover() == 0

    run_in_virtual_time(story())


def test_what_waits_for_its_server_is_found_once(tmp_path: Path) -> None:
    ready = asyncio.Event()

    async def tool(operation: Operation) -> Item:
        await ready.wait()
        return item(READ)

    async def story() -> None:
        async with _town(tmp_path) as town:
            await town.left_behind(READ)
            life = await town.gateway()
            assert [await life.journal.recover(tool) for _ in range(3)] == [1, 0, 0]
            ready.set()
            await _redriven(life)
            assert town.bank.sent == 2

    run_in_virtual_time(story())


@pytest.mark.parametrize("starts", [True, False], ids=["at the start", "by a caller"])
def test_a_key_that_the_server_has_forgotten_is_not_sent_again(tmp_path: Path, *, starts: bool) -> None:
    policy = msgspec.structs.replace(
        BANK_CARE, tools={TOOLS[KEYED]: ToolSafety(key_argument="key", key_window_seconds=60.0)}
    )
    spec = msgspec.structs.replace(SPEC, policy=policy)

    async def story() -> None:
        async with _town(tmp_path) as town:
            await town.left_behind(KEYED, spec)
            await asyncio.sleep(61.0)
            life = await town.gateway(spec)
            if starts:
                await life.recover()
                assert [record.state for record in await life.records()] == [OperationState.DOUBT]
            assert (await life.ask(order(KEYED))).words == "IN_DOUBT unknown"
            assert town.bank.sent == 1

    run_in_virtual_time(story())


def test_a_ledger_that_cannot_be_read_does_not_keep_a_gateway_from_starting(tmp_path: Path) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            await town.left_behind(READ)
            life = await town.gateway()
            life.down = {"orphans"}
            assert await life.recover() == 0

    run_in_virtual_time(story())


def test_a_gateway_that_ends_does_not_wait_for_the_servers_of_what_it_found(tmp_path: Path) -> None:
    async def never(operation: Operation) -> Item:
        await asyncio.Event().wait()
        raise AssertionError

    async def story() -> None:
        async with _town(tmp_path) as town:
            await town.left_behind(READ)
            life = await town.gateway()
            await life.journal.recover(never)
            started = asyncio.get_running_loop().time()
            await life.journal.close()
            assert asyncio.get_running_loop().time() == started
            await life.close()
            # The next one finds it.
            life = await town.gateway()
            assert await life.recover() == 1
            await _redriven(life)
            assert (await life.ask(order(READ))).words == "again answer"

    run_in_virtual_time(story())


# Two gateways at the same time.


async def _both(
    town: Town, kind: ToolClass = UNSAFE
) -> tuple[GatewayProcess, GatewayProcess, "asyncio.Task[Told]"]:
    """Two gateways, and a call of the first one that the bank holds after it has carried it out."""
    one, other = await town.gateway(), await town.gateway()
    town.bank.faults.append(Fault.HELD_AFTER)
    caller = asyncio.create_task(one.ask(order(kind)))
    await town.bank.holds()
    return one, other, caller


def test_another_gateway_waits_for_the_record_of_the_first(tmp_path: Path) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            _, other, first = await _both(town)
            second = asyncio.create_task(other.ask(order(UNSAFE)))
            await asyncio.sleep(10)
            town.bank.released.set()
            told = [await first, await second]
            assert [one.words for one in told] == ["answer", "again answer"]
            assert told[0].result == told[1].result
            assert town.bank.runs["1"] == 1

    run_in_virtual_time(story())


def test_another_gateway_waits_no_longer_than_its_caller(tmp_path: Path) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            _, other, first = await _both(town)
            started = asyncio.get_running_loop().time()
            told = await other.ask(order(UNSAFE, timeout_seconds=3.0))
            assert told.words == "IN_PROGRESS unknown"
            assert asyncio.get_running_loop().time() - started <= 4.0
            town.bank.released.set()
            assert (await first).op_id == told.op_id

    run_in_virtual_time(story())


@pytest.mark.parametrize(("kind", "words", "ran"), [(READ, "answer", 2), (UNSAFE, "IN_DOUBT unknown", 1)])
def test_another_gateway_notices_that_the_first_is_gone(
    tmp_path: Path, kind: ToolClass, words: str, ran: int
) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            one, other, first = await _both(town, kind)
            second = asyncio.create_task(other.ask(order(kind)))
            await asyncio.sleep(1)
            one.kill()
            town.bank.released.set()
            await asyncio.wait({first})
            await one.close()
            assert (await second).words == words
            assert town.bank.runs["1"] == ran

    run_in_virtual_time(story())


def test_a_probe_of_before_says_nothing_of_what_another_gateway_sent_since(tmp_path: Path) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            one, other = await town.gateway(), await town.gateway()
            town.bank.faults.extend([Fault.LOST_BEFORE] * 3)
            assert (await one.ask(order(PROBEABLE))).words == "NETWORK_ERROR unknown"
            await asyncio.sleep(10)
            slow = asyncio.Event()
            town.bank.probes.append(slow)
            second = asyncio.create_task(other.ask(order(PROBEABLE)))
            await eventually(lambda: not town.bank.probes, WAIT_SECONDS, "the bank is asked")
            # Meanwhile the first gateway sends it, and nobody hears what became of that.
            town.bank.faults.append(Fault.HELD_AFTER)
            first = asyncio.create_task(one.ask(order(PROBEABLE)))
            await town.bank.holds()
            first.cancel("cancelled by the client")
            await eventually(lambda: town.bank.cancelled == 1, WAIT_SECONDS, "the call is cancelled")
            await asyncio.sleep(1)
            slow.set()
            assert (await second).words == "again word"
            assert town.bank.runs["1"] == 1

    run_in_virtual_time(story())


def test_a_server_that_is_late_is_waited_for_until_the_next_look(tmp_path: Path) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            await town.left_behind(READ)
            life = await town.gateway()

            looked = asyncio.Event()

            async def late(operation: Operation) -> Item:
                looked.set()
                raise UpstreamUnavailable(operation.server, "it is still starting", retry_after_seconds=1.0)

            await life.journal.recover(late)
            await asyncio.wait_for(looked.wait(), WAIT_SECONDS)
            [record] = await life.records()
            assert record.state is OperationState.INTENT
            await life.recover()
            await _redriven(life)
            [record] = await life.records()
            assert record.state is OperationState.DONE

    run_in_virtual_time(story())


def test_a_gateway_that_ends_while_it_waits_for_a_server_leaves_no_doubt(tmp_path: Path) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            town.bank.is_away.set()
            life = await town.gateway()
            asking = asyncio.ensure_future(life.ask(order(UNSAFE)))
            await eventually(lambda: town.bank.awaited == 1, WAIT_SECONDS, "somebody waits for the bank")
            assert await life.records() == []
            town.bank.is_away.clear()
            assert (await asking).words == "answer"
            [record] = await life.records()
            assert record.state is OperationState.DONE

    run_in_virtual_time(story())


def test_a_call_that_is_known_is_answered_while_its_server_is_away(tmp_path: Path) -> None:
    async def story() -> None:
        async with _town(tmp_path) as town:
            life = await town.gateway()
            assert (await life.ask(order(UNSAFE))).words == "answer"
            town.bank.is_away.set()
            assert (await life.ask(order(UNSAFE))).words == "again answer"
            assert town.bank.awaited == 0

    run_in_virtual_time(story())
