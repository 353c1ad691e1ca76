"""What a client asks about the delivery of a call, what it gets, and what never leaves the gateway."""

import json
from typing import Any

import pytest
from msgspec import Raw

from headgate.delivery.errors import IdempotencyKeyReused, OperationInDoubt, OperationInProgress
from headgate.domain.client_profile import PLAIN_PROFILE, profile_of
from headgate.domain.delivery_request import FEATURES, DeliveryRequest, DeliveryStatus
from headgate.domain.errors import (
    HeadgateError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.mcp_request import McpRequest, McpResponse
from headgate.domain.upstream_policy import Priority
from headgate.protocol.jsonrpc import Envelope
from headgate.protocol.jsonrpc_errors import INVALID_PARAMS, ProtocolViolation
from headgate.protocol.protocol_version import Era
from headgate.server.client_context import ClientContext, InitializedClient
from headgate.server.delivery_metadata import error_delivery_metadata, with_delivery_metadata
from headgate.server.mcp_requests import named_request, tool_call_request, unknown_method_request
from headgate.server.reply import Reply, encode_gateway_error, encode_reply
from headgate.upstream.errors import TransferIntegrityError
from testkit.clients.plain_http import Session, last_message, modern_headers, modern_request, post, request
from testkit.gateway_process import GatewayProcess
from tests.gateway_harness import Large
from tests.server.test_mcp_requests import Told
from tests.server.test_session_revival import Start

ALL = frozenset(FEATURES)
CAPABILITY = {"version": "0.1.0", "features": ["ack", "idempotency", "telepathy"]}
SHARED = {"version": "0.1.0", "features": ["ack", "idempotency"]}
SPEAKING = {"experimental": {"rmcp": CAPABILITY}}
ON_WIRE = "io.modelcontextprotocol/clientCapabilities"
ERAS = pytest.mark.parametrize("era", list(Era))


def called(
    meta: dict[str, Any] | None,
    era: Era = Era.HANDSHAKE,
    header: bytes | None = None,
    capabilities: dict[str, Any] | None = None,
    method: str = "tools/call",
) -> McpRequest:
    declared = json.dumps(capabilities or {}).encode()
    if era is Era.STATELESS:
        meta = {**(meta or {}), ON_WIRE: capabilities or {}}
    features = frozenset({"ack"}) if capabilities and era is Era.HANDSHAKE else frozenset[str]()
    context = ClientContext(
        era=era,
        channel=Told(),
        caller=Identity(principal="ann"),
        profile=profile_of(declared),
        key_header=header,
        features=features,
    )
    params = {"name": "pay"} if meta is None else {"name": "pay", "_meta": meta}
    envelope = Envelope("2.0", Raw(b"7"), method, Raw(json.dumps(params).encode()))
    match method:
        case "tools/call":
            return tool_call_request(envelope, context)
        case "prompts/get":
            return named_request(envelope, context, "name")
        case _:
            return unknown_method_request(envelope, context)


# What a client asks.


@ERAS
def test_a_plain_call_has_no_ticket(era: Era) -> None:
    assert called(None, era).delivery_request is None
    assert called({"traceparent": "00"}, era).delivery_request is None


@ERAS
@pytest.mark.parametrize("name", ["rmcp", "mcp_tx"])
def test_everything_that_a_client_asks_is_on_the_ticket_and_nothing_in_the_meta(era: Era, name: str) -> None:
    said = {
        "version": "0.1.0",
        "request_id": "r-1",
        "transaction_id": "tx-1",
        "sequence": 3,
        "idempotency_key": "k",
        "on_doubt": "retry",
        "timeout_ms": 1500,
        "expect_ack": True,
        "retry_count": 1,
        "timestamp": "2026-01-01T00:00:00Z",
    }
    request = called({name: said, "io.headgate/priority": "high", "x": 1}, era)
    assert request.delivery_request == DeliveryRequest(
        key="k",
        retries_doubt=True,
        timeout_seconds=1.5,
        priority=Priority.HIGH,
        transaction="tx-1",
        sequence=3,
        request_id="r-1",
    )
    assert request.meta.keys() == {"x"}


@ERAS
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "vendor/anything"])
def test_nothing_of_it_is_left_for_a_server_whatever_the_method(era: Era, method: str) -> None:
    ours = {
        "rmcp": {"transaction_id": "t"},
        "mcp_tx": {"transaction_id": "t"},
        "io.headgate/idempotencyKey": "k",
        "io.headgate/onDoubt": "retry",
        "io.headgate/priority": "low",
    }
    request = called({**ours, "traceparent": "00"}, era, method=method, capabilities=SPEAKING)
    assert request.meta.keys() == {"traceparent"}
    assert request.delivery_request is not None
    assert request.delivery_request.transaction == "t"
    assert request.profile is PLAIN_PROFILE


@pytest.mark.parametrize(
    ("meta", "header"),
    [
        ({"rmcp": {"idempotency_key": "k"}}, None),
        ({"io.headgate/idempotencyKey": "k"}, None),
        (None, b"k"),
        ({"rmcp": {"idempotency_key": "k"}, "io.headgate/idempotencyKey": "k"}, b"k"),
    ],
)
@ERAS
def test_a_key_is_taken_from_wherever_it_stands(
    era: Era, meta: dict[str, Any] | None, header: bytes | None
) -> None:
    delivery_request = called(meta, era, header).delivery_request
    assert delivery_request is not None
    assert delivery_request.key == "k"


@pytest.mark.parametrize(
    ("meta", "header", "problem"),
    [
        ({"rmcp": {"idempotency_key": "a"}, "io.headgate/idempotencyKey": "b"}, None, "not the same"),
        ({"rmcp": {"idempotency_key": "a"}}, b"b", "not the same"),
        ({"io.headgate/idempotencyKey": "a"}, b"b", "not the same"),
        (None, "é".encode(), "ASCII"),
        ({"io.headgate/idempotencyKey": ""}, None, "1 to 255"),
        ({}, b"", "1 to 255"),
        ({"rmcp": {"transaction_id": ""}}, None, "transaction_id"),
        ({"io.headgate/idempotencyKey": "k" * 256}, None, "1 to 255"),
        ({"io.headgate/idempotencyKey": "a\nb"}, None, "1 to 255"),
        ({"io.headgate/idempotencyKey": "headgate:x"}, None, "does not begin"),
        ({"io.headgate/idempotencyKey": 5}, None, "must be a text"),
        ({"io.headgate/onDoubt": "wait"}, None, "on_doubt"),
        ({"io.headgate/priority": "urgent"}, None, "low, normal, high"),
        ({"rmcp": {"timeout_ms": 0}}, None, "timeout_ms"),
        ({"rmcp": {"timeout_ms": 7_200_001}}, None, "timeout_ms"),
        ({"rmcp": {"sequence": "1"}}, None, "sequence"),
        ({"rmcp": {"transaction_id": "t" * 256}}, None, "transaction_id"),
        ({"rmcp": {"version": "1.0.0"}}, None, "we speak 0.1.0"),
        ({"rmcp": {"timeout_ms": 1}, "mcp_tx": {"timeout_ms": 2}}, None, "differ"),
    ],
)
@ERAS
def test_what_makes_no_sense_is_refused_with_a_sentence(
    era: Era, meta: dict[str, Any], header: bytes | None, problem: str
) -> None:
    with pytest.raises(ProtocolViolation, match=problem) as refused:
        called(meta, era, header)
    assert (refused.value.code, refused.value.id) == (INVALID_PARAMS, b"7")


@ERAS
def test_a_client_that_speaks_rmcp_has_a_ticket_that_says_so(era: Era) -> None:
    delivery_request = called(None, era, capabilities=SPEAKING).delivery_request
    assert delivery_request is not None
    assert "ack" in delivery_request.features
    assert not delivery_request.request_id


async def test_a_session_remembers_what_was_negotiated_also_after_a_restart() -> None:
    start = Start()
    declared = json.dumps({"sampling": {}, **SPEAKING}).encode()
    session = start.sessions().open(
        InitializedClient("2025-11-25", declared, b"{}", Reply(b"")), LOCAL_IDENTITY
    )
    revived = start.sessions().get(session.id, LOCAL_IDENTITY)
    assert revived is not None
    assert revived.features == session.features == {"ack", "idempotency"}
    assert revived.profile.capabilities == b'{"sampling":{}}'


# What a client gets with an answer.

SPOKE = DeliveryRequest(request_id="r-1", features=ALL)
PROCESSED = {"ack": True, "processed": True, "duplicate": False, "request_id": "r-1", "attempts": 1}
RECORDED = DeliveryStatus(op_id="o-1", state="done", attempts=2, duplicate=True)


async def told(
    answer: McpResponse, delivery_request: DeliveryRequest | None, era: Era = Era.HANDSHAKE
) -> dict[str, Any]:
    reply = encode_reply(
        b"7", "tools/call", "pay", await with_delivery_metadata(answer, delivery_request), era
    )
    message: dict[str, Any] = json.loads(b"".join(reply.chunks()))
    return message


@ERAS
async def test_whoever_spoke_of_delivery_is_told_of_it(era: Era) -> None:
    result = (await told(McpResponse(b'{"content":[],"_meta":{"x":1}}'), SPOKE, era))["result"]
    assert result["_meta"] == {"x": 1, "rmcp": {**PROCESSED, "final_status": "completed"}}


@pytest.mark.parametrize(
    "delivery_request",
    [
        None,
        DeliveryRequest(key="k", request_id="r-1"),
        DeliveryRequest(features=ALL),
        DeliveryRequest(timeout_seconds=1.0),
    ],
)
async def test_nobody_else_is(delivery_request: DeliveryRequest | None) -> None:
    answer = McpResponse(b'{ "content" : [ ] }')
    assert await with_delivery_metadata(answer, delivery_request) is answer


@ERAS
@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("meta", ["", '"_meta":{"x":1},'])
@pytest.mark.parametrize("large", [True, False])
async def test_a_recorded_call_is_named_whatever_its_client_speaks(
    era: Era, meta: str, *, typed: bool, large: bool
) -> None:
    kind = '"resultType":"complete",' if typed else ""
    whole = f'{{{kind}{meta}"content":[ 1.0 ]}}'.encode()
    answer = McpResponse(Large(whole) if large else whole, typed=typed, delivery_status=RECORDED)
    result = (await told(answer, DeliveryRequest(key="k"), era))["result"]
    operation = {"op_id": "o-1", "state": "done", "duplicate": True, "attempts": 2}
    assert result["_meta"] == {**({"x": 1} if meta else {}), "io.headgate/operation": operation}
    assert result["content"] == [1.0]
    if era is Era.STATELESS:
        assert result["resultType"] == "complete"


async def test_what_was_not_recorded_or_was_settled_by_somebody_is_said() -> None:
    unrecorded = McpResponse(b"{}", delivery_status=DeliveryStatus(unrecorded=True))
    meta = (await told(unrecorded, None))["result"]["_meta"]
    assert meta == {"io.headgate/operation": {"duplicate": False, "attempts": 1, "unrecorded": True}}
    settled = McpResponse(b"{}", delivery_status=DeliveryStatus(op_id="o", state="done", resolved_by="probe"))
    meta = (await told(settled, None))["result"]["_meta"]
    assert meta["io.headgate/operation"]["resolved_by"] == "probe"


async def test_an_announcement_of_parts_stays_beside_the_rest() -> None:
    chunked = {"transfer_id": "t", "size": 1, "chunk_size": 1, "total": 1, "sha256": "0"}
    announced = McpResponse(json.dumps({"_meta": {"rmcp": {"ack": False, "chunked": chunked}}}).encode())
    said = (await told(announced, SPOKE))["result"]["_meta"]["rmcp"]
    assert said == {**PROCESSED, "final_status": "completed", "chunked": chunked}
    unable = DeliveryRequest(request_id="r-1", features=frozenset({"ack"}))
    assert "chunked" not in (await told(announced, unable))["result"]["_meta"]["rmcp"]


async def test_an_error_of_the_server_is_told_with_the_operation_in_its_data() -> None:
    for data in ("", ',"data":{"x":1}'):
        error = f'{{"code":-32000,"message":"no"{data}}}'.encode()
        said = (await told(McpResponse(error=error, delivery_status=RECORDED), None))["error"]
        assert said["data"]["_meta"]["io.headgate/operation"]["op_id"] == "o-1"
        assert said["data"].get("x") == (1 if data else None)
    doubted = McpResponse(
        error=b'{"code":-32602,"message":"no"}', delivery_status=DeliveryStatus(op_id="o", state="in_doubt")
    )
    assert "processed" not in (await told(doubted, SPOKE))["error"]["data"]["_meta"]["rmcp"]
    strange = McpResponse(error=b'{"code":1,"message":"no","data":[1]}', delivery_status=RECORDED)
    assert (await told(strange, None))["error"]["data"] == [1]


RECORDED_ERROR = DeliveryStatus(op_id="o", state="done")
QUESTION = b'{"resultType":"input_required","inputRequests":{}}'
NO = b'{"code":-32602,"message":"no"}'
COMPLETED = {"processed": True, "final_status": "completed"}
NOT_DONE = {"processed": False, "final_status": "failed", "error_code": "INVALID_PARAMS"}
UNKNOWN = {"final_status": "failed", "error_code": "INVALID_PARAMS"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (McpResponse(b"{}"), COMPLETED),
        (McpResponse(b'{"isError":true}'), COMPLETED),
        (McpResponse(error=b'{"code":-32000,"message":"no"}'), COMPLETED),
        (
            McpResponse(
                error=b'{"code":-32603,"message":"no"}',
                delivery_status=DeliveryStatus(op_id="o", state="done"),
            ),
            COMPLETED,
        ),
        (McpResponse(error=NO), NOT_DONE),
        (McpResponse(error=NO, delivery_status=DeliveryStatus(op_id="o", state="failed")), NOT_DONE),
        (McpResponse(error=NO, delivery_status=DeliveryStatus(unrecorded=True)), NOT_DONE),
        (McpResponse(error=NO, delivery_status=DeliveryStatus(doubted=True)), UNKNOWN),
        (McpResponse(error=NO, delivery_status=DeliveryStatus(op_id="o", state="in_doubt")), UNKNOWN),
        (McpResponse(QUESTION, typed=True), {"processed": False}),
        (
            McpResponse(QUESTION, typed=True, delivery_status=DeliveryStatus(op_id="o", state="asked")),
            {"processed": False},
        ),
    ],
)
async def test_a_receipt_says_of_an_answer_what_the_ledger_says(
    answer: McpResponse, said: dict[str, Any]
) -> None:
    shown = await with_delivery_metadata(answer, SPOKE)
    told = json.loads(shown.error)["data"] if shown.error else json.loads(bytes(shown.result))  # type: ignore[arg-type]
    delivery_status = told["_meta"]["rmcp"]
    common = {"ack": True, "duplicate": False, "request_id": "r-1", "attempts": 1}
    assert delivery_status == {**common, **said}


# What a client gets with a failure.


def with_attempts(error: HeadgateError, **delivery_status: Any) -> HeadgateError:
    error.delivery_status = DeliveryStatus(**delivery_status)
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (IdempotencyKeyReused("k", "other arguments"), {"ack": False, "processed": False, "attempts": 0}),
        (UpstreamUnreachable("bank", "no"), {"ack": False, "processed": False, "attempts": 0}),
        (
            with_attempts(UpstreamUnreachable("bank", "no"), op_id="o-1", attempts=3),
            {"ack": True, "processed": False, "attempts": 3},
        ),
        (UpstreamLost("bank", "pay", "eof"), {"ack": True, "attempts": 1}),
        (UpstreamTimeout("bank", "pay", 5.0), {"ack": True, "attempts": 1, "final_status": "timeout"}),
        (
            with_attempts(OperationInDoubt("pay", "o-1"), op_id="o-1", duplicate=True),
            {"ack": True, "attempts": 1, "duplicate": True},
        ),
        (OperationInProgress("pay", "o-1"), {"ack": True, "attempts": 0}),
        (TransferIntegrityError("part 1"), {"ack": True, "processed": True, "attempts": 1}),
        # The ledger has no answer of it, and so does not call it done.
        (
            with_attempts(TransferIntegrityError("part 1"), op_id="o-1", state="in_doubt"),
            {"ack": True, "attempts": 1},
        ),
        (
            with_attempts(UpstreamUnreachable("bank", "no"), op_id="o-1", state="in_doubt", attempts=2),
            {"ack": True, "attempts": 2},
        ),
        (
            with_attempts(
                UpstreamUnavailable("bank", "it rests", retry_after_seconds=1.0), op_id="o-1", state="failed"
            ),
            {"ack": True, "processed": False, "attempts": 1},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
@ERAS
def test_a_failure_says_whether_the_call_was_taken_and_carried_out(
    era: Era, error: HeadgateError, said: dict[str, Any]
) -> None:
    reply = encode_gateway_error(b"7", "tools/call", error, era, error_delivery_metadata(error, SPOKE))
    meta = json.loads(reply.whole or b"")["result"]["_meta"]
    expected = {"duplicate": False, "request_id": "r-1", "final_status": "failed", "error_code": error.code}
    assert meta["rmcp"] == {**expected, **said}
    assert meta["io.headgate/error"]["code"] == error.code
    assert ("io.headgate/operation" in meta) == (error.delivery_status is not None)


def test_a_failure_that_is_no_result_tells_it_in_its_data() -> None:
    error = with_attempts(UpstreamLost("bank", "x", "eof"), op_id="o-1", state="doubt")
    reply = encode_gateway_error(
        b"7", "prompts/get", error, Era.HANDSHAKE, error_delivery_metadata(error, None)
    )
    data = json.loads(reply.whole or b"")["error"]["data"]
    assert data["_meta"]["io.headgate/operation"]["op_id"] == "o-1"


def test_a_plain_failure_says_nothing_of_delivery() -> None:
    assert error_delivery_metadata(UpstreamLost("bank", "pay", "eof"), None) == {}
    assert (
        error_delivery_metadata(UpstreamLost("bank", "pay", "eof"), DeliveryRequest(key="k", request_id="r"))
        == {}
    )


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
def test_an_error_tells_no_secret(method: str) -> None:
    error = UpstreamUnreachable("bank", "GET https://ann:pw@bank/x failed: password=abc in /home/ann/x")
    text = (encode_gateway_error(b"7", method, error, Era.HANDSHAKE).whole or b"").decode()
    assert "password=[REDACTED]" in text
    assert "~/x" in text
    assert not any(secret in text for secret in ("abc", "ann", "pw@"))


# Over the wire.


def test_a_client_that_declares_it_is_told_what_both_have(gateway: GatewayProcess) -> None:
    greeted = Session(gateway, capabilities=SPEAKING).greeting.json()["result"]["capabilities"]
    assert greeted["experimental"]["rmcp"] == SHARED
    headers = modern_headers("server/discover")
    asked = modern_request("server/discover", {"_meta": {ON_WIRE: SPEAKING}})
    discovered = last_message(post(gateway, asked, headers))["result"]["capabilities"]
    assert discovered["experimental"]["rmcp"] == SHARED


@pytest.mark.parametrize(
    "capabilities", [{}, {"experimental": {"rmcp": {"version": "9.0.0", "features": ["ack"]}}}]
)
def test_a_client_that_does_not_is_told_nothing(
    gateway: GatewayProcess, capabilities: dict[str, Any]
) -> None:
    session = Session(gateway, capabilities=capabilities)
    assert "experimental" not in session.greeting.json()["result"]["capabilities"]
    params = {"name": "own_echo", "arguments": {}, "_meta": {"rmcp": {"request_id": "r"}}}
    assert "rmcp" not in session.ask("tools/call", params)["result"].get("_meta", {})


def test_a_client_of_each_era_that_speaks_it_is_told_of_its_call(gateway: GatewayProcess) -> None:
    said = {"rmcp": {"request_id": "r-1"}}
    params = {"name": "own_echo", "arguments": {"a": 1}}
    old = Session(gateway, capabilities=SPEAKING).ask("tools/call", {**params, "_meta": said})["result"]
    asked = modern_request("tools/call", {**params, "_meta": {**said, ON_WIRE: SPEAKING}})
    new = last_message(post(gateway, asked, modern_headers("tools/call", "own_echo")))["result"]
    for result in (old, new):
        assert result["_meta"]["rmcp"] == {**PROCESSED, "final_status": "completed"}


@pytest.mark.parametrize(
    ("params", "problem"),
    [({}, "transfer_id is not given"), ({"transfer_id": "t", "index": "0"}, "index must be a whole number")],
)
def test_a_part_that_is_asked_for_wrongly_is_refused_as_wrong_params(
    gateway: GatewayProcess, params: dict[str, Any], problem: str
) -> None:
    told = Session(gateway, capabilities=SPEAKING).ask("rmcp/chunk", params)["error"]
    assert (told["code"], told["data"]["code"]) == (INVALID_PARAMS, "INVALID_PARAMS")
    assert told["message"].startswith(f"rmcp/chunk: {problem}; ")


def test_a_key_in_a_header_that_is_there_twice_is_refused(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    call = request("tools/call", {"name": "own_echo", "arguments": {}})
    once = post(gateway, call, {**session.headers, "Idempotency-Key": "k" * 300})
    assert last_message(once)["error"]["code"] == INVALID_PARAMS
    twice = post(gateway, call, {**session.headers, "Idempotency-Key": "a", "idempotency-key": "a"})
    assert twice.status == 400


@pytest.mark.parametrize("place", ["header", "meta", "rmcp"])
def test_a_key_is_answered_with_the_operation_and_goes_no_further(
    gateway: GatewayProcess, place: str
) -> None:
    session = Session(gateway, capabilities=SPEAKING)
    key = f"key by {place}"
    meta = {"meta": {"io.headgate/idempotencyKey": key}, "rmcp": {"rmcp": {"idempotency_key": key}}}
    headers = {**session.headers, **({"Idempotency-Key": key} if place == "header" else {})}
    call = request("tools/call", {"name": "own_echo", "arguments": {}, "_meta": meta.get(place, {})})
    first, again = (last_message(post(gateway, call, headers))["result"] for _ in range(2))
    told = [result["_meta"]["io.headgate/operation"] for result in (first, again)]
    assert told[0]["op_id"] == told[1]["op_id"]
    assert [operation["duplicate"] for operation in told] == [False, True]
    assert ("rmcp" in again["_meta"]) == (place == "rmcp")
    # The server echoes what it was sent.
    assert key not in json.dumps(first["content"])
    assert first["content"] == again["content"]
