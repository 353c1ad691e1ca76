"""rmcp is spoken where both sides do, in every combination of peers and eras, and heard nowhere else."""

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from testkit.clients.streaming_http import Handshaker, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration, server_command, stdio_entry
from tests.real.mcp_clients import McpClients, words

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 30.0
# By their eras, and by the name under which they speak rmcp.
UPSTREAMS = ("legacy_plain", "legacy_rmcp", "modern_plain", "modern_rmcp")
BY_ALIAS = ("legacy_mcp_tx", "modern_mcp_tx")
# The extension's name, in messages of clients that do not use it.
WORDS = (b"rmcp", b"mcp_tx", b"idempotency", b"onDoubt", b"tx-of-client", b"key-of-client")
SPEAKING = {
    "experimental": {"rmcp": {"version": "0.1.0", "features": ["ack", "idempotency", "chunking"]}},
}
# Beyond what is kept in memory, and several parts for either side.
LARGE_BYTES = 3_000_000


@dataclass(frozen=True)
class Yard:
    """A gateway before a server of each era, with rmcp and without, and what each was sent."""

    gateway: GatewayProcess
    journals: dict[str, Path]

    def lines(self, upstream: str, method: str = "tools/call") -> list[bytes]:
        """The raw requests of that method which reached the server."""
        lines = self.journals[upstream].read_bytes().splitlines()
        return [line for line in lines if json.loads(line).get("method") == method]

    def last_call(self, upstream: str) -> dict[str, Any]:
        params: dict[str, Any] = json.loads(self.lines(upstream)[-1])["params"]
        return params


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    place = tmp_path_factory.mktemp("rmcp")
    journals = {name: place / f"{name}.journal" for name in (*UPSTREAMS, *BY_ALIAS)}
    servers = {}
    for name, journal in journals.items():
        script = server_command("servers.rmcp_recorder", *name.split("_", 1), journal)
        servers[name] = stdio_entry(script)
    config = configuration(servers, enableAutoTruncation=False, chunkAboveBytes=LARGE_BYTES)
    with running_gateway(config, place, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready(*UPSTREAMS, *BY_ALIAS, seconds=START_SECONDS)
        yield Yard(gateway, journals)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guests(yard: Yard) -> AsyncIterator[McpClients]:
    staying = McpClients(yard.gateway)
    yield staying
    await staying.leave()


def speaker(yard: Yard, era: str) -> Handshaker | Stateless:
    """A client that speaks rmcp; the SDK's has no way to say so."""
    return (Handshaker if era == "legacy" else Stateless)(yard.gateway.url, SPEAKING)


ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
EVERY_UPSTREAM = pytest.mark.parametrize("upstream", UPSTREAMS)


def check_what_reached(yard: Yard, upstream: str) -> None:
    """The server heard of rmcp exactly if it speaks it, and then from the gateway."""
    line, params = yard.lines(upstream)[-1], yard.last_call(upstream)
    if upstream.endswith("plain"):
        assert not [word for word in WORDS if word in line], line
        return
    said = params["_meta"]["rmcp"]
    assert said["version"] == "0.1.0"
    assert said["expect_ack"] is True
    assert "tx-of-client" not in said.values()
    assert "key-of-client" not in said.values()
    assert None not in said.values()


@EVERY_UPSTREAM
@ERAS
async def test_a_client_of_the_sdk_gets_plain_mcp(
    yard: Yard, guests: McpClients, era: str, upstream: str
) -> None:
    mcp_client = await guests.mcp_client("http", era)
    result = await mcp_client.client.call_tool(f"{upstream}_pay", {"amount": 1})
    assert words(result) == "done"
    assert result.meta is not None
    assert "rmcp" not in result.meta
    assert result.meta["of"] == "the server"
    check_what_reached(yard, upstream)


@EVERY_UPSTREAM
@ERAS
async def test_a_client_that_speaks_it_is_told_by_the_gateway_alone(
    yard: Yard, era: str, upstream: str
) -> None:
    said = {"request_id": "r-1", "timeout_ms": 9000}
    params = {"name": f"{upstream}_pay", "arguments": {"amount": 2}, "_meta": {"rmcp": said}}
    meta = speaker(yard, era).ask("tools/call", params)["result"]["_meta"]
    assert meta["of"] == "the server"
    assert meta["rmcp"] == {
        "ack": True,
        "processed": True,
        "duplicate": False,
        "request_id": "r-1",
        "attempts": 1,
        "final_status": "completed",
    }
    check_what_reached(yard, upstream)
    assert "r-1" not in json.dumps(yard.last_call(upstream))


@pytest.mark.parametrize("upstream", ["legacy_rmcp", "modern_rmcp"])
@ERAS
async def test_a_nack_of_the_server_is_a_failure_for_every_client(
    yard: Yard, guests: McpClients, era: str, upstream: str
) -> None:
    mcp_client = await guests.mcp_client("http", era)
    before = len(yard.lines(upstream))
    result = await mcp_client.client.call_tool(f"{upstream}_refuse", {})
    assert result.is_error
    assert "CONFLICT" in words(result)
    params = {"name": f"{upstream}_refuse", "arguments": {}, "_meta": {"rmcp": {}}}
    told = speaker(yard, era).ask("tools/call", params)["result"]
    assert told["isError"]
    assert told["_meta"]["rmcp"]["processed"] is False
    assert told["_meta"]["io.headgate/error"]["effect"] == "none"
    # With a code that says that another attempt would not help either.
    assert len(yard.lines(upstream)) == before + 2


@pytest.mark.parametrize("upstream", BY_ALIAS)
@ERAS
async def test_an_upstream_that_announces_the_older_name_is_spoken_to(
    yard: Yard, era: str, upstream: str
) -> None:
    said = {"request_id": "r-1", "idempotency_key": f"alias {era} {upstream}"}
    params = {"name": f"{upstream}_pay", "arguments": {}, "_meta": {"rmcp": said}}
    meta = speaker(yard, era).ask("tools/call", params)["result"]["_meta"]
    assert "mcp_tx" not in meta
    assert (meta["of"], meta["rmcp"]["processed"]) == ("the server", True)
    sent = yard.last_call(upstream)["_meta"]
    # It finds the key of the operation under its own name.
    assert sent["mcp_tx"] == sent["rmcp"]
    assert sent["mcp_tx"]["idempotency_key"] == meta["io.headgate/operation"]["op_id"]
    refused = {"name": f"{upstream}_refuse", "arguments": {}, "_meta": {"rmcp": {}}}
    told = speaker(yard, era).ask("tools/call", refused)["result"]["_meta"]
    assert told["rmcp"]["processed"] is False


@ERAS
async def test_a_client_that_declares_the_older_name_is_answered_under_it(yard: Yard, era: str) -> None:
    declared = {"experimental": {"mcp_tx": SPEAKING["experimental"]["rmcp"]}}
    client = (Handshaker if era == "legacy" else Stateless)(yard.gateway.url, declared)
    greeting = (
        client.welcome if isinstance(client, Handshaker) else client.ask("server/discover", {})["result"]
    )
    experimental = greeting["capabilities"]["experimental"]
    assert experimental["mcp_tx"] == experimental["rmcp"] == SPEAKING["experimental"]["rmcp"]
    said = {"request_id": "r-2", "idempotency_key": f"by alias {era}"}
    params = {"name": "legacy_plain_pay", "arguments": {}, "_meta": {"mcp_tx": said}}
    for duplicate in (False, True):
        meta = client.ask("tools/call", params)["result"]["_meta"]
        assert meta["mcp_tx"] == meta["rmcp"]
        assert (meta["mcp_tx"]["processed"], meta["mcp_tx"]["duplicate"]) == (True, duplicate)
    check_what_reached(yard, "legacy_plain")


async def test_what_a_server_says_of_itself_is_not_promised_to_clients(yard: Yard) -> None:
    assert "experimental" not in Handshaker(yard.gateway.url).welcome["capabilities"]
    discovered = Stateless(yard.gateway.url).ask("server/discover", {})["result"]
    assert "experimental" not in discovered["capabilities"]
    shared = Handshaker(yard.gateway.url, SPEAKING).welcome["capabilities"]["experimental"]
    assert shared == SPEAKING["experimental"]


async def test_only_a_greeting_says_it_to_a_server_that_does_not_speak_it(yard: Yard) -> None:
    for upstream in ("legacy_plain", "modern_plain"):
        heard = {
            json.loads(line)["method"]
            for line in yard.journals[upstream].read_bytes().splitlines()
            if b"rmcp" in line
        }
        assert heard <= {"initialize", "server/discover"}


@pytest.mark.parametrize(
    ("era", "upstream"),
    [("legacy", "legacy_rmcp"), ("modern", "modern_rmcp"), ("modern", "legacy_plain")],
)
async def test_a_very_large_result_goes_in_parts_to_whoever_can_put_them_together(
    yard: Yard, era: str, upstream: str
) -> None:
    client = speaker(yard, era)
    params = {"name": f"{upstream}_much", "arguments": {"size": LARGE_BYTES}}
    announced = client.ask("tools/call", params)["result"]
    chunked = announced["_meta"]["rmcp"]["chunked"]
    assert len(json.dumps(announced)) < 1000
    whole = b""
    for index in range(chunked["total"]):
        wanted = {"transfer_id": chunked["transfer_id"], "index": index}
        chunk = client.ask("rmcp/chunk", wanted)["result"]
        data = base64.b64decode(chunk["data"])
        assert hashlib.sha256(data).hexdigest() == chunk["sha256"]
        whole += data
    assert (len(whole), hashlib.sha256(whole).hexdigest()) == (chunked["size"], chunked["sha256"])
    assert json.loads(whole)["content"][0]["text"] == "0123456789" * (LARGE_BYTES // 10)
    done = {"transfer_id": chunked["transfer_id"]}
    assert "result" in client.ask("rmcp/chunk_done", done)
    assert "error" in client.ask("rmcp/chunk", {**done, "index": 0})
    assert not yard.lines(upstream, "rmcp/chunk") or upstream.endswith("rmcp")


async def test_everybody_else_gets_it_whole(guests: McpClients) -> None:
    mcp_client = await guests.mcp_client("http", "modern")
    result = await mcp_client.client.call_tool("legacy_rmcp_much", {"size": LARGE_BYTES})
    assert words(result) == "0123456789" * (LARGE_BYTES // 10)
