"""The mode partitioned: whole descriptions, top-level arguments, and the nested parts by expandSchema."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp_types import Implementation

from testkit.gateway_process import GatewayProcess, clean_environment, running_gateway
from testkit.upstreams import echo_listing_command, stdio_entry, write_listing
from tests.real.mcp_clients import words

START_SECONDS = 60.0
COMMAND_SECONDS = 60.0
PROSE = "Create a payment. " + "It is booked at once, and cannot be taken back. " * 8
SHIPPING = {
    "type": "object",
    "description": "Where it goes.",
    "properties": {"street": {"type": "string", "description": "With the number of the house. " * 5}},
    "required": ["street"],
}
PAYMENT = {
    "name": "pay",
    "title": "Pay",
    "description": PROSE,
    "inputSchema": {
        "type": "object",
        "properties": {
            "amount": {"type": "number", "description": "In cents.", "minimum": 1, "default": 100},
            "currency": {"type": "string", "enum": ["EUR", "USD"], "pattern": "^[A-Z]+$"},
            "when": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
            "metadata": {"type": "object", "properties": {"shipping": SHIPPING}},
            "lines": {
                "type": "array",
                "items": {"type": "object", "properties": {"sku": {"type": "string"}}},
            },
        },
        "required": ["amount"],
        "additionalProperties": False,
    },
    "annotations": {"destructiveHint": True},
}
PARTITIONED = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "description": "In cents.", "default": 100},
        "currency": {"type": "string", "enum": ["EUR", "USD"], "pattern": "^[A-Z]+$"},
        "when": {"type": ["string", "null"], "format": "date-time"},
        "metadata": {"type": "object"},
        "lines": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["amount"],
}
BRANCHED = {
    "name": "refund",
    "description": "Refund a payment.",
    "inputSchema": {
        "type": "object",
        "oneOf": [
            {"properties": {"id": {"type": "string"}, "reason": {"type": "object", "properties": {}}}},
            {"properties": {"receipt": {"type": "object", "properties": {"number": {"type": "string"}}}}},
        ],
    },
}
PLAIN = {"name": "ping", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}


def config(place: Path, **settings: Any) -> dict[str, Any]:
    write_listing(place / "bank.json", [PAYMENT, BRANCHED, PLAIN])
    write_listing(place / "shop.json", [PAYMENT])
    servers = {
        "bank": stdio_entry(echo_listing_command(place / "bank.json")),
        "shop": stdio_entry(echo_listing_command(place / "shop.json"), listing="full"),
    }
    return {"mcpServers": servers, "proxySettings": settings}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    place = tmp_path_factory.mktemp("partitioned")
    settings = config(place, clientListings={"deep*": "partitioned"}, listing="full")
    with running_gateway(settings, place / "gateway") as gateway:
        gateway.wait_until_ready("bank", "shop", seconds=START_SECONDS)
        yield gateway


async def listed(client: Client) -> dict[str, dict[str, Any]]:
    tools = (await client.list_tools()).tools
    return {one.name: one.model_dump(by_alias=True, exclude_none=True, mode="json") for one in tools}


async def check(client: Client) -> None:
    tools = await listed(client)
    assert list(tools) == ["expandSchema", "bank_pay", "bank_refund", "bank_ping", "shop_pay"]
    pay = tools["bank_pay"]
    assert (pay["description"], pay["title"]) == (PROSE, "Pay")
    assert pay["inputSchema"] == PARTITIONED
    assert pay["annotations"] == PAYMENT["annotations"]
    # It cannot be partitioned, it is no smaller then, and its server is listed in full.
    assert tools["bank_refund"]["inputSchema"] == BRANCHED["inputSchema"]
    assert tools["bank_ping"]["inputSchema"] == PLAIN["inputSchema"]
    assert tools["shop_pay"]["inputSchema"] == PAYMENT["inputSchema"]
    whole = await client.call_tool("expandSchema", {"toolName": "bank_pay"})
    assert json.loads(words(whole)) == PAYMENT["inputSchema"]
    nested = {"toolName": "bank_pay", "path": ["metadata", "shipping"]}
    assert json.loads(words(await client.call_tool("expandSchema", nested))) == SHIPPING
    arguments = {"amount": 5, "metadata": {"shipping": {"street": "Elm 1"}}}
    assert json.loads(words(await client.call_tool("bank_pay", arguments))) == arguments


async def test_by_its_path(gateway: GatewayProcess) -> None:
    async with Client(f"{gateway.url}/partitioned", mode="legacy") as client:
        await check(client)
    async with Client(f"{gateway.url}/partitioned", mode="2026-07-28") as client:
        await check(client)


async def test_by_the_name_of_the_client(gateway: GatewayProcess) -> None:
    info = Implementation(name="deep-thought", version="1")
    async with Client(gateway.url, mode="legacy", client_info=info) as client:
        await check(client)
    async with Client(gateway.url, mode="legacy") as client:
        assert list(await listed(client)) == ["bank_pay", "bank_refund", "bank_ping", "shop_pay"]


async def test_for_the_gateway_and_for_one_server(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with running_gateway(
        config(tmp_path / "one"), tmp_path / "gateway", options=["--listing", "partitioned"]
    ) as gateway:
        gateway.wait_until_ready("bank", "shop", seconds=START_SECONDS)
        async with Client(gateway.url, mode="legacy") as client:
            await check(client)
            assert client.instructions is not None
            assert "expandSchema returns the full schema" in client.instructions
    settings = config(tmp_path / "one", listing="slim")
    settings["mcpServers"]["bank"]["listing"] = "partitioned"
    with running_gateway(settings, tmp_path / "other") as gateway:
        gateway.wait_until_ready("bank", "shop", seconds=START_SECONDS)
        async with Client(gateway.url, mode="legacy") as client:
            assert (await listed(client))["bank_pay"]["inputSchema"] == PARTITIONED


def test_the_report_has_a_row_for_it(gateway: GatewayProcess) -> None:
    command = [sys.executable, "-m", "headgate", "listing", "--config", str(gateway.config_path)]
    command += ["--data-dir", str(gateway.data_dir), "--json"]

    def run(*more: str) -> Any:
        done = subprocess.run(
            [*command, *more],
            capture_output=True,
            check=True,
            timeout=COMMAND_SECONDS,
            env=clean_environment(),
        )
        return json.loads(done.stdout)

    rows = {one["mode"]: one for one in run()["modes"]}
    row = rows["partitioned"]
    assert (row["partitioned"], row["whole"], row["own"]) == (1, 3, 1), row
    assert rows["slim"]["tokens"] < row["tokens"] < rows["full"]["tokens"]
    forms = {one["public_name"]: one["form"] for one in run("--mode", "partitioned")["listed"]}
    assert (forms["bank_pay"], forms["bank_refund"], forms["shop_pay"]) == ("partitioned", "whole", "whole")
