"""Prompts, resources, templates and everything else that servers offer reach clients of both eras whole."""

import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import pytest_asyncio
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from testkit.clients.streaming_http import ANSWERS_ALL, Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.parts import Parts
from testkit.sdk_servers.full_contents import NAMES, Contents
from testkit.upstreams import (
    configuration,
    http_server,
    lines_of,
    plain_environment,
    stdio_entry,
    whole_command,
)
from tests.real.answering_clients import Company, Person
from tests.real.source_text_clients import stdio_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 30.0
OWN = ("old", "new")
ERAS = {"old": "legacy", "new": "modern"}
# Small, so that the gateway's own listings have several pages too.
PAGE_BYTES = 4096


@dataclass(frozen=True)
class Market:
    """Servers that list page by page, one that never ends its list, and the gateway in front of them."""

    gateway: GatewayProcess
    entries: dict[str, Any]
    everything: list[str]
    journals: dict[str, Path]


@pytest.fixture(scope="module")
def market(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    place = tmp_path_factory.mktemp("market")
    everything = [str(parts.node), str(parts.npm_bin("mcp-server-everything")), "stdio"]
    journals = {name: place / f"{name}.journal" for name in (*OWN, "ring", "knot")}
    with ExitStack() as stack:
        entries = {
            name: {
                "url": stack.enter_context(http_server(whole_command(era, name, journals[name], *options)))
            }
            for name, era, options in (
                ("old", "legacy", ["--paged"]),
                ("new", "modern", ["--paged"]),
                ("ring", "legacy", ["--endless", "tools"]),
                ("knot", "modern", ["--endless", "resources"]),
            )
        }
        servers = entries | {"every": stdio_entry(everything)}
        config = configuration(servers, pageBytes=PAGE_BYTES)
        gateway = stack.enter_context(running_gateway(config, place / "gateway", start_seconds=START_SECONDS))
        gateway.wait_until_ready(*OWN, "every", seconds=START_SECONDS)
        yield Market(gateway, entries, everything, journals)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def company(market: Market) -> AsyncIterator[Company]:
    people = Company(market.gateway.url)
    yield people
    await people.leave()


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest_asyncio.fixture(loop_scope="module")
async def ann(company: Company, era: str) -> Person:
    return await company.person("Ann", era)


@pytest.fixture(params=OWN)
def server(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def listed(pages: Callable[..., Any], member: str) -> list[Any]:
    """Everything that is listed, page by page."""
    found: list[Any] = []
    cursor, turns = None, 0
    while True:
        page = await pages(cursor=cursor, cache_mode="bypass")
        found += getattr(page, member)
        cursor, turns = page.next_cursor, turns + 1
        assert turns < 100
        if cursor is None:
            return found


# Listings.


async def test_every_page_of_every_listing_is_there(ann: Person, server: str) -> None:
    stock = Contents(server)

    prompts = await listed(ann.client.list_prompts, "prompts")
    resources = await listed(ann.client.list_resources, "resources")
    templates = await listed(ann.client.list_resource_templates, "resource_templates")
    tools = await listed(ann.client.list_tools, "tools")

    expected = [f"{server}_{prompt.name.replace('-', '_')}" for prompt in stock.prompts()]
    assert [prompt.name for prompt in prompts if prompt.name.startswith(server)] == expected
    own = [resource.uri for resource in stock.resources() if resource.uri.startswith(server)]
    assert [str(one.uri) for one in resources if str(one.uri).startswith(server)] == own
    expected = [template.uri_template for template in stock.templates()]
    assert [one.uri_template for one in templates if one.uri_template.startswith(server)] == expected
    assert sum(tool.name.startswith(f"{server}_") for tool in tools) == 14


async def test_a_listing_of_the_gateway_has_pages_that_belong_together(market: Market) -> None:
    client = Handshaker(market.gateway.url)
    first = client.ask("tools/list", {})["result"]
    assert len(json.dumps(first)) < 2 * PAGE_BYTES
    assert "nextCursor" in first

    wrong = client.ask("tools/list", {"cursor": "made up"})

    assert wrong["error"]["code"] == -32602
    client.leave()


@pytest.mark.parametrize(("name", "method"), [("ring", "tools/list"), ("knot", "resources/list")])
async def test_a_listing_that_never_ends_costs_only_its_server(
    market: Market, ann: Person, name: str, method: str
) -> None:
    status = market.gateway.servers()[name]

    assert status["state"] in ("backoff", "starting")
    assert "circles" in status["last_error"]
    assert method in status["last_error"]
    assert await ann.call("old_echo", text="fine") == "fine"


# Prompts, resources, completion.


async def test_a_prompt_is_filled_in_by_its_server(ann: Person, server: str) -> None:
    prompt = await ann.client.get_prompt(f"{server}_greet", {"who": "the world"})

    (message,) = prompt.messages
    assert isinstance(message.content, types.TextContent)
    assert message.content.text == f"{server} greets the world"


async def test_an_unknown_prompt_is_refused_with_the_nearest_names(ann: Person, server: str) -> None:
    with pytest.raises(MCPError) as caught:
        await ann.client.get_prompt(f"{server}_gret")

    assert caught.value.error.code == -32602
    assert f"{server}_greet" in caught.value.error.message


async def test_a_resource_is_read_as_text(ann: Person, server: str) -> None:
    (contents,) = (await ann.client.read_resource(f"{server}://one")).contents

    assert isinstance(contents, types.TextResourceContents)
    assert (contents.uri, contents.text) == (f"{server}://one", f"{server} has {server}://one")


async def test_a_resource_is_read_as_bytes(ann: Person, server: str) -> None:
    (contents,) = (await ann.client.read_resource(f"{server}://bytes")).contents

    assert isinstance(contents, types.BlobResourceContents)
    assert base64.b64decode(contents.blob) == b"\x00\xff" + server.encode()


async def test_a_resource_that_only_a_template_tells_of_is_read(ann: Person, server: str) -> None:
    (contents,) = (await ann.client.read_resource(f"{server}://year/1815")).contents

    assert isinstance(contents, types.TextResourceContents)
    assert contents.text == f"{server} has {server}://year/1815"


async def test_resources_of_a_real_server_are_read(ann: Person) -> None:
    (text,) = (await ann.client.read_resource("demo://resource/dynamic/text/7")).contents
    (blob,) = (await ann.client.read_resource("demo://resource/dynamic/blob/7")).contents

    assert isinstance(text, types.TextResourceContents)
    assert text.text.startswith("Resource 7: This is a plaintext resource")
    assert isinstance(blob, types.BlobResourceContents)
    assert base64.b64decode(blob.blob).startswith(b"Resource 7: This is a base64 blob")


async def test_a_resource_that_nobody_has_is_not_found(ann: Person, server: str) -> None:
    with pytest.raises(MCPError) as nowhere:
        await ann.client.read_resource("nowhere://at/all")
    with pytest.raises(MCPError) as gone:
        await ann.client.read_resource(f"{server}://year/missing")

    assert nowhere.value.error.code == (-32002 if ann.era == "legacy" else -32602)
    assert nowhere.value.error.data == {"uri": "nowhere://at/all"}
    # Its server has the last word on what it has.
    assert gone.value.error.data == {"uri": f"{server}://year/missing"}


async def test_arguments_of_prompts_and_templates_are_completed(ann: Person, server: str) -> None:
    prompt = types.PromptReference(name=f"{server}_greet")
    template = types.ResourceTemplateReference(uri=f"{server}://room/{{name}}")

    of_prompt = await ann.client.complete(prompt, {"name": "who", "value": "A"})
    of_template = await ann.client.complete(template, {"name": "name", "value": "G"})

    expected = [f"{name} greet" for name in NAMES if name.startswith("A")]
    assert of_prompt.completion.values == expected
    assert of_template.completion.values == [f"Grace {server}://room/{{name}}"]


async def test_completion_of_a_real_server_knows_its_context(ann: Person) -> None:
    prompt = types.PromptReference(name="every_completable_prompt")
    done = await ann.client.complete(
        prompt, {"name": "name", "value": "E"}, context_arguments={"department": "Sales"}
    )

    assert done.completion.values == ["Eve"]


# What the gateway says of itself.


async def test_the_advice_of_every_server_is_there(ann: Person) -> None:
    advice = ann.client.instructions or ""

    for server in OWN:
        assert f"# {server}\n\nAdvice of {server}." in advice
    assert "# every\n\n" in advice


async def test_everything_is_promised_where_a_server_keeps_it(market: Market) -> None:
    promised = {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
        "logging": {},
    }
    handshaker = Handshaker(market.gateway.url)
    handshaker.leave()
    assert without_tasks(handshaker.welcome["capabilities"]) == promised
    assert "tasks" in handshaker.welcome["capabilities"]

    discovery = Stateless(market.gateway.url).ask("server/discover", {})["result"]

    # Tasks of 2025-11-25 are no part of this era.
    assert discovery["capabilities"] == promised


def without_tasks(capabilities: Message) -> Message:
    return {name: value for name, value in capabilities.items() if name != "tasks"}


async def test_nothing_is_promised_that_no_server_keeps(tmp_path: Path) -> None:
    with running_gateway(configuration({"ex": {"builtin": "example"}}), tmp_path) as gateway:
        handshaker = Handshaker(gateway.url)
        assert handshaker.welcome["capabilities"] == {"tools": {"listChanged": True}}
        assert "instructions" not in handshaker.welcome
        discovery = Stateless(gateway.url).ask("server/discover", {})["result"]
        assert discovery["capabilities"] == {"tools": {"listChanged": True}}
        for method, member in (("prompts/list", "prompts"), ("resources/list", "resources")):
            assert handshaker.ask(method, {})["result"] == {member: []}


@pytest.mark.parametrize(
    ("declared", "more"),
    [
        ({}, []),
        ({"sampling": {}}, ["trigger_sampling_request"]),
        ({"elicitation": {}}, ["trigger_elicitation_request"]),
        ({"roots": {}}, ["get_roots_list"]),
        (
            {"sampling": {}, "roots": {}, "elicitation": {"form": {}}},
            ["get_roots_list", "trigger_elicitation_request", "trigger_sampling_request"],
        ),
        (
            ANSWERS_ALL,
            [
                "get_roots_list",
                "trigger_elicitation_request",
                "trigger_sampling_request",
                "trigger_url_elicitation",
            ],
        ),
    ],
    ids=["none", "sampling", "elicitation", "roots", "three", "all"],
)
async def test_each_client_sees_the_tools_that_it_can_be_asked_by(
    market: Market, plain: list[str], declared: Message, more: list[str]
) -> None:
    # At the same time there is a client with all capabilities for input requests, and one with none.
    others = [Handshaker(market.gateway.url, ANSWERS_ALL), Handshaker(market.gateway.url)]
    for other in others:
        tools_of(other)

    handshaker = Handshaker(market.gateway.url, declared)
    seen = [tools_of(handshaker), tools_of(Stateless(market.gateway.url, declared))]

    for tools in seen:
        assert tools == sorted(plain + more)
    assert len(tools_of(others[0])) == 17
    assert len(tools_of(others[1])) == 13
    for client in (handshaker, *others):
        client.leave()


@pytest.fixture(scope="module")
def plain(market: Market) -> list[str]:
    """What server-everything shows to clients that can be asked nothing."""
    with stdio_client(market.everything, plain_environment()) as direct:
        tools = json.loads(direct.ask("tools/list", {}))["tools"]
    assert len(tools) == 13
    return [tool["name"].replace("-", "_") for tool in tools]


def tools_of(client: Handshaker | Stateless) -> list[str]:
    """What the client sees of server-everything."""
    names: list[str] = []
    page: Message = {}
    while True:
        result = client.ask("tools/list", page)["result"]
        names += [tool["name"] for tool in result["tools"]]
        if "nextCursor" not in result:
            return sorted(name.removeprefix("every_") for name in names if name.startswith("every_"))
        page = {"cursor": result["nextCursor"]}


# Two servers with the same URI.


async def test_both_of_two_resources_with_the_same_uri_are_read(ann: Person) -> None:
    resources = [str(one.uri) for one in await listed(ann.client.list_resources, "resources")]
    (second,) = [uri for uri in resources if uri.startswith("headgate://") and uri.endswith("shared://note")]
    assert resources.count("shared://note") == 1

    texts = set()
    for uri in ("shared://note", second):
        (contents,) = (await ann.client.read_resource(uri)).contents
        assert isinstance(contents, types.TextResourceContents)
        assert contents.uri == uri
        texts.add(contents.text)

    assert texts == {"old has shared://note", "new has shared://note"}


async def test_a_uri_keeps_its_owner_whoever_starts_first(market: Market, tmp_path: Path) -> None:
    first = {name: market.entries[name] for name in ("old", "new")}
    owners = [owner_of_the_note(first, tmp_path)]
    # The other server alone, then both in the other order.
    loser = "new" if owners[0] == "old" else "old"
    owners.append(owner_of_the_note({loser: market.entries[loser], owners[0]: first[owners[0]]}, tmp_path))

    assert owners[0] == owners[1]


def owner_of_the_note(entries: dict[str, Any], place: Path) -> str:
    """Who is read under the plain URI; the other one is read under the longer one."""
    with running_gateway(configuration(entries), place, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready(*entries, seconds=START_SECONDS)
        client = Handshaker(gateway.url)
        uris = [one["uri"] for one in client.ask("resources/list", {})["result"]["resources"]]
        owner = note(client, "shared://note")
        (other,) = set(entries) - {owner}
        assert f"headgate://{other}/shared://note" in uris
        assert note(client, f"headgate://{other}/shared://note") == other
        # The owner answers to the longer one too.
        assert note(client, f"headgate://{owner}/shared://note") == owner
        client.leave()
    return owner


def note(client: Handshaker, uri: str) -> str:
    (contents,) = client.ask("resources/read", {"uri": uri})["result"]["contents"]
    assert contents["uri"] == uri
    owner: str = contents["text"].partition(" ")[0]
    return owner


# A single server without prefixes.


async def test_without_prefixes_everything_is_called_as_its_server_calls_it(
    market: Market, server: str, tmp_path: Path
) -> None:
    config = configuration({server: market.entries[server]}, prefix=False)
    stock = Contents(server)
    with running_gateway(config, tmp_path, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready(server, seconds=START_SECONDS)
        for mode in ("legacy", "auto"):
            async with Client(gateway.url, mode=mode) as client:
                prompts = await listed(client.list_prompts, "prompts")
                assert [one.name for one in prompts] == [one.name for one in stock.prompts()]
                resources = await listed(client.list_resources, "resources")
                assert [str(one.uri) for one in resources] == [one.uri for one in stock.resources()]
                assert (client.instructions or "").endswith(f"Advice of {server}.")
                read = await client.read_resource("shared://note")
                assert isinstance(read.contents[0], types.TextResourceContents)
                assert read.contents[0].text == f"{server} has shared://note"
                assert (await client.get_prompt("greet", {"who": "me"})).messages
        # With one server it is clear whom a method means that the gateway does not know.
        for raw in (Handshaker(gateway.url), Stateless(gateway.url)):
            assert raw.ask("vendor/sum", {"a": 2, "b": 40})["result"]["sum"] == 42
            assert raw.ask("vendor/none", {})["error"]["code"] == -32601


# What the gateway does not know.


async def test_a_method_that_nobody_knows_goes_to_the_server_that_is_named(
    market: Market, server: str
) -> None:
    named = {"a": 1, "b": 2, "_meta": {"io.headgate/server": server}}
    for client in (Handshaker(market.gateway.url), Stateless(market.gateway.url)):
        result = client.ask("vendor/sum", named)["result"]
        assert (result["sum"], result["server"]) == (3, server)

        assert client.ask("vendor/sum", {"a": 1, "b": 2})["error"]["code"] == -32601
        nobody = named | {"_meta": {"io.headgate/server": "nobody"}}
        refused = client.ask("vendor/sum", nobody)["error"]
        assert (refused["code"], refused["data"]["code"]) == (1031, "SERVER_NOT_FOUND")


async def test_a_notification_that_nobody_knows_reaches_the_client_of_the_call(
    market: Market, server: str
) -> None:
    clients: list[Handshaker | Stateless] = [Handshaker(market.gateway.url), Stateless(market.gateway.url)]
    for number, client in enumerate(clients):
        call = {"name": f"{server}_notice", "arguments": {"text": f"ring {number}"}}
        stream = client.begin("tools/call", call)
        assert stream.until("notifications/vendor/notice")["params"]["text"] == f"ring {number}"
        assert stream.answer()["result"]["content"][0]["text"] == f"ring {number}"
        stream.close()


async def test_a_task_is_followed_at_the_server_that_runs_it(market: Market) -> None:
    client = Handshaker(market.gateway.url, ANSWERS_ALL)
    call = {"name": "every_simulate_research_query", "arguments": {"topic": "tides"}, "task": {"ttl": 60000}}
    task = client.ask("tools/call", call)["result"]["task"]

    followed = client.ask("tasks/get", {"taskId": task["taskId"]})["result"]
    assert followed["taskId"] == task["taskId"]
    assert followed["status"] == "working"
    stopped = client.ask("tasks/cancel", {"taskId": task["taskId"]})["result"]
    assert stopped["status"] == "cancelled"
    assert client.ask("tasks/get", {"taskId": "no such task"})["error"]["code"] == -32601
    client.leave()


async def test_nothing_but_listings_reached_the_servers_that_were_refused(market: Market) -> None:
    for name in ("ring", "knot"):
        assert not [line for line in lines_of(market.journals[name]) if line.startswith("began")]
