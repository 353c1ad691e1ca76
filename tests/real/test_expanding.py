"""expandSchema answers without the tool's server, and a refused call says in every mode what is wanted."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.listing_mode import ListingMode
from testkit.clients.streaming_http import Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.procfs import descendants
from testkit.upstreams import changing_listing_command, echo_listing_command, stdio_entry, write_listing
from testkit.waiting import wait_until
from tests.real.delayed_servers import BY_WORDS, call, text

START_SECONDS = 60.0
NOTICE_SECONDS = 20.0
SCHEMA: Message = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "description": "How much."},
        "metadata": {
            "type": "object",
            "properties": {"shipping": {"$ref": "#/$defs/address"}, "type": {"type": "string"}},
        },
        "properties": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
    },
    "required": ["amount"],
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string", "minLength": 2}}}},
}
# The modes in which three tools are shown whole, for they fit any budget.
WHOLE = (ListingMode.FULL, ListingMode.AUTO, ListingMode.BUDGET)
PAY: Message = {
    "name": "pay",
    "title": "Pay",
    "description": "Pay an amount of money to somebody who has sent a bill. Never pays twice.",
    "inputSchema": SCHEMA,
    "annotations": {"destructiveHint": True},
    "_meta": {"colour": "green"},
}


@dataclass(frozen=True)
class Bank:
    """A gateway before a server that refuses, and one that has gone away and does not come back."""

    gateway: GatewayProcess

    def clients(self, mode: ListingMode) -> tuple[Handshaker, Stateless]:
        url = f"{self.gateway.url}/{mode}"
        return Handshaker(url), Stateless(url)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    place = tmp_path_factory.mktemp("bank")
    write_listing(place / "bank.json", [PAY | {"name": f"refuse_by_{how}"} for how in ("result", "error")])
    write_listing(place / "till.json", [PAY])
    start_file = place / "start"
    start_file.touch()
    servers = {
        "bank": stdio_entry(echo_listing_command(place / "bank.json")),
        "till": stdio_entry(changing_listing_command("till", place / "till.json", start_file)),
    }
    with running_gateway({"mcpServers": servers}, place / "gateway", environment=BY_WORDS) as gateway:
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        # It is started again, and waits for its file for ever.
        start_file.unlink()
        for child in descendants(gateway.pid):
            if str(start_file).encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)
        wait_until(lambda: gateway.servers()["till"]["state"] != "ready", NOTICE_SECONDS, "the till is down")
        yield Bank(gateway)


def expand(client: Handshaker | Stateless, **wish: Any) -> Message:
    return client.ask("tools/call", {"name": "expandSchema", "arguments": wish})


# While the server is down.


@pytest.mark.parametrize("mode", ListingMode)
def test_a_tool_is_expanded_while_its_server_is_down(bank: Bank, mode: ListingMode) -> None:
    for client in bank.clients(mode):
        schema = text(expand(client, toolName="till_pay")["result"])
        docs = text(expand(client, toolName="till_pay", mode="docs")["result"])
        rebuilt = json.loads(docs) | {"inputSchema": json.loads(schema), "name": "pay"}
        assert rebuilt == PAY
    assert bank.gateway.servers()["till"]["state"] != "ready"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (["amount"], SCHEMA["properties"]["amount"]),
        (["metadata"], SCHEMA["properties"]["metadata"]),
        (["metadata", "type"], {"type": "string"}),
        (["metadata", "shipping", "street"], {"type": "string", "minLength": 2}),
        (["properties"], SCHEMA["properties"]["properties"]),
    ],
)
def test_a_part_is_found_by_its_path(bank: Bank, path: list[str], expected: Message) -> None:
    for client in bank.clients(ListingMode.SLIM):
        first, *_ = expand(client, toolName="till_pay", path=path)["result"]["content"]
        assert json.loads(first["text"]) == expected


def test_every_spelling_of_a_name_is_expanded(bank: Bank) -> None:
    client = Stateless(bank.gateway.url)
    answers = [expand(client, toolName=name) for name in ("till_pay", "till:pay", "till__pay")]
    assert [json.loads(text(answer["result"])) for answer in answers] == [SCHEMA] * 3


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({}, "toolName is required"),
        ({"toolName": ""}, "toolName is required"),
        ({"toolName": 5}, "toolName is required"),
        ({"toolName": "till_play"}, "Schema not found for tool: till_play; nearest: till_pay"),
        (
            {"toolName": "till_pay", "path": ["amounts"]},
            "No 'amounts' in the arguments of till_pay; there are: amount, metadata, properties",
        ),
        (
            {"toolName": "till_pay", "path": ["metadata", "shipping", "town"]},
            'No \'town\' in ["metadata","shipping"] of till_pay; there are: street',
        ),
    ],
)
def test_a_wrong_wish_is_refused_with_what_there_is_instead(bank: Bank, wish: Message, message: str) -> None:
    for client in bank.clients(ListingMode.SLIM):
        error = expand(client, **wish)["error"]
        assert error["code"] == -32602
        assert error["message"] == message


def test_expansions_are_counted(bank: Bank) -> None:
    before = bank.gateway.metrics()["headgate_expand_schema_requests_total"]
    expand(Stateless(bank.gateway.url), toolName="till_pay")
    assert bank.gateway.metrics()["headgate_expand_schema_requests_total"] == before + 1


# A refused call.


@pytest.mark.parametrize("mode", ListingMode)
def test_a_result_that_refuses_arguments_carries_the_schema_in_every_mode(
    bank: Bank, mode: ListingMode
) -> None:
    for client in bank.clients(mode):
        answer = call(client, "bank_refuse_by_result", amount="much")
        said, schema = (block["text"] for block in answer["content"])
        assert answer["isError"] is True
        assert said == "Input validation error: amount is wrong"
        assert schema.startswith("input_schema of bank_refuse_by_result: ")
        assert json.loads(schema.partition(": ")[2]) == SCHEMA


@pytest.mark.parametrize("mode", ListingMode)
def test_an_error_that_refuses_arguments_carries_the_schema_in_every_mode(
    bank: Bank, mode: ListingMode
) -> None:
    for client in bank.clients(mode):
        # What a client has seen is known once it has listed.
        client.ask("tools/list", {})
        answer = client.ask("tools/call", {"name": "bank_refuse_by_error", "arguments": {"amount": "much"}})
        if "error" in answer:
            assert mode in WHOLE
            assert answer["error"]["code"] == -32602
            assert answer["error"]["data"] == {"input_schema": SCHEMA}
        else:
            assert mode not in WHOLE
            assert answer["result"]["isError"] is True
            said, schema = (block["text"] for block in answer["result"]["content"])
            assert said == "Invalid params: amount is wrong"
            assert json.loads(schema.partition(": ")[2]) == SCHEMA
