"""Whether a call has happened is what the probe says, or unknown."""

import asyncio
import json
from typing import Any

import pytest

from headgate.delivery.execution_probe import PROBE_SECONDS, ExecutionProbe
from headgate.delivery.ledger import Operation, OperationState
from headgate.domain.errors import UpstreamLost, UpstreamUnreachable
from headgate.domain.mcp_request import McpResponse
from headgate.domain.upstream_policy import Probe, ToolClass, ToolSafety
from tests.delivery.scripted_upstream import DONE, WRONG, DeliveryHarness
from tests.gateway_harness import Large

LOST = UpstreamLost("bank", "was_paid", "it ended")


def operation(arguments: bytes = b'{"order":7}') -> Operation:
    return Operation(
        op_id="op-1",
        tenant="",
        principal="ann",
        key="key-1",
        fingerprint=b"",
        server="bank",
        tool="pay",
        public_name="bank_pay",
        kind=ToolClass.PROBEABLE,
        state=OperationState.DOUBT,
        fence=1,
        attempts=1,
        created=0.0,
        updated=0.0,
        lease_until=0.0,
        owner="",
        arguments=arguments,
    )


def result(structured: Any = None, text: str | None = None, *, is_error: bool = False) -> McpResponse:
    members: dict[str, Any] = {"content": [] if text is None else [{"type": "text", "text": text}]}
    if structured is not None:
        members["structuredContent"] = structured
    return McpResponse(json.dumps(members | {"isError": is_error}).encode())


async def asked(harness: DeliveryHarness, happened: str = "", arguments: bytes = b"{}") -> bool | None:
    policy = ToolSafety(probe=Probe(tool="was_paid", arguments=arguments, happened=happened))
    return await ExecutionProbe(harness.delivery).was_executed(operation(), policy)


async def test_the_probe_is_asked_about_this_call() -> None:
    harness = DeliveryHarness(result({"paid": True}))
    wanted = b'{"order":"$arguments.order","id":"$op_id","note":"key ${key}"}'
    before = asyncio.get_running_loop().time()
    assert await asked(harness, "paid", wanted)
    sent = harness.upstream.received[0]
    assert (sent.item.server, sent.item.name, sent.request.caller.principal) == ("bank", "was_paid", "ann")
    assert json.loads(bytes(sent.request.params["arguments"])) == {
        "order": 7,
        "id": "op-1",
        "note": "key key-1",
    }
    assert sent.delivery_options is not None
    assert sent.delivery_options.deadline is not None
    assert sent.delivery_options.deadline <= before + PROBE_SECONDS + 1


@pytest.mark.parametrize(
    ("answer", "path", "expected"),
    [
        (result({"paid": True}), "paid", True),
        (result({"paid": False}), "paid", False),
        (result({"paid": None}), "paid", False),
        (result({"rows": [{"state": "done"}]}), "rows.0.state", True),
        (result(text='{"paid": true}'), "paid", True),
        (result({"paid": False}, '{"paid": true}'), "paid", False),
        (result({"other": 1}), "paid", None),
        (result(text="it was paid"), "paid", None),
        (result({"id": 7}), "", True),
        (result({}), "", False),
        (result({"result": None}), "", False),
        (result({"result": []}), "", False),
        (result({"result": [{"id": 7}]}), "", True),
        (result(text="false"), "", False),
        (result(text="null"), "", False),
        (result(text="[]"), "", False),
        (result(text='{"id": 7}'), "", True),
        (result(text=""), "", False),
        (result(), "", False),
        (result(text="no such payment"), "", None),
        (result({"paid": True}, is_error=True), "paid", None),
        (result(text="not found", is_error=True), "", None),
        (WRONG, "", None),
        (McpResponse(b"nonsense"), "", None),
        (McpResponse(b'{"resultType":"input_required","inputRequests":{}}', typed=True), "", None),
    ],
)
async def test_the_answer_is_read_as_the_operator_says(
    answer: McpResponse, path: str, *, expected: bool | None
) -> None:
    assert await asked(DeliveryHarness(answer), path) is expected


@pytest.mark.parametrize("answer", [result(text="Unknown tool: was_paid", is_error=True), WRONG])
async def test_a_probe_that_fails_is_in_the_log(
    answer: McpResponse, caplog: pytest.LogCaptureFixture
) -> None:
    await asked(DeliveryHarness(answer))
    assert "probe without an answer" in caplog.text


async def test_a_probe_only_reads_so_it_is_asked_again() -> None:
    assert await asked(DeliveryHarness(LOST, result({"paid": True})), "paid") is True


async def test_a_server_that_cannot_be_asked_leaves_the_doubt() -> None:
    assert await asked(DeliveryHarness(UpstreamUnreachable("bank", "nobody listens"))) is None


async def test_a_place_that_the_call_cannot_fill_leaves_the_doubt() -> None:
    harness = DeliveryHarness(DONE)
    assert await asked(harness, arguments=b'"$arguments.absent"') is None
    assert harness.upstream.received == []


async def test_arguments_that_are_no_json_leave_the_doubt() -> None:
    policy = ToolSafety(probe=Probe(tool="was_paid"))
    assert await ExecutionProbe(DeliveryHarness(DONE).delivery).was_executed(operation(b"{"), policy) is None


async def test_without_a_probe_nobody_can_tell() -> None:
    assert (
        await ExecutionProbe(DeliveryHarness(DONE).delivery).was_executed(operation(), ToolSafety()) is None
    )


async def test_an_answer_that_is_too_large_to_read_is_given_back() -> None:
    large = Large(b"{}")
    assert await asked(DeliveryHarness(McpResponse(large))) is None
    assert large.closed
