"""The oddest tools of a server are served, or left out with a reason, and those of others are unaffected."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.listing_mode import ListingMode
from headgate.search.token_counter import count_tokens
from testkit.clients.streaming_http import Handshaker, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import changing_listing_command, listing_command, stdio_entry, write_listing
from tests.real.delayed_servers import BY_WORDS, call, hundred, text
from tests.real.listing_text import sources
from tests.real.pipelined_calls import call_all
from tests.real.source_text_clients import modern_http_client, pages

START_SECONDS = 60.0
DEPTH = 10_000
ALTERNATIVES = 100_000
LONG = "n" * 10_240


def nested(level: int) -> str:
    return '{"type":"object","properties":{"in":' * level + '{"type":"string"}' + "}}" * level


def odd_tools() -> dict[str, str]:
    """The source text of each schema, by the name of its tool."""
    ref = '{"type":"object","properties":{"a":{"$ref":"%s"}},"$defs":{"b":{"$ref":"#/$defs/b"}}}'
    strange = ("type", "$ref", "properties", "required", "items", "")
    return {
        "circle": ref % "#",
        "small_circle": ref % "#/$defs/b",
        "nowhere": ref % "#/$defs/missing",
        "network": ref % "http://192.0.2.1/schema.json",
        "anchors": ref % "#%zz/~5",
        "few_alternatives": any_of(f'{{"const":"{number}"}}' for number in range(5_000)),
        "many_alternatives": any_of("{}" for _ in range(ALTERNATIVES)),
        "strange_names": json.dumps(
            {"type": "object", "properties": {name: {"type": "string"} for name in strange}}
        ),
        "numbers": f'{{"type":"object","properties":{{"a":{{"type":"integer","maximum":{"9" * 400}}}}}}}',
        "deep": nested(200),
        "wörter 日本": '{"type":"object"}',
        LONG: '{"type":"object"}',
        # None of these can be served, or only after a repair.
        "large_alternatives": any_of(f'{{"const":"{number}"}}' for number in range(ALTERNATIVES)),
        "very_deep": nested(DEPTH),
        "no_object": '["object"]',
        "no_object_type": '{"type":"array"}',
        "no_properties": '{"type":"object","properties":[1,2]}',
    }


def any_of(schemas: Iterable[str]) -> str:
    return f'{{"type":"object","properties":{{"a":{{"anyOf":[{",".join(schemas)}]}}}}}}'


@dataclass(frozen=True)
class Zoo:
    """A gateway before one odd server and a good one."""

    gateway: GatewayProcess
    odd: list[str]

    @property
    def good(self) -> list[str]:
        return [f"good_{one['name']}" for one in hundred("good")]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    place = tmp_path_factory.mktemp("zoo")
    write_odd(place / "odd.json")
    write_listing(place / "good.json", hundred("good"))
    servers = {
        "odd": stdio_entry(listing_command("odd", place / "odd.json")),
        "good": stdio_entry(changing_listing_command("good", place / "good.json")),
    }
    settings = {"clientDialects": {"strict": "openai"}}
    config = {"mcpServers": servers, "proxySettings": settings}
    with running_gateway(config, place / "gateway", environment=BY_WORDS) as gateway:
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        names = [json.loads(one)["name"] for one in shown(gateway, ListingMode.FULL)]
        yield Zoo(gateway, [name for name in names if not name.startswith("good_")])


def write_odd(path: Path) -> None:
    tools = [
        f'{{"name":{json.dumps(name)},"description":"It is odd.","inputSchema":{schema}}}'
        for name, schema in odd_tools().items()
    ]
    # Twice the same, and without a name.
    tools += [tools[0], tools[0].replace("It is odd.", "Another."), '{"name":"","inputSchema":{}}']
    path.write_text(f'{{"tools":[{",".join(tools)}]}}', encoding="utf-8")


def shown(gateway: GatewayProcess, mode: ListingMode) -> list[str]:
    """The source text of each tool that is listed."""
    with modern_http_client(f"{gateway.url}/{mode}") as client:
        return [one for page in pages(client) for one in sources(page)]


def test_every_odd_tool_is_served_or_left_out_with_a_reason(zoo: Zoo) -> None:
    left_out = zoo.gateway.servers()["odd"]["tools_left_out"]
    assert len(zoo.odd) == len(set(zoo.odd))
    # Besides two of the same name and one without.
    assert len(zoo.odd) + len(left_out) == len(odd_tools()) + 3
    assert {"odd_circle", "odd_nowhere", "odd_network", "odd_strange_names", "odd_deep"} <= set(zoo.odd)
    assert all(left_out.values())
    assert max(map(len, zoo.odd)) <= 64


@pytest.mark.parametrize("mode", ListingMode)
def test_the_tools_of_others_are_listed_and_called_in_every_mode(zoo: Zoo, mode: ListingMode) -> None:
    listed = shown(zoo.gateway, mode)
    names = [json.loads(one)["name"] for one in listed]
    if mode in (ListingMode.FULL, ListingMode.SLIM):
        assert [name for name in names if name.startswith("good_")] == zoo.good
        assert {*zoo.odd} <= {*names}
    if mode in (ListingMode.AUTO, ListingMode.BUDGET):
        assert count_tokens(f"[{','.join(listed)}]".encode()) <= 3000
    assert len(names) == len(set(names))
    calls: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in (*zoo.good, *zoo.odd)]
    answers = list(call_all(f"{zoo.gateway.url}/{mode}", calls))
    assert [answer for answer in answers if answer["result"].get("isError")] == []


@pytest.mark.parametrize("mode", ListingMode)
def test_the_listing_is_read_by_clients_of_every_dialect(zoo: Zoo, mode: ListingMode) -> None:
    url = f"{zoo.gateway.url}/{mode}"
    for name in ("gemini-cli-mcp-client-gate", "strict", "somebody"):
        for client in (Handshaker(url, name=name), Stateless(url, name=name)):
            assert client.ask("tools/list", {})["result"]["tools"]


def test_every_odd_schema_is_expanded_as_it_was_written(zoo: Zoo) -> None:
    whole = {
        json.loads(one)["name"]: json.loads(one)["inputSchema"]
        for one in shown(zoo.gateway, ListingMode.FULL)
    }
    client = Stateless(f"{zoo.gateway.url}/slim")
    for name in zoo.odd:
        assert json.loads(text(call(client, "expandSchema", toolName=name))) == whole[name]
        answer = client.call("expandSchema", {"toolName": name, "path": ["a", "in", "a"]})
        assert ("result" in answer) or answer["error"]["code"] == -32602


def test_nothing_is_fetched_from_the_network(zoo: Zoo) -> None:
    client = Stateless(f"{zoo.gateway.url}/slim")
    first, *more = call(client, "expandSchema", toolName="odd_network", path=["a"])["content"]
    assert json.loads(first["text"]) == {"$ref": "http://192.0.2.1/schema.json"}
    assert all("never fetched" in one["text"] for one in more)


def test_the_gateway_has_logged_no_failure_of_its_own(zoo: Zoo) -> None:
    entries = [json.loads(line) for line in zoo.gateway.log().splitlines() if line.startswith("{")]
    assert [entry for entry in entries if entry["level"].lower() == "error"] == []
