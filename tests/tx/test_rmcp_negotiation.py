"""Peers that speak rmcp and peers that do not, in both eras: all works, and nothing leaks."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from headgate.tx import TxConfig, TxSession
from headgate.tx.rmcp import capability, meta_names_of, negotiated_features
from testkit.sdk_servers.rmcp_shop import FEATURES, Shop, text
from testkit.upstreams import http_server, server_command
from testkit.virtual_time import RecordingSleep

ERAS = ["legacy", "auto"]
META = "io.modelcontextprotocol/clientCapabilities"


@asynccontextmanager
async def at(shop: Shop, mode: str, config: TxConfig | None = None) -> AsyncIterator[TxSession]:
    """A session of a shop in the same process."""
    async with TxSession(
        Client(shop.server, mode=mode), config, sleep=RecordingSleep(), now=lambda: 0.0
    ) as tx:
        yield tx


@pytest.mark.parametrize("mode", ERAS)
async def test_case_10_both_speak_rmcp(mode: str) -> None:
    shop = Shop(FEATURES)
    async with at(shop, mode) as tx:
        assert tx.features == set(FEATURES)
        answer = await tx.call_tool("pay", {"amount": 1}, idempotency_key="k", timeout_ms=1500)
    assert (answer.ack, answer.processed, answer.duplicate) == (True, True, False)
    (call,) = shop.asked("tools/call")
    assert call["_meta"]["rmcp"] == {
        "version": "0.1.0",
        "request_id": answer.request_id,
        "idempotency_key": "k",
        "expect_ack": True,
        "retry_count": 0,
        "timeout_ms": 1500,
        "timestamp": "1970-01-01T00:00:00.000000Z",
    }
    declared = capability(FEATURES)
    if mode == "legacy":
        (greeting,) = shop.asked("initialize")
        assert greeting["capabilities"]["experimental"]["rmcp"] == declared
    else:
        assert call["_meta"][META]["experimental"]["rmcp"] == declared


@pytest.mark.parametrize("mode", ERAS)
async def test_case_10_only_the_client_speaks_rmcp(mode: str) -> None:
    shop = Shop()
    async with at(shop, mode) as tx:
        assert tx.features == frozenset()
        answer = await tx.call_tool("pay", idempotency_key="k")
        assert (await tx.call_tool("pay", idempotency_key="k")).duplicate
    assert (answer.final_status, answer.ack) == ("completed", True)
    after_the_greeting = [request for request in shop.requests if request[0] not in GREETINGS]
    assert "rmcp" not in json.dumps(after_the_greeting)
    assert shop.asked("tools/call")


GREETINGS = ("initialize", "server/discover")


@pytest.mark.parametrize("mode", ERAS)
async def test_case_10_only_the_server_speaks_rmcp(mode: str) -> None:
    shop = Shop(FEATURES)
    async with at(shop, mode, TxConfig(features=())) as tx:
        answer = await tx.call_tool("pay", idempotency_key="k")
    assert answer.final_status == "completed"
    assert "rmcp" not in json.dumps(shop.requests)


async def test_without_a_handshake_an_open_session_may_still_declare_it() -> None:
    shop = Shop(FEATURES)
    async with Client(shop.server) as client:
        async with TxSession(client) as tx:
            assert tx.features == set(FEATURES)
            await tx.call_tool("pay")
        await client.call_tool("pay")
    with_rmcp, without = shop.asked("tools/call")
    assert with_rmcp["_meta"][META]["experimental"]["rmcp"] == capability(FEATURES)
    assert "rmcp" not in json.dumps(without)


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("opened", [False, True])
async def test_a_server_that_announces_the_older_name_is_understood(mode: str, *, opened: bool) -> None:
    shop = Shop(FEATURES, rmcp_name="mcp_tx")
    async with AsyncExitStack() as stack:
        for duplicate in (False, True):
            client = Client(shop.server, mode=mode)
            if opened:
                await stack.enter_async_context(client)
            tx = await stack.enter_async_context(TxSession(client))
            assert (tx.features, tx.is_durable) == (frozenset(FEATURES), True)
            answer = await tx.call_tool("pay", idempotency_key="k")
            assert (answer.duplicate, answer.durable) == (duplicate, True)
            large = await tx.call_tool("big", {"size": 5000})
            assert large.unwrap().content[0].text == "é" * 5000
    assert [tool for tool, _ in shop.executed].count("pay") == 1
    meta = shop.asked("tools/call")[0]["_meta"]
    # One that knows only its own name finds it, and one that knows both finds the same.
    assert meta["mcp_tx"] == meta["rmcp"]
    if mode == "auto":
        declared = meta[META]["experimental"]
        assert declared["mcp_tx"] == declared["rmcp"] == capability(FEATURES)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_server_with_fewer_features_gets_only_those(mode: str) -> None:
    shop = Shop(["ack", "telepathy"])
    async with at(shop, mode) as tx:
        assert tx.features == {"ack"}
        await tx.call_tool("pay", idempotency_key="k")
    (call,) = shop.asked("tools/call")
    assert "idempotency_key" not in call["_meta"]["rmcp"]


@pytest.mark.parametrize(
    "said",
    [
        None,
        {},
        {"version": "1.0.0", "features": ["ack"]},
        {"version": 0.1, "features": ["ack"]},
        "rmcp",
    ],
)
def test_another_language_is_not_spoken(said: Any) -> None:
    assert negotiated_features({"experimental": {"rmcp": said}}, FEATURES) is None


@pytest.mark.parametrize(
    ("said", "features", "names"),
    [
        ({"mcp_tx": {"version": "0.1.0", "features": ["ack"]}}, {"ack"}, ("rmcp", "mcp_tx")),
        ({"rmcp": {"version": "9.0.0"}, "mcp_tx": {"version": "0.1.0"}}, frozenset(), ("rmcp", "mcp_tx")),
        (
            {
                "rmcp": {"version": "0.1.0", "features": ["ack"]},
                "mcp_tx": {"version": "0.1.0", "features": ["retry"]},
            },
            {"ack"},
            ("rmcp",),
        ),
        ({"mcp_tx": 5}, None, ("rmcp",)),
    ],
)
def test_the_current_name_is_preferred_to_the_older_one(said: Any, features: Any, names: Any) -> None:
    assert negotiated_features({"experimental": said}, FEATURES) == features
    assert meta_names_of({"experimental": said}) == names


def test_features_that_are_no_list_of_names_are_none() -> None:
    said = {"version": "0.1.0", "features": "ack"}
    assert negotiated_features({"experimental": {"rmcp": said}}, FEATURES) == frozenset()


async def test_a_call_with_a_key_that_the_peer_honours_is_sent_again_when_its_answer_is_lost() -> None:
    shop = Shop(FEATURES)
    shop.script["pay"] = [MCPError(-32000, "Connection closed")]
    async with at(shop, "auto") as tx:
        answer = await tx.call_tool("pay", idempotency_key="k")
        without = Shop(["ack"])
        without.script["pay"] = [MCPError(-32000, "Connection closed")]
        async with at(without, "auto") as other:
            assert (await other.call_tool("pay", idempotency_key="k")).attempts == 1
    assert (answer.final_status, answer.attempts) == ("completed", 2)
    assert [call["_meta"]["rmcp"]["retry_count"] for call in shop.asked("tools/call")] == [0, 1]
    assert {call["_meta"]["rmcp"]["idempotency_key"] for call in shop.asked("tools/call")} == {"k"}


async def test_the_peer_s_memory_outlives_the_session_s() -> None:
    shop = Shop(FEATURES)
    for duplicate in (False, True):
        async with at(shop, "auto") as tx:
            assert (await tx.call_tool("pay", idempotency_key="k")).duplicate is duplicate
    assert len(shop.executed) == 1


async def test_a_nack_is_a_failure() -> None:
    shop = Shop(FEATURES)
    nack = {"ack": False, "processed": False, "error_code": "TEMPORARY_FAILURE"}
    shop.script["pay"] = [text("later", rmcp=nack)]
    async with at(shop, "auto") as tx:
        answer = await tx.call_tool("pay")
        assert (answer.final_status, answer.attempts) == ("completed", 2)
        shop.script["pay"] = [text("never", rmcp={"ack": False, "error_code": "FORBIDDEN"})]
        answer = await tx.call_tool("pay")
    assert (answer.final_status, answer.ack, answer.processed) == ("failed", False, False)
    assert (answer.error_code, answer.error_message) == ("FORBIDDEN", "never")


@pytest.mark.parametrize(
    ("said", "processed"),
    [
        ({"ack": True, "final_status": "failed", "error_code": "NETWORK_ERROR"}, None),
        ({"ack": True, "final_status": "timeout", "error_code": ["odd"]}, None),
        ({"ack": True, "final_status": "failed", "processed": False, "error_code": "FORBIDDEN"}, False),
    ],
)
async def test_a_peer_without_an_answer_has_not_answered(said: dict[str, Any], *, processed: bool) -> None:
    shop = Shop(FEATURES)
    shop.script["pay"] = [text("no", rmcp=said)]
    async with at(shop, "auto") as tx:
        answer = await tx.call_tool("pay")
    assert (answer.final_status, answer.processed, answer.attempts) == ("failed", processed, 1)


async def test_streamable_http_carries_it_in_both_eras() -> None:
    with http_server(server_command("sdk_servers.rmcp_shop", "--rmcp", site=True)) as url:
        for mode in ERAS:
            await _use(url, mode, rmcp=True)


async def test_a_plain_server_on_stdio_gets_plain_messages() -> None:
    command = server_command("sdk_servers.rmcp_shop", site=True)
    child = StdioServerParameters(command=command[0], args=command[1:])
    await _use(child, "auto", rmcp=False)


async def _use(place: Any, mode: str, *, rmcp: bool) -> None:
    async with TxSession(Client(place, mode=mode)) as tx:
        assert tx.features == (set(FEATURES) if rmcp else frozenset())
        key = f"once in the era of {mode}"
        first = await tx.call_tool("pay", {"amount": 1}, idempotency_key=key)
        assert (first.final_status, first.duplicate) == ("completed", False)
        assert (await tx.call_tool("pay", {"amount": 1}, idempotency_key=key)).duplicate
        late = await tx.call_tool("nap", timeout_ms=50)
        assert (late.final_status, late.attempts) == ("timeout", 1)
        large = await tx.call_tool("big", {"size": 5000})
        assert large.unwrap().content[0].text == "é" * 5000
        requests = json.loads((await tx.call_tool("seen")).unwrap().content[0].text)
        calls = [params for method, params in requests if method == "tools/call"]
        assert all(("rmcp" in call.get("_meta", {})) is rmcp for call in calls)
        assert any(method == "rmcp/chunk" for method, _ in requests) is rmcp
