"""Clients that were open before the library: rmcp is negotiated, or the program gets an error."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from headgate.tx import TxConfig, TxSession
from testkit.clients.streaming_http import Handshaker
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.sdk_servers.rmcp_shop import FEATURES, Shop
from testkit.upstreams import configuration, server_command, stdio_entry

START_SECONDS = 30.0
DECLARED = "io.modelcontextprotocol/clientCapabilities"
SPEAKING = {"experimental": {"rmcp": {"version": "0.1.0", "features": ["idempotency", "ack"]}}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("open")


@pytest.fixture(scope="module")
def gateway(place: Path) -> Iterator[GatewayProcess]:
    server = server_command("servers.outcomes", "by-argument", place / "journal")
    recorder = server_command("servers.rmcp_recorder", "legacy", "plain", place / "lines")
    config = configuration({"s": stdio_entry(server), "r": stdio_entry(recorder)}, chunkAboveBytes=100_000)
    with running_gateway(config, place / "gateway", start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        yield gateway


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
async def test_keys_are_durable_around_a_client_that_was_open_before(
    gateway: GatewayProcess, place: Path, mode: str
) -> None:
    order = {"order": mode}
    for duplicate in (False, True):
        async with Client(gateway.url, mode=mode) as client, TxSession(client) as tx:
            assert (tx.features, tx.is_durable, tx.fallback) == (frozenset(FEATURES), True, None)
            answer = await tx.call_tool("s_pay", order, idempotency_key=f"open {mode}")
            assert (answer.durable, answer.duplicate) == (True, duplicate)
            # In parts, which are asked for under the same conditions.
            large = await tx.call_tool("r_much", {"size": 300_000})
            assert large.unwrap().content[0].text == "0123456789" * 30_000
    lines = [json.loads(line) for line in (place / "journal").read_text(encoding="utf-8").splitlines()]
    assert lines.count(["pay", order]) == 1
    assert b"rmcp" not in (place / "lines").read_bytes().split(b'"tools/list"', 1)[1]


async def test_a_client_that_pins_its_version_negotiates_when_the_library_opens_it(
    gateway: GatewayProcess,
) -> None:
    async with TxSession(Client(gateway.url, mode="2026-07-28")) as tx:
        assert (tx.is_durable, tx.fallback) == (True, None)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_client_is_as_it_was_when_the_library_has_gone(gateway: GatewayProcess, mode: str) -> None:
    async with Client(gateway.url, mode=mode) as client:
        async with TxSession(client) as tx:
            await tx.call_tool("s_pay", idempotency_key=f"borrowed {mode}")
        plain = await client.call_tool("s_pay", {})
        assert "rmcp" not in (plain.meta or {})


async def test_an_open_session_of_the_sdk_on_stdio_negotiates_too(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    command = ["-m", "headgate", "serve", "--config", str(gateway.config_path), "--transport", "stdio"]
    child = StdioServerParameters(
        command=sys.executable, args=[*command, "--data-dir", str(tmp_path / "data")]
    )
    async with AsyncExitStack() as stack:
        reading, writing = await stack.enter_async_context(stdio_client(child))
        session = await stack.enter_async_context(ClientSession(reading, writing))
        await session.initialize()
        async with TxSession(session) as tx:
            assert tx.is_durable
            assert (await tx.call_tool("s_pay", {}, idempotency_key="stdio")).durable


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("opened", [False, True])
async def test_a_server_that_announces_it_to_everybody_is_believed(mode: str, *, opened: bool) -> None:
    shop = Shop(FEATURES)
    async with AsyncExitStack() as stack:
        client = Client(shop.server, mode=mode)
        if opened:
            await stack.enter_async_context(client)
        tx = await stack.enter_async_context(TxSession(client))
        assert (tx.features, tx.fallback) == (frozenset(FEATURES), None)
        assert (await tx.call_tool("pay", idempotency_key="k")).durable
    (call,) = shop.asked("tools/call")
    assert call["_meta"]["rmcp"]["idempotency_key"] == "k"
    capability = {"version": "0.1.0", "features": list(FEATURES)}
    if opened:
        assert call["_meta"][DECLARED]["experimental"]["rmcp"] == capability
        # The greeting had been made before.
        assert "rmcp" not in json.dumps(shop.asked("initialize"))


# What is plain is said.


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("opened", [False, True])
async def test_a_fallback_to_plain_mcp_is_reported(
    caplog: pytest.LogCaptureFixture, mode: str, *, opened: bool
) -> None:
    caplog.set_level(logging.INFO, "headgate.tx")
    shop = Shop()
    async with AsyncExitStack() as stack:
        client = Client(shop.server, mode=mode)
        if opened:
            await stack.enter_async_context(client)
        tx = await stack.enter_async_context(TxSession(client))
        assert (tx.features, tx.is_durable) == (frozenset(), False)
        assert tx.fallback == "the server does not announce rmcp"
        assert "plain MCP is spoken: the server does not announce rmcp" in caplog.text
        await tx.call_tool("pay")
        async with tx.transaction() as t:
            await t.call_tool("pay")
        # The program has chosen no key yet.
        assert not warnings(caplog)
        answers = [await tx.call_tool("pay", idempotency_key=f"k{n}") for n in range(2)]
    assert [answer.durable for answer in answers] == [False, False]
    # Once, with the first key.
    (warning,) = warnings(caplog)
    assert "end with it: the server does not announce rmcp" in warning
    assert "rmcp" not in json.dumps(shop.asked("tools/call"))


async def test_other_reasons_for_plain_mcp_are_named(caplog: pytest.LogCaptureFixture) -> None:
    async with TxSession(Client(Shop(FEATURES).server), TxConfig(features=())) as tx:
        assert tx.fallback == "TxConfig.features is empty"
    async with TxSession(Own()) as tx:
        assert tx.fallback == "the wrapped session is not open, or none of the official SDK 2.x"
    async with TxSession(Client(Shop(["ack"]).server)) as tx:
        assert (tx.fallback, tx.is_durable) == (None, False)
        assert not (await tx.call_tool("pay", idempotency_key="k")).durable
    (warning,) = warnings(caplog)
    assert "the server has no idempotency among its features" in warning


class Own:
    """Not the SDK's."""

    async def call_tool(self, name: str, arguments: Any = None) -> Any:
        """Answer nothing."""


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was warned of."""
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


# The gateway's part of it.


def test_a_client_whose_handshake_is_over_is_told_only_if_it_declares_rmcp(gateway: GatewayProcess) -> None:
    client = Handshaker(gateway.url)
    silent: list[dict[str, Any]] = [{}, {"_meta": {}}, {"_meta": {DECLARED: {"sampling": {}}}}]
    for params in silent:
        assert client.ask("server/discover", params)["error"]["code"] == -32601
    told = client.ask("server/discover", {"_meta": {DECLARED: SPEAKING}})["result"]
    shared = told["capabilities"]["experimental"]["rmcp"]
    assert shared == {"version": "0.1.0", "features": ["ack", "idempotency"]}
    broken = client.ask("server/discover", {"_meta": 5})
    assert broken["error"]["code"] == -32602


def test_a_request_of_the_handshake_era_may_declare_rmcp_for_itself(
    gateway: GatewayProcess, place: Path
) -> None:
    client = Handshaker(gateway.url)
    said = {"rmcp": {"request_id": "r-1"}}
    declaring = client.ask("tools/call", {"name": "r_pay", "_meta": {**said, DECLARED: SPEAKING}})["result"]
    assert declaring["_meta"]["rmcp"]["processed"] is True
    # Nothing of it goes any further.
    assert DECLARED.encode() not in (place / "lines").read_bytes().splitlines()[-1]
    silent = client.ask("tools/call", {"name": "r_pay", "_meta": said})["result"]
    assert "rmcp" not in silent["_meta"]
