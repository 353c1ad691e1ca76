"""Clients that need another dialect of JSON Schema are served it, and what they send is turned back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.listing_mode import ListingMode
from testkit.clients.streaming_http import Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import echo_listing_command, stdio_entry, tool, write_listing
from tests.real.delayed_servers import BY_WORDS, call, text

START_SECONDS = 60.0
SHIP: Message = {
    "name": "ship",
    "description": "Send a parcel.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "weight": {"type": "number", "minimum": 1},
            "note": {"type": "string"},
            "to": {"$ref": "#/$defs/address"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["weight", "to"],
        "$defs": {
            "address": {
                "type": "object",
                "properties": {"street": {"type": "string"}, "floor": {"type": "integer"}},
                "required": ["street"],
            }
        },
    },
}
# Nothing in it needs to be said otherwise in any dialect that keeps what is optional.
PLAIN = tool("ping", "Say that you are there.")
# What a model writes that must give every argument, and what the server wants.
WRITTEN: Message = {
    "weight": 2,
    "note": None,
    "to": {"street": "Main", "floor": None},
    "labels": '{"fragile": "yes"}',
}
WANTED: Message = {"weight": 2, "to": {"street": "Main"}, "labels": {"fragile": "yes"}}
STRICT = "strict-agent"
GEMINI = "gemini-cli-mcp-client-gate"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    place = tmp_path_factory.mktemp("dialects")
    with running_gateway(configuration(place), place / "gateway", environment=BY_WORDS) as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        yield gateway


def configuration(place: Path, **settings: Any) -> dict[str, Any]:
    write_listing(place / "post.json", [SHIP, PLAIN])
    settings = {
        "clientDialects": {"Strict-*": "openai"},
        "clientListings": {"strict-few": "search"},
    } | settings
    servers = {"post": stdio_entry(echo_listing_command(place / "post.json"))}
    return {"mcpServers": servers, "proxySettings": settings}


def clients(
    gateway: GatewayProcess, name: str, mode: ListingMode = ListingMode.FULL
) -> list[Handshaker | Stateless]:
    """One of each era that calls itself so."""
    url = f"{gateway.url}/{mode}"
    return [Handshaker(url, name=name), Stateless(url, name=name)]


def schemas(client: Handshaker | Stateless) -> dict[str, Message]:
    tools = client.ask("tools/list", {})["result"]["tools"]
    return {one["name"]: one["inputSchema"] for one in tools}


def test_a_client_that_nobody_knows_sees_what_the_server_wrote(gateway: GatewayProcess) -> None:
    for client in clients(gateway, "somebody"):
        assert schemas(client) == {"post_ship": SHIP["inputSchema"], "post_ping": PLAIN["inputSchema"]}


def test_a_strict_client_sees_closed_objects_in_which_every_member_is_required(
    gateway: GatewayProcess,
) -> None:
    for client in clients(gateway, STRICT):
        shown = schemas(client)["post_ship"]
        assert shown["required"] == ["weight", "note", "to", "labels"]
        assert shown["additionalProperties"] is False
        assert shown["properties"]["note"]["type"] == ["string", "null"]
        assert "string" in shown["properties"]["labels"]["type"]
        assert "$ref" not in json.dumps(shown)


def test_a_client_of_gemini_is_known_by_the_name_that_it_gives_itself(gateway: GatewayProcess) -> None:
    for client in clients(gateway, GEMINI):
        shown = schemas(client)["post_ship"]
        assert "$ref" not in json.dumps(shown)
        assert shown["required"] == ["weight", "to"]
        assert shown["properties"]["to"]["properties"].keys() == {"street", "floor"}


@pytest.mark.parametrize("mode", ListingMode)
def test_what_a_strict_client_writes_reaches_the_server_as_it_wants_it(
    gateway: GatewayProcess, mode: ListingMode
) -> None:
    for client in clients(gateway, STRICT, mode):
        assert json.loads(text(call(client, "post_ship", **WRITTEN))) == WANTED
        wrapped = call(client, "call_tool", name="post_ship", args=WRITTEN)
        assert json.loads(text(wrapped)) == WANTED
        # What is right already stays.
        assert json.loads(text(call(client, "post_ship", **WANTED))) == WANTED


@pytest.mark.parametrize("name", ["somebody", GEMINI])
def test_what_others_write_goes_on_as_it_is(gateway: GatewayProcess, name: str) -> None:
    for client in clients(gateway, name):
        assert json.loads(text(call(client, "post_ship", **WRITTEN))) == WRITTEN


def test_the_operator_chooses_the_listing_by_the_name_too(gateway: GatewayProcess) -> None:
    for client in (Handshaker(gateway.url, name="strict-few"), Stateless(gateway.url, name="strict-few")):
        assert list(schemas(client)) == ["retrieve_tools", "call_tool", "expandSchema"]
    # A path says more than a name.
    assert "post_ship" in schemas(Stateless(f"{gateway.url}/full", name="strict-few"))


def test_what_was_changed_is_reported(gateway: GatewayProcess) -> None:
    for name in (STRICT, GEMINI, "somebody"):
        for client in clients(gateway, name):
            schemas(client)
    told = {one["listing"]: one["adapted"] for one in gateway.get("/listing").json()["listings"]}
    for era in ("handshake", "stateless"):
        assert told[f"full {era}"] == {}
        assert told[f"full {era} openai"].keys() == {"post_ship", "post_ping"}
        assert told[f"full {era} gemini"].keys() == {"post_ship"}
    assert any("labels" in line for line in told["full stateless openai"]["post_ship"])


def test_expand_schema_gives_what_the_server_wrote_whatever_the_dialect(gateway: GatewayProcess) -> None:
    (answer,) = {
        text(call(client, "expandSchema", toolName="post_ship")) for client in clients(gateway, STRICT)
    }
    assert json.loads(answer) == SHIP["inputSchema"]


def test_one_dialect_may_be_meant_for_everybody(tmp_path: Path) -> None:
    with running_gateway(
        configuration(tmp_path, dialect="openai", clientDialects={"somebody": "plain"}), tmp_path / "gateway"
    ) as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        assert schemas(Stateless(gateway.url))["post_ship"]["additionalProperties"] is False
        assert schemas(Stateless(gateway.url, name="Somebody"))["post_ship"] == SHIP["inputSchema"]
        assert json.loads(text(call(Stateless(gateway.url), "post_ship", **WRITTEN))) == WANTED
