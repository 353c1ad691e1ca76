"""An error that a server answers is its answer, whatever its number; only a lost connection is a loss."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from headgate.domain.errors import Effect
from headgate.tx import RetryPolicy, Transaction, TxConfig, TxError, TxSession
from headgate.tx.failures import exception_failure
from testkit.sdk_servers.rmcp_shop import FEATURES, Shop, text
from testkit.upstreams import server_command
from testkit.virtual_time import RecordingSleep

SOON = TxConfig(retry_policy=RetryPolicy(base_delay_ms=100))
ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
# Numbers that the SDK uses for its own connection, and others that servers choose.
NUMBERS = pytest.mark.parametrize("number", [-32000, -32001, -32603, -32050, 42])


class Till:
    """A real server on stdio, and what it has done."""

    def __init__(self, place: Path) -> None:
        self.journal = place / "journal"
        command = server_command("servers.outcomes", "by-argument", self.journal)
        self.child = StdioServerParameters(command=command[0], args=command[1:])

    def executions(self) -> list[str]:
        lines = self.journal.read_text(encoding="utf-8").splitlines()
        return [json.loads(line)[0] for line in lines]


@pytest.fixture
def till(tmp_path: Path) -> Till:
    return Till(tmp_path)


@pytest.mark.parametrize("outcome", ["error", "timeout_like", "internal"])
async def test_a_read_that_the_server_answers_with_an_error_runs_once(till: Till, outcome: str) -> None:
    async with TxSession(Client(till.child, mode="legacy"), SOON) as tx:
        answer = await tx.call_tool("look", {"outcome": outcome})
    assert (answer.final_status, answer.error_code, answer.attempts) == ("failed", "INTERNAL", 1)
    assert (answer.processed, answer.answered, answer.ack) == (True, True, True)
    assert till.executions() == ["look"]


@pytest.mark.parametrize("outcome", ["error", "timeout_like", "internal"])
async def test_a_key_whose_call_was_answered_with_an_error_is_not_in_doubt(till: Till, outcome: str) -> None:
    async with TxSession(Client(till.child, mode="legacy"), SOON) as tx:
        first, second = [
            await tx.call_tool("pay", {"outcome": outcome}, idempotency_key="k") for _ in range(2)
        ]
    assert (first.processed, first.duplicate) == (True, False)
    assert (second.processed, second.duplicate) == (True, True)
    assert second.error_message == first.error_message == f"no: {outcome}"
    assert till.executions() == ["pay"]


async def test_a_server_that_ends_under_a_call_is_a_loss(till: Till) -> None:
    async with TxSession(Client(till.child, mode="legacy"), SOON) as tx:
        lost = await tx.call_tool("pay", {"outcome": "die"}, idempotency_key="k")
        read = await tx.call_tool("look", {"outcome": "die"})
    assert (lost.error_code, lost.processed, lost.answered) == ("NETWORK_ERROR", None, False)
    assert (read.error_code, read.processed, read.attempts) == ("NETWORK_ERROR", None, 3)
    assert till.executions() == ["pay", "look", "look", "look"]


@ERAS
@NUMBERS
async def test_the_number_of_a_server_s_error_does_not_matter(mode: str, number: int) -> None:
    shop = Shop()
    shop.script["look"] = [MCPError(number, "the till is closed")]
    async with TxSession(Client(shop.server, mode=mode), sleep=RecordingSleep()) as tx:
        answer = await tx.call_tool("look")
    assert (answer.processed, answer.attempts, answer.error_message) == (True, 1, "the till is closed")


@NUMBERS
@pytest.mark.parametrize(
    ("said", "processed"),
    [({"processed": True}, True), ({"processed": False}, False), ({}, None), ({"processed": [1]}, None)],
)
async def test_a_receipt_decides_what_the_number_does_not_say(
    number: int, said: dict[str, Any], *, processed: bool | None
) -> None:
    shop = Shop()
    shop.script["pay"] = [
        MCPError(number, "Connection closed", {"_meta": {name: {"ack": True, **said}}})
        for name in ("rmcp", "mcp_tx")
    ]
    async with TxSession(Client(shop.server), sleep=RecordingSleep()) as tx:
        for _ in range(2):
            answer = await tx.call_tool("pay")
            assert (answer.processed, answer.attempts) == (processed, 1)


@pytest.mark.parametrize(("state", "processed"), [("failed", False), ("in_doubt", None)])
async def test_what_a_gateway_has_on_record_holds_for_the_attempts_before_too(
    state: str, *, processed: bool | None
) -> None:
    shop = Shop(FEATURES)
    told = {"io.headgate/operation": {"op_id": "o", "state": state}}
    shop.script["pay"] = [MCPError(-32000, "Connection closed"), MCPError(-32602, "no", {"_meta": told})]
    async with TxSession(Client(shop.server), sleep=RecordingSleep()) as tx:
        answer = await tx.call_tool("pay", idempotency_key="k")
    assert (answer.error_code, answer.processed, answer.attempts) == ("INVALID_PARAMS", processed, 2)


@pytest.mark.parametrize(
    ("number", "words", "code"),
    [
        (-32000, "Connection closed", "NETWORK_ERROR"),
        (-32000, "SSE stream ended without a response", "NETWORK_ERROR"),
        (-32000, "SSE stream ended and reconnection attempts were exhausted", "NETWORK_ERROR"),
        (-32000, "SSE stream failed: event too large", "NETWORK_ERROR"),
        (-32001, "Request 'tools/call' timed out", "TIMEOUT"),
        (-32700, "Failed to parse JSON response: EOF", "INVALID_MESSAGE"),
        (-32700, "Failed to parse SSE message: EOF", "INVALID_MESSAGE"),
        (-32600, "Unexpected content type: text/html", "INVALID_MESSAGE"),
        (-32600, "server answered a request with 202 Accepted", "INVALID_MESSAGE"),
        (-32603, "Server returned an error response", "INTERNAL"),
    ],
)
def test_what_the_sdk_says_of_its_own_connection_leaves_the_call_unknown(
    number: int, words: str, code: str
) -> None:
    failure = exception_failure(MCPError(number, words))
    assert (failure.code, failure.effect, failure.is_answer) == (code, Effect.UNKNOWN, False)
    # With data it is a server's.
    assert exception_failure(MCPError(number, words, {"a": 1})).is_answer


@pytest.mark.parametrize("failure", [MCPError(-32000, "sold out"), text("sold out", is_error=True)])
async def test_a_step_that_is_answered_with_an_error_failed_and_is_not_undone(failure: Any) -> None:
    shop = Shop()
    shop.script["book"] = [failure]

    async def work(t: Transaction) -> None:
        async with t:
            await t.call_tool("pay", compensate="refund")
            await t.call_tool("book", compensate="cancel")

    async with TxSession(Client(shop.server), sleep=RecordingSleep()) as tx:
        t = tx.transaction()
        with pytest.raises(TxError, match="sold out"):
            await work(t)
    assert t.state == "rolled_back"
    assert [tool for tool, _ in shop.executed] == ["pay", "refund"]


async def test_a_compensation_that_is_answered_with_an_error_has_failed() -> None:
    shop = Shop()
    shop.script["cancel"] = [MCPError(-32000, "too late")]
    async with TxSession(Client(shop.server), sleep=RecordingSleep()) as tx, tx.transaction() as t:
        await t.call_tool("book", compensate="cancel")
        with pytest.raises(TxError, match="has a compensation that failed"):
            await t.rollback()
        assert t.state == "failed"


# What a caller reads of an error.


@ERAS
async def test_a_long_error_is_cut_and_kept_in_full_without_its_secrets(mode: str) -> None:
    long = "password=abc " + "no money " * 100
    shop = Shop()
    shop.script["pay"] = [MCPError(-32603, long), MCPError(-32602, long)]
    async with TxSession(Client(shop.server, mode=mode)) as tx:
        for _ in range(2):
            answer = await tx.call_tool("pay")
            assert answer.error_message is not None
            assert answer.error_detail is not None
            assert (len(answer.error_message), answer.error_message[-1]) == (200, "…")
            assert answer.error_detail == long.replace("abc", "[REDACTED]")
            with pytest.raises(TxError) as raised:
                answer.unwrap()
            assert (str(raised.value), raised.value.detail) == (answer.error_message, answer.error_detail)


async def test_a_long_error_of_a_step_is_cut_and_kept_in_full_too() -> None:
    shop = Shop()
    shop.script["pay"] = [text("token=abc " + "x" * 900, is_error=True)]
    async with TxSession(Client(shop.server)) as tx, tx.transaction() as t:
        with pytest.raises(TxError) as raised:
            await t.call_tool("pay")
    assert len(str(raised.value)) < 240
    assert raised.value.detail.endswith("token=[REDACTED] " + "x" * 900)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([1, 2], "not list"),
        ("amount=5", "not str"),
        (5, "not int"),
        (False, "not bool"),
        ((), "not tuple"),
        ({1: 2}, "not one with the key 1"),
    ],
)
@ERAS
async def test_arguments_that_are_no_object_are_refused_before_anything_is_sent(
    mode: str, arguments: Any, problem: str
) -> None:
    shop = Shop()
    async with TxSession(Client(shop.server, mode=mode)) as tx, tx.transaction() as t:
        for call in (tx.call_tool, t.call_tool):
            with pytest.raises(TypeError, match=f"arguments must be a dict with string keys, {problem}"):
                await call("pay", arguments, idempotency_key="k")
        assert shop.asked("tools/call") == []
        # The key is as free as before.
        assert (await tx.call_tool("pay", {"amount": 1}, idempotency_key="k")).final_status == "completed"


async def test_arguments_that_are_no_json_were_not_sent() -> None:
    shop = Shop()
    async with TxSession(Client(shop.server)) as tx:
        answer = await tx.call_tool("pay", {"amount": object()}, idempotency_key="k")
    assert (answer.error_code, answer.processed, answer.attempts) == ("INVALID_PARAMS", False, 1)
    assert shop.asked("tools/call") == []
