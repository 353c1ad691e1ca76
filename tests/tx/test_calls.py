"""One call: how often it is sent, when it is not sent again, and what the caller gets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams

from headgate.tx import (
    RequestState,
    RetryPolicy,
    TxConfig,
    TxConflictError,
    TxError,
    TxInDoubtError,
    TxNetworkError,
    TxSession,
    TxTimeoutError,
)
from testkit.sdk_servers.rmcp_shop import FEATURES, Shop, gateway_error, temporary, text
from testkit.virtual_time import ManualClock, RecordingSleep, no_jitter
from testkit.waiting import eventually

ERAS = ["legacy", "auto"]


@asynccontextmanager
async def at(
    shop: Shop, config: TxConfig | None = None, mode: str = "auto", **more: Any
) -> AsyncIterator[TxSession]:
    """A session of a shop in the same process, whose waits take no time."""
    options: dict[str, Any] = {"sleep": RecordingSleep(), "random": no_jitter} | more
    async with TxSession(Client(shop.server, mode=mode), config, **options) as tx:
        yield tx


@pytest.mark.parametrize("mode", ERAS)
async def test_case_1_two_transient_failures_and_then_an_answer(mode: str) -> None:
    shop = Shop()
    shop.script["pay"] = [temporary(), temporary()]
    async with at(shop, mode=mode) as tx:
        answer = await tx.call_tool("pay", {"amount": 5})
    assert (answer.final_status, answer.attempts, answer.ack) == ("completed", 3, True)
    assert shop.executed == [("pay", {"amount": 5})]


async def test_case_2_what_always_fails_is_given_up() -> None:
    shop = Shop()
    shop.script["pay"] = [temporary("the till is closed") for _ in range(5)]
    async with at(shop) as tx:
        answer = await tx.call_tool("pay", retry_policy=RetryPolicy(max_attempts=2))
    assert (answer.final_status, answer.attempts, answer.error_code) == ("failed", 2, "TEMPORARY_FAILURE")
    assert answer.error_message == "the till is closed"
    assert answer.processed is False
    with pytest.raises(TxError, match="the till is closed"):
        answer.unwrap()


@pytest.mark.parametrize("mode", ERAS)
async def test_case_3_a_tool_that_is_too_slow_runs_at_most_once(mode: str) -> None:
    shop = Shop()
    async with at(shop, mode=mode) as tx:
        answer = await tx.call_tool("nap", timeout_ms=50)
    assert (answer.final_status, answer.error_code, answer.attempts) == ("timeout", "TIMEOUT", 1)
    assert answer.processed is None
    assert len(shop.executed) == 1
    with pytest.raises(TxTimeoutError, match="may have been carried out"):
        answer.unwrap()


@pytest.mark.parametrize("tool", ["look", "put"])
async def test_a_tool_that_may_be_repeated_is_sent_again_when_its_answer_is_lost(tool: str) -> None:
    shop = Shop()
    shop.script[tool] = [MCPError(-32000, "Connection closed")]
    async with at(shop) as tx:
        answer = await tx.call_tool(tool)
    assert (answer.final_status, answer.attempts) == ("completed", 2)


async def test_a_tool_that_says_nothing_of_itself_is_not_sent_again_when_its_answer_is_lost() -> None:
    shop = Shop()
    shop.script["pay"] = [MCPError(-32000, "Connection closed")]
    async with at(shop) as tx:
        answer = await tx.call_tool("pay")
    assert (answer.final_status, answer.attempts, answer.processed) == ("failed", 1, None)
    with pytest.raises(TxNetworkError):
        answer.unwrap()


async def test_annotations_are_not_believed_when_the_program_says_so() -> None:
    shop = Shop()
    shop.script["look"] = [MCPError(-32000, "Connection closed")]
    async with at(shop, TxConfig(trust_annotations=False)) as tx:
        answer = await tx.call_tool("look")
    assert (answer.final_status, answer.attempts) == ("failed", 1)


async def test_what_nobody_foresaw_is_retried_only_when_the_program_says_so() -> None:
    failing = Flaky(KeyError("what"))
    answer = await TxSession(failing).call_tool("look")
    assert (answer.final_status, answer.error_code, failing.calls) == ("failed", "INTERNAL", 1)
    failing = Flaky(KeyError("what"))
    willing = TxSession(failing, TxConfig(retry_unknown=True), sleep=RecordingSleep())
    assert (await willing.call_tool("look")).attempts == 2


class Flaky:
    """Not the SDK's: fails once, and then answers."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None) -> types.CallToolResult:
        """Fail, or answer with the name."""
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return text(name)

    async def list_tools(self) -> types.ListToolsResult:
        """One tool that may be repeated."""
        reading = types.ToolAnnotations(read_only_hint=True)
        return types.ListToolsResult(
            tools=[types.Tool(name="look", input_schema={"type": "object"}, annotations=reading)]
        )


async def test_a_refused_connection_is_tried_again_for_any_tool() -> None:
    shop = Flaky(ConnectionRefusedError("nobody listens"))
    answer = await TxSession(shop, sleep=RecordingSleep()).call_tool("pay")
    assert (answer.final_status, answer.attempts) == ("completed", 2)


async def test_a_connection_that_broke_is_not_tried_again_for_a_payment() -> None:
    shop = Flaky(ConnectionResetError("gone"))
    answer = await TxSession(shop, sleep=RecordingSleep()).call_tool("pay")
    assert (answer.error_code, shop.calls) == ("NETWORK_ERROR", 1)


async def test_a_gateway_that_asks_for_patience_gets_it() -> None:
    shop, sleeper = Shop(), RecordingSleep()
    shop.script["pay"] = [gateway_error("RATE_LIMIT", "none", retryable=True, retry_after_seconds=7)]
    async with at(shop, sleep=sleeper) as tx:
        answer = await tx.call_tool("pay")
    assert (answer.final_status, sleeper.slept) == ("completed", [7.0])


@pytest.mark.parametrize("effect", ["unknown", "no such effect", ["none"], None])
async def test_a_gateway_that_is_not_sure_is_believed(effect: Any) -> None:
    shop = Shop()
    shop.script["pay"] = [gateway_error("NETWORK_ERROR", effect, retryable=False)]
    async with at(shop) as tx:
        answer = await tx.call_tool("pay")
    assert (answer.final_status, answer.error_code, answer.attempts) == ("failed", "NETWORK_ERROR", 1)
    assert answer.processed is None


async def test_a_call_that_a_gateway_still_has_under_way_may_yet_happen() -> None:
    shop = Shop()
    shop.script["pay"] = [gateway_error("IN_PROGRESS", "none", retryable=True)]
    async with at(shop) as tx:
        answer = await tx.call_tool("pay")
    assert (answer.error_code, answer.processed, answer.attempts) == ("IN_PROGRESS", None, 1)


async def test_a_tool_that_says_it_failed_has_answered() -> None:
    shop = Shop()
    shop.script["pay"] = [text("no money", is_error=True)]
    async with at(shop) as tx:
        answer = await tx.call_tool("pay")
    assert (answer.final_status, answer.attempts, answer.unwrap().is_error) == ("completed", 1, True)


async def test_an_unknown_tool_is_a_failure_after_which_nothing_happened() -> None:
    shop = Shop()
    shop.script["pay"] = [MCPError(-32602, "Unknown tool")]
    async with at(shop) as tx:
        answer = await tx.call_tool("pay")
    assert (answer.final_status, answer.processed, answer.attempts) == ("failed", False, 1)


async def test_a_gateway_that_knows_of_an_attempt_before_is_believed() -> None:
    shop = Shop()
    told = {"_meta": {"io.headgate/operation": {"op_id": "o-1", "state": "in_doubt"}}}
    shop.script["pay"] = [MCPError(-32602, "Unknown tool", told)]
    async with at(shop) as tx:
        answer = await tx.call_tool("pay")
    assert (answer.final_status, answer.processed, answer.attempts) == ("failed", None, 1)


async def test_an_earlier_attempt_that_may_have_happened_is_not_forgotten() -> None:
    shop = Shop()
    shop.script["put"] = [MCPError(-32000, "Connection closed"), MCPError(-32602, "no")]
    async with at(shop) as tx:
        answer = await tx.call_tool("put")
    assert (answer.error_code, answer.processed) == ("INVALID_PARAMS", None)


async def test_case_4_the_same_key_twice_is_one_execution() -> None:
    shop = Shop()
    async with at(shop) as tx:
        first = await tx.call_tool("pay", {"amount": 1, "to": "a"}, idempotency_key="k")
        second = await tx.call_tool("pay", {"to": "a", "amount": 1.0}, idempotency_key="k")
    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.result == second.result
    assert len(shop.executed) == 1


async def test_case_5_two_calls_at_once_with_one_key_are_one_execution() -> None:
    shop = Shop()
    async with at(shop) as tx, asyncio.TaskGroup() as callers:
        first = callers.create_task(tx.call_tool("nap", idempotency_key="k"))
        await shop.napping.wait()
        second = callers.create_task(tx.call_tool("nap", idempotency_key="k"))
        shop.release.set()
    assert (first.result().duplicate, second.result().duplicate) == (False, True)
    assert first.result().result == second.result().result
    assert len(shop.executed) == 1


async def test_the_first_caller_may_leave_while_the_second_waits() -> None:
    shop = Shop()
    async with at(shop) as tx:
        first = asyncio.create_task(tx.call_tool("nap", idempotency_key="k"))
        await shop.napping.wait()
        second = asyncio.create_task(tx.call_tool("nap", idempotency_key="k"))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first})
        shop.release.set()
        answer = await second
    assert (answer.final_status, len(shop.executed)) == ("completed", 1)


async def test_a_call_that_everybody_left_is_in_doubt() -> None:
    shop = Shop()
    async with at(shop) as tx:
        only = asyncio.create_task(tx.call_tool("nap", idempotency_key="k"))
        await shop.napping.wait()
        only.cancel()
        await asyncio.wait({only})
        await eventually(lambda: not tx.active_requests, 5, "the call is left")
        with pytest.raises(TxInDoubtError, match="may have been carried out"):
            await tx.call_tool("nap", idempotency_key="k")
    assert len(shop.executed) == 1


async def test_whoever_waits_too_long_for_the_first_call_is_told_that_it_goes_on() -> None:
    shop = Shop()
    async with at(shop) as tx:
        first = asyncio.create_task(tx.call_tool("nap", idempotency_key="k"))
        await shop.napping.wait()
        late = await tx.call_tool("nap", idempotency_key="k", timeout_ms=20)
        shop.release.set()
        assert (await first).final_status == "completed"
    assert (late.final_status, late.error_code, late.retryable) == ("timeout", "IN_PROGRESS", True)


async def test_a_key_of_another_call_is_a_conflict() -> None:
    shop = Shop()
    async with at(shop) as tx:
        await tx.call_tool("pay", {"amount": 1}, idempotency_key="k")
        with pytest.raises(TxConflictError, match="'k'"):
            await tx.call_tool("pay", {"amount": 2}, idempotency_key="k")
        with pytest.raises(TxConflictError):
            await tx.call_tool("refund", {"amount": 1}, idempotency_key="k")
    assert len(shop.executed) == 1


async def test_a_key_whose_call_was_lost_is_in_doubt_until_the_caller_takes_the_risk() -> None:
    shop = Shop()
    shop.script["pay"] = [MCPError(-32000, "Connection closed")]
    async with at(shop) as tx:
        assert (await tx.call_tool("pay", idempotency_key="k")).error_code == "NETWORK_ERROR"
        with pytest.raises(TxInDoubtError):
            await tx.call_tool("pay", idempotency_key="k")
        assert shop.executed == []
        answer = await tx.call_tool("pay", idempotency_key="k", on_doubt="retry")
        assert (answer.final_status, answer.duplicate) == ("completed", False)
        assert (await tx.call_tool("pay", idempotency_key="k")).duplicate
    assert len(shop.executed) == 1


async def test_a_key_whose_call_never_arrived_is_free() -> None:
    shop = Shop()
    shop.script["pay"] = [temporary()]
    async with at(shop) as tx:
        once = RetryPolicy(max_attempts=1)
        assert (await tx.call_tool("pay", idempotency_key="k", retry_policy=once)).processed is False
        assert (await tx.call_tool("pay", {"other": 1}, idempotency_key="k")).final_status == "completed"


async def test_what_a_gateway_says_of_a_key_is_raised() -> None:
    shop = Shop()
    shop.script["pay"] = [
        gateway_error("CONFLICT", "none", retryable=False),
        gateway_error("IN_DOUBT", "unknown", retryable=False),
    ]
    async with at(shop) as tx:
        with pytest.raises(TxConflictError):
            await tx.call_tool("pay", idempotency_key="a")
        with pytest.raises(TxInDoubtError):
            await tx.call_tool("pay", idempotency_key="b")


async def test_case_6_delays_without_jitter() -> None:
    shop, sleeper = Shop(), RecordingSleep()
    shop.script["pay"] = [temporary() for _ in range(3)]
    config = TxConfig(retry_policy=RetryPolicy(max_attempts=4, jitter=False))
    async with at(shop, config, sleep=sleeper) as tx:
        await tx.call_tool("pay")
    assert sleeper.slept == [1.0, 2.0, 4.0]


async def test_case_7_a_key_older_than_the_window_executes_again() -> None:
    shop, clock = Shop(), ManualClock()
    async with at(shop, TxConfig(deduplication_window_ms=10_000), clock=clock) as tx:
        await tx.call_tool("pay", idempotency_key="k")
        clock.seconds += 9.9
        assert (await tx.call_tool("pay", idempotency_key="k")).duplicate
        clock.seconds += 0.2
        assert not (await tx.call_tool("pay", idempotency_key="k")).duplicate
    assert len(shop.executed) == 2


async def test_case_8_no_secret_is_in_an_error() -> None:
    shop = Shop()
    shop.script["pay"] = [MCPError(-32603, "login failed with password=abc for /home/ann/x")]
    async with at(shop) as tx:
        answer = await tx.call_tool("pay")
    assert answer.error_message is not None
    assert "[REDACTED]" in answer.error_message
    assert "abc" not in answer.error_message
    assert "ann" not in answer.error_message


async def test_no_more_calls_than_allowed_are_under_way() -> None:
    shop = Shop()
    async with at(shop, TxConfig(max_concurrent_requests=2)) as tx, asyncio.TaskGroup() as callers:
        calls = [callers.create_task(tx.call_tool("nap")) for _ in range(5)]
        await shop.napping.wait()
        await eventually(lambda: len(shop.executed) == 2, 5, "two calls are under way")
        states = sorted(request.state for request in tx.active_requests.values())
        assert states == [RequestState.PENDING] * 3 + [RequestState.SENT] * 2
        shop.release.set()
    assert [call.result().final_status for call in calls] == ["completed"] * 5
    assert not tx.active_requests


async def test_a_call_that_never_had_its_turn_did_not_happen() -> None:
    shop = Shop()
    async with at(shop, TxConfig(max_concurrent_requests=1)) as tx, asyncio.TaskGroup() as callers:
        callers.create_task(tx.call_tool("nap"))
        await shop.napping.wait()
        once = RetryPolicy(max_attempts=1)
        answer = await tx.call_tool("pay", timeout_ms=20, retry_policy=once)
        shop.release.set()
    assert (answer.final_status, answer.processed) == ("timeout", False)
    assert [tool for tool, _ in shop.executed] == ["nap"]


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_acknowledges_a_request(mode: str) -> None:
    told: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    shop = Reporting()
    async with at(shop, mode=mode) as tx, asyncio.TaskGroup() as callers:
        callers.create_task(tx.call_tool("nap", progress_callback=on_progress))
        await shop.napping.wait()
        await eventually(lambda: bool(told), 5, "progress")
        assert [request.state for request in tx.active_requests.values()] == [RequestState.ACKNOWLEDGED]
        shop.release.set()
    assert told == [0.5]


class Reporting(Shop):
    """Reports progress before it works."""

    async def _call(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        await ctx.session.report_progress(0.5)
        return await super()._call(ctx, params)


async def test_the_rest_is_the_session_s_own() -> None:
    shop = Shop()
    async with at(shop) as tx:
        assert (await tx.list_tools()).next_cursor == "2"
        assert tx.server_info.name == "shop"
        with pytest.raises(AttributeError):
            _ = tx.no_such_thing


async def test_a_session_that_its_owner_opened_stays_open() -> None:
    shop = Shop()
    async with Client(shop.server) as client:
        async with TxSession(client) as tx:
            assert (await tx.call_tool("pay")).final_status == "completed"
        assert (await client.call_tool("pay")).content


async def test_a_client_session_is_opened_and_initialised_through_the_wrapper() -> None:
    shop = Shop(FEATURES)
    async with create_client_server_memory_streams() as (near, far), asyncio.TaskGroup() as serving:
        options = shop.server.create_initialization_options()
        server = serving.create_task(shop.server.run(*far, options))
        async with TxSession(ClientSession(*near)) as tx:
            await tx.initialize()
            assert tx.features == set(FEATURES)
            assert (await tx.call_tool("pay")).ack
        server.cancel()
