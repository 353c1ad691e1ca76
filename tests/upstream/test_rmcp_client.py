"""An upstream that speaks rmcp hears of it and says what became of a call; any other hears nothing."""

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec import Raw

from headgate.domain.client_profile import profile_of
from headgate.domain.delivery_request import FEATURES, DeliveryRequest
from headgate.domain.errors import (
    Effect,
    HeadgateError,
    InvalidUpstreamResponse,
    UpstreamLost,
    UpstreamTimeout,
)
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import DeliveryOptions, McpRequest, McpResponse, UpstreamCall
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.upstream.errors import TransferIntegrityError, UpstreamNack, UpstreamOutcomeUnknown
from headgate.upstream.handshake import NegotiationResult, negotiation_result_of
from headgate.upstream.mcp_peer import McpPeer
from headgate.upstream.rmcp_client import RmcpClient
from headgate.upstream.transport import OutgoingRequest, UpstreamSessionExpired
from tests.gateway_harness import Large
from tests.upstream.spool_limits import limits, open_files, taken

SPEC = ServerSpec(name="far", transport=TransportType.STDIO, timeout_seconds=60.0)
MODERN, LEGACY = "2026-07-28", "2025-11-25"
ERAS = pytest.mark.parametrize("version", [MODERN, LEGACY])
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
DONE = b'{"content":[]}'


class Server:
    """Answers calls of tools, and keeps what it was asked."""

    pid = None
    limits = None

    def __init__(self, answer: Callable[[OutgoingRequest], bytes | McpResponse] = lambda _: DONE) -> None:
        self._answer = answer
        self.asked: list[OutgoingRequest] = []

    async def round_trip(self, outgoing: OutgoingRequest) -> McpResponse:
        self.asked.append(outgoing)
        answer = self._answer(outgoing)
        return McpResponse(answer) if isinstance(answer, bytes) else answer

    async def send_notification(self, message: bytes) -> None:
        """Ignore it."""

    def set_protocol_version(self, version: str) -> None:
        """Nothing changes."""

    async def wait_lost(self) -> str:
        await asyncio.Event().wait()
        return ""

    @property
    def metas(self) -> list[dict[str, Any]]:
        return [json.loads(asked.params).get("_meta", {}) for asked in self.asked]


def greeting(version: str, *features: str) -> NegotiationResult:
    told = {"tools": {}, "experimental": {"rmcp": {"version": "0.1.0", "features": features}}}
    return negotiation_result_of(version, json.dumps(told if features else {"tools": {}}).encode(), "")


def peer(server: Server, version: str = LEGACY, features: tuple[str, ...] = FEATURES) -> McpPeer:
    return McpPeer(SPEC, server, greeting(version, *features))


def a_call(delivery_options: DeliveryOptions | None = None, **request: Any) -> UpstreamCall:
    item = Item(ItemKind.TOOLS, "far", "pay", "far_pay")
    return UpstreamCall(McpRequest(caller=LOCAL_IDENTITY, name="far_pay", **request), item, delivery_options)


def answering(rmcp: object, **others: Any) -> bytes:
    return json.dumps({"content": [], "_meta": {"rmcp": rmcp, **others}}).encode()


# What it hears.


@ERAS
async def test_a_server_that_speaks_it_hears_everything_about_the_delivery(version: str) -> None:
    server = Server()
    deadline = asyncio.get_running_loop().time() + 5.0
    delivery_options = DeliveryOptions(key="op-1", retry_count=2, deadline=deadline)
    delivery_request = DeliveryRequest(key="the client's own", transaction="tx-1", request_id="of the client")
    await peer(server, version).send_client_request(
        a_call(delivery_options, delivery_request=delivery_request)
    )
    said = server.metas[0]["rmcp"]
    assert UUID(said.pop("request_id")).version == 4
    age = datetime.now(UTC) - datetime.fromisoformat(said.pop("timestamp"))
    assert timedelta(seconds=-1) < age < timedelta(seconds=60)
    assert 4000 < said.pop("timeout_ms") <= 5000
    assert said == {
        "version": "0.1.0",
        "idempotency_key": "op-1",
        "expect_ack": True,
        "retry_count": 2,
    }
    assert b"the client" not in server.asked[0].params


@ERAS
async def test_a_plain_call_to_it_has_no_member_that_is_null(version: str) -> None:
    server = Server()
    await peer(server, version).send_client_request(a_call())
    said = server.metas[0]["rmcp"]
    assert said.keys() == {"version", "request_id", "expect_ack", "retry_count", "timeout_ms", "timestamp"}
    assert (said["retry_count"], said["timeout_ms"]) == (0, 60_000)


async def test_it_hears_only_of_what_both_have() -> None:
    server = Server()
    await peer(server, features=("ack",)).send_client_request(
        a_call(DeliveryOptions(key="op-1"), delivery_request=DeliveryRequest(transaction="tx-1"))
    )
    assert not {"idempotency_key", "transaction_id"} & server.metas[0]["rmcp"].keys()


@ERAS
async def test_a_server_that_does_not_speak_it_hears_nothing(version: str) -> None:
    server = Server()
    speaker = peer(server, version, features=())
    await speaker.send_client_request(
        a_call(DeliveryOptions(key="op-1"), delivery_request=DeliveryRequest(key="k", transaction="tx-1"))
    )
    await speaker.send_gateway_request("tools/list", {})
    assert not any(b"rmcp" in asked.params or b"op-1" in asked.params for asked in server.asked)


async def test_in_the_stateless_era_each_request_declares_it_to_a_server_that_speaks_it() -> None:
    server = Server()
    speaker = peer(server, MODERN)
    await speaker.send_client_request(a_call(profile=profile_of(b'{"sampling":{}}')))
    await speaker.send_gateway_request("tools/list", {})
    told = {"version": "0.1.0", "features": list(FEATURES)}
    assert [meta[CAPABILITIES] for meta in server.metas] == [
        {"sampling": {}, "experimental": {"rmcp": told}},
        {"experimental": {"rmcp": told}},
    ]


async def test_what_is_not_a_call_of_a_tool_says_nothing_of_delivery() -> None:
    server = Server()
    await peer(server).send_client_request(a_call(method="prompts/get"))
    assert "rmcp" not in server.metas[0]


def test_that_a_server_speaks_it_is_kept_apart_from_what_clients_are_promised() -> None:
    greeted = greeting(LEGACY, "ack", "telepathy")
    assert greeted.rmcp == {"ack"}
    assert greeted.capabilities == b'{"tools":{}}'
    assert not greeting(LEGACY).rmcp


# What it says.


@ERAS
async def test_what_an_answer_says_of_delivery_goes_no_further(version: str) -> None:
    server = Server(lambda _: answering({"ack": True, "processed": True}, x=1))
    answer = await peer(server, version).send_client_request(a_call())
    assert isinstance(answer.result, bytes)
    assert json.loads(answer.result) == {"content": [], "_meta": {"x": 1}}
    assert answer.typed == (version == MODERN)


async def test_an_answer_that_says_nothing_passes_byte_for_byte() -> None:
    odd = b'{ "content" : [ ],"_meta":{ } }'
    assert (await peer(Server(lambda _: odd)).send_client_request(a_call())).result is odd


async def test_a_result_on_disk_is_read_and_stays_there() -> None:
    large = Large(b'{"content":[],"_meta":{"rmcp":{"ack":true},"x":1}}')
    answer = await peer(Server(lambda _: McpResponse(large))).send_client_request(a_call())
    assert not isinstance(answer.result, bytes)
    assert b"".join(answer.result.chunks()) == b'{"content":[],"_meta":{"x":1}}'
    answer.result.close()
    assert large.closed


@pytest.mark.parametrize(
    ("said", "effect", "retryable"),
    [
        ({"ack": False}, Effect.NONE, False),
        ({"ack": False, "error_code": "TEMPORARY_FAILURE"}, Effect.NONE, True),
        ({"ack": False, "processed": False, "error_code": "RATE_LIMIT"}, Effect.NONE, True),
        ({"ack": False, "error_code": "CONFLICT"}, Effect.NONE, False),
        ({"ack": False, "processed": True, "error_code": "TIMEOUT"}, Effect.DONE, False),
    ],
)
async def test_a_nack_is_a_failure_and_says_whether_anything_happened(
    said: dict[str, Any], effect: Effect, *, retryable: bool
) -> None:
    with pytest.raises(UpstreamNack, match="far_pay") as raised:
        await peer(Server(lambda _: answering(said))).send_client_request(a_call())
    assert (raised.value.effect, raised.value.retryable) == (effect, retryable)
    assert raised.value.upstream_code == said.get("error_code", "")


async def test_a_nack_on_disk_is_a_nack_and_gives_its_space_back() -> None:
    large = Large(answering({"ack": False, "error_code": "E" * 5000}))
    with pytest.raises(UpstreamNack) as raised:
        await peer(Server(lambda _: McpResponse(large))).send_client_request(a_call())
    assert large.closed
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("status", ["failed", "timeout"])
@pytest.mark.parametrize(
    ("processed", "kind", "effect"),
    [({}, UpstreamOutcomeUnknown, Effect.UNKNOWN), ({"processed": False}, UpstreamNack, Effect.NONE)],
)
async def test_a_gateway_that_has_no_answer_itself_has_not_answered(
    status: str, processed: dict[str, bool], kind: type[HeadgateError], effect: Effect
) -> None:
    said = {"ack": True, "final_status": status, "error_code": "NETWORK_ERROR", **processed}
    with pytest.raises(kind, match="NETWORK_ERROR") as raised:
        await peer(Server(lambda _: answering(said))).send_client_request(a_call())
    assert raised.value.effect is effect


async def test_a_tool_that_failed_has_answered() -> None:
    said = {"ack": True, "processed": True, "final_status": "failed"}
    answer = await peer(Server(lambda _: answering(said))).send_client_request(a_call())
    assert answer.result == b'{"content": [], "_meta": {}}'


async def test_what_an_error_says_of_delivery_goes_no_further() -> None:
    error = {"code": 5, "message": "rmcp", "data": {"_meta": {"rmcp": {"ack": True}, "x": 1}, "y": 2}}
    server = Server(lambda _: McpResponse(error=json.dumps(error).encode()))
    answer = await peer(server).send_client_request(a_call())
    assert json.loads(answer.error) == {"code": 5, "message": "rmcp", "data": {"_meta": {"x": 1}, "y": 2}}


@pytest.mark.parametrize("name", ["rmcp", "mcp_tx"])
async def test_a_gateway_that_was_refused_and_knows_of_an_attempt_before_is_not_sure(name: str) -> None:
    said = {"ack": True, "final_status": "failed", "error_code": "INVALID_PARAMS"}
    error = {"code": -32602, "message": "no", "data": {"_meta": {name: said}}}
    server = Server(lambda _: McpResponse(error=json.dumps(error).encode()))
    with pytest.raises(UpstreamOutcomeUnknown, match="INVALID_PARAMS") as raised:
        await peer(server).send_client_request(a_call())
    assert raised.value.effect is Effect.UNKNOWN


async def test_only_a_server_that_speaks_it_can_refuse_in_these_words() -> None:
    nack = answering({"ack": False})
    assert (await peer(Server(lambda _: nack), features=()).send_client_request(a_call())).result is nack


async def test_a_late_answer_is_told_without_what_it_says_of_delivery_and_a_late_nack_is_none() -> None:
    server, told, heard = Server(), [], asyncio.Event()

    def on_late(answer: McpResponse) -> None:
        told.append(answer)
        heard.set()

    await peer(server, MODERN).send_client_request(a_call(DeliveryOptions(on_late_response=on_late)))
    late = server.asked[0].on_late
    assert late is not None
    late(McpResponse(answering({"ack": False})))
    late(McpResponse(answering({"ack": True})))
    await asyncio.wait_for(heard.wait(), 5.0)
    assert told == [McpResponse(b'{"content": [], "_meta": {}}', typed=True)]


# A result in parts.


class Warehouse:
    """Hands a result over in parts, as its owner wants them spoiled."""

    def __init__(self, whole: bytes, size: int = 1000) -> None:
        self.whole = whole
        self.size = size
        self.fetched: list[int] = []
        self.running = self.most_running = 0
        self.done = False
        # What is made of the parts before they go out, by how often each was asked for.
        self.spoil: Callable[[int, int, bytes], bytes] = lambda _index, _time, data: data

    @property
    def announcement(self) -> dict[str, Any]:
        total = -(-len(self.whole) // self.size)
        sha256 = hashlib.sha256(self.whole).hexdigest()
        told = {"transfer_id": "t", "size": len(self.whole), "chunk_size": self.size}
        return {**told, "total": total, "sha256": sha256}

    async def ask(self, method: str, params: dict[str, Raw]) -> McpResponse:
        said = {key: msgspec.json.decode(value) for key, value in params.items()}
        assert said["transfer_id"] == "t"
        if method == "rmcp/chunk_done":
            self.done = True
            return McpResponse(b"{}")
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        index = said["index"]
        data = self.whole[index * self.size : (index + 1) * self.size]
        told = {"transfer_id": "t", "index": index, "total": 9, "sha256": hashlib.sha256(data).hexdigest()}
        sent = self.spoil(index, self.fetched.count(index), data)
        self.fetched.append(index)
        return McpResponse(json.dumps({**told, "data": base64.b64encode(sent).decode()}).encode())

    async def fetch(self, tmp_path: Path, **changes: Any) -> bytes:
        rmcp_client = RmcpClient(SPEC, frozenset(FEATURES), self.ask, limits(tmp_path))
        announced = McpResponse(answering({"ack": True, "chunked": {**self.announcement, **changes}}))
        return taken((await rmcp_client.unwrap_answer(announced, "pay")).result)


def large_result(size: int) -> bytes:
    return b'{"content":[{"type":"text","text":"%s"}]}' % (b"0123456789" * (size // 10))


@pytest.mark.parametrize("size", [900, 1000, 4100, 20_000])
async def test_a_result_in_parts_is_put_together_to_the_byte(tmp_path: Path, size: int) -> None:
    shed = Warehouse(large_result(size))
    assert await shed.fetch(tmp_path) == shed.whole
    assert sorted(shed.fetched) == list(range(shed.announcement["total"]))
    assert shed.most_running <= 4
    assert shed.done
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("times", [1, 2])
async def test_a_part_that_was_spoiled_is_fetched_again(tmp_path: Path, times: int) -> None:
    shed = Warehouse(large_result(5000))
    shed.spoil = lambda index, time, data: b"X" + data[1:] if index == 3 and time < times else data
    assert await shed.fetch(tmp_path) == shed.whole
    assert shed.fetched.count(3) == times + 1


async def test_a_part_that_stays_spoiled_is_an_integrity_error_after_three_fetches(tmp_path: Path) -> None:
    shed = Warehouse(large_result(20_000))
    shed.spoil = lambda index, _time, data: data[:-1] if index == 3 else data
    with pytest.raises(TransferIntegrityError, match="part 3") as raised:
        await shed.fetch(tmp_path)
    assert raised.value.effect is Effect.DONE
    assert shed.fetched.count(3) == 3
    assert open_files(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"sha256": "0" * 64}, TransferIntegrityError),
        ({"total": 3}, InvalidUpstreamResponse),
        ({"total": 0, "size": 0}, InvalidUpstreamResponse),
        ({"chunk_size": 0}, InvalidUpstreamResponse),
        ({"size": -1}, InvalidUpstreamResponse),
        ({"size": 10**12, "chunk_size": 10**12 // 6 + 1}, TransferIntegrityError),
    ],
)
async def test_an_announcement_that_does_not_hold_gives_no_result(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await Warehouse(large_result(5000)).fetch(tmp_path, **changes)
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("whole", [b"[1,2]" * 400, b'{"x":' * 300, b'{"x":"\xff"}' * 200])
async def test_parts_that_make_no_message_are_no_result(tmp_path: Path, whole: bytes) -> None:
    with pytest.raises(InvalidUpstreamResponse):
        await Warehouse(whole).fetch(tmp_path)
    assert open_files(tmp_path) == []


async def test_a_connection_lost_meanwhile_does_not_look_as_if_nothing_was_sent(
    tmp_path: Path,
) -> None:
    shed = Warehouse(large_result(5000))
    for lost in (UpstreamSessionExpired(), UpstreamNack("far", "rmcp/chunk", "")):

        async def ask(method: str, params: dict[str, Raw], error: Exception = lost) -> McpResponse:
            raise error

        rmcp_client = RmcpClient(SPEC, frozenset(FEATURES), ask, limits(tmp_path))
        with pytest.raises(UpstreamLost) as raised:
            await rmcp_client.unwrap_answer(McpResponse(answering({"chunked": shed.announcement})), "pay")
        assert raised.value.effect is Effect.UNKNOWN


class Forgetful(Server):
    """Announces parts, and never hands one over."""

    async def round_trip(self, outgoing: OutgoingRequest) -> McpResponse:
        if outgoing.method == "tools/call":
            return await super().round_trip(outgoing)
        await asyncio.Event().wait()
        raise AssertionError


async def test_parts_that_do_not_come_do_not_take_longer_than_the_call_may() -> None:
    shed = Warehouse(large_result(5000))
    server = Forgetful(lambda _: answering({"chunked": shed.announcement}))
    deadline = asyncio.get_running_loop().time() + 0.05
    async with asyncio.timeout(5.0):
        with pytest.raises(UpstreamTimeout) as late:
            await peer(server).send_client_request(a_call(DeliveryOptions(deadline=deadline)))
    assert late.value.effect is Effect.UNKNOWN


async def test_a_server_without_that_feature_cannot_have_anything_fetched() -> None:
    shed = Warehouse(large_result(5000))
    server = Server(lambda _: answering({"chunked": shed.announcement}))
    answer = await peer(server, features=("ack",)).send_client_request(a_call())
    assert answer.result == b'{"content": [], "_meta": {}}'
    assert len(server.asked) == 1
