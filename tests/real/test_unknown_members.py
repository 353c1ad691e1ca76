"""No own tool drops an unknown argument: SDK clients of both eras read what is allowed."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from testkit.clients.streaming_http import Handshaker, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration, echo_listing_command, stdio_entry, write_listing
from tests.real.delayed_servers import BY_WORDS
from tests.real.mcp_clients import McpClient, McpClients, words

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 60.0
SCHEMA = {"type": "object", "properties": {"dry_run": {"type": "boolean"}}}
DELETE_ALL = {"name": "delete_all", "description": "Delete everything.", "inputSchema": SCHEMA}
ITS_SCHEMA = f"input_schema of m_delete_all: {json.dumps(SCHEMA)}"
CONTAINERS = ["args", "arguments", "params", "parameters", "input"]
GIVEN = {"dry_run": True}
# A call of each own tool that lacks nothing.
OWN_TOOLS: dict[str, dict[str, Any]] = {
    "retrieve_tools": {"query": "delete"},
    "retrieve_tool": {"query": "delete"},
    "expandSchema": {"toolName": "m_delete_all"},
    "proxy_filter": {"tool": "m_delete_all", "fields": ["a"]},
    "proxy_search": {"tool": "m_delete_all", "pattern": "a"},
    "proxy_explore": {"tool": "m_delete_all"},
    "proxy_read": {"tool": "m_delete_all"},
    "proxy_query": {"tool": "m_delete_all", "sql": "SELECT 1"},
    "transaction_begin": {},
    "transaction_step": {"transaction_id": "t", "tool": "m_delete_all"},
    "transaction_commit": {"transaction_id": "t"},
    "transaction_rollback": {"transaction_id": "t"},
    "get_transaction": {"transaction_id": "t"},
    "get_operation": {"op_id": "o"},
    "resolve_operation": {"op_id": "o", "happened": True},
    "knowledge_semantic_search": {"query": "vendor"},
    "knowledge_find_vendor_info": {"vendor_name": "a"},
    "knowledge_list_sources": {},
    "knowledge_get_chunk": {"chunk_id": 1},
    "knowledge_get_chunks": {"chunk_ids": [1]},
    "knowledge_neighbours": {"entity": "a"},
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    place = tmp_path_factory.mktemp("members")
    listing = place / "m.json"
    write_listing(listing, [DELETE_ALL])
    servers = {"m": stdio_entry(echo_listing_command(listing)), "knowledge": {"builtin": "knowledge"}}
    config = configuration(servers, listing="search", listResultTools=True, listDeliveryTools=True)
    with running_gateway(
        config, place / "gateway", environment=BY_WORDS, start_seconds=START_SECONDS
    ) as gateway:
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guests(gateway: GatewayProcess) -> AsyncIterator[McpClients]:
    guests = McpClients(gateway)
    yield guests
    await guests.leave()


@pytest_asyncio.fixture(params=["legacy", "modern"], loop_scope="module")
async def mcp_client(request: pytest.FixtureRequest, guests: McpClients) -> McpClient:
    return await guests.mcp_client("http", request.param)


async def called(mcp_client: McpClient, name: str, arguments: dict[str, Any]) -> Any:
    return await mcp_client.client.call_tool(name, arguments)


async def refused(mcp_client: McpClient, name: str, arguments: dict[str, Any]) -> list[str]:
    """The texts of a call that was not made."""
    result = await called(mcp_client, name, arguments)
    assert result.is_error
    assert result.meta["io.headgate/error"]["code"] == "INVALID_PARAMS"
    assert result.meta["io.headgate/error"]["effect"] == "none"
    return [block.text for block in result.content]


def calls(gateway: GatewayProcess) -> int:
    found: int = gateway.servers()["m"].get("calls", 0)
    return found


# call_tool.


@pytest.mark.parametrize("container", CONTAINERS)
async def test_the_arguments_reach_the_tool_whatever_their_container_is_called(
    mcp_client: McpClient, container: str
) -> None:
    result = await called(mcp_client, "call_tool", {"name": "m_delete_all", container: GIVEN})
    assert json.loads(words(result)) == GIVEN
    as_text = {"name": "m_delete_all", container: json.dumps(GIVEN)}
    assert json.loads(words(await called(mcp_client, "call_tool", as_text))) == GIVEN


async def test_a_container_of_null_or_none_is_no_argument(mcp_client: McpClient) -> None:
    for given in ({}, {"args": None}, dict.fromkeys(CONTAINERS), {"args": ""}):
        result = await called(mcp_client, "call_tool", {"name": "m_delete_all", **given})
        assert json.loads(words(result)) == {}
    result = await called(mcp_client, "call_tool", {"name": "m_delete_all", "args": None, "input": GIVEN})
    assert json.loads(words(result)) == GIVEN


@pytest.mark.parametrize(
    "given", [GIVEN, {"args": {}, **GIVEN}, {"argz": GIVEN}, {"options": None}, {"ARGS": GIVEN}]
)
async def test_any_other_member_is_refused_with_the_schema(
    gateway: GatewayProcess, mcp_client: McpClient, given: dict[str, Any]
) -> None:
    before = calls(gateway)
    sentence, schema = await refused(mcp_client, "call_tool", {"name": "m_delete_all", **given})
    (unknown,) = given.keys() - {"args"}
    assert sentence.startswith(f"call_tool has no argument '{unknown}'; ")
    assert "allowed: args, name; give the arguments of m_delete_all in args." in sentence
    assert ("did you mean args?" in sentence) is (unknown.lower() in ("argz", "args"))
    assert schema == ITS_SCHEMA
    assert calls(gateway) == before


@pytest.mark.parametrize("given", [{"args": GIVEN, "input": {}}, {"params": {}, "parameters": "{}"}])
async def test_two_containers_are_refused(
    gateway: GatewayProcess, mcp_client: McpClient, given: dict[str, Any]
) -> None:
    before = calls(gateway)
    (sentence,) = await refused(mcp_client, "call_tool", {"name": "m_delete_all", **given})
    first, second = given
    assert sentence == f"call_tool: {first} and {second} are both given; give the arguments once, in args."
    assert calls(gateway) == before


@pytest.mark.parametrize("args", [[GIVEN], 5, "[]", True, "dry_run=true"])
async def test_a_container_that_is_no_object_is_refused(mcp_client: McpClient, args: Any) -> None:
    (sentence,) = await refused(mcp_client, "call_tool", {"name": "m_delete_all", "params": args})
    assert sentence.startswith("call_tool: params is ")


@pytest.mark.parametrize("member", ["tool", "tool_name", "toolName", "nam"])
async def test_a_misspelt_name_is_refused_with_the_schema_of_call_tool(
    mcp_client: McpClient, member: str
) -> None:
    sentence, schema = await refused(mcp_client, "call_tool", {member: "m_delete_all", "args": GIVEN})
    assert f"call_tool has no argument '{member}'; did you mean name?" in sentence
    assert schema.startswith("input_schema of call_tool: {")


async def test_an_unknown_tool_is_told_before_an_unknown_member(mcp_client: McpClient) -> None:
    result = await called(mcp_client, "call_tool", {"name": "m_delete_al", **GIVEN})
    assert result.is_error
    assert "Unknown tool: 'm_delete_al'" in words(result)
    assert "m_delete_all" in words(result)
    assert "retrieve_tools" in words(result)


async def test_call_tool_does_not_call_itself(gateway: GatewayProcess, mcp_client: McpClient) -> None:
    before = calls(gateway)
    inner = {"name": "m_delete_all", "args": GIVEN}
    result = await called(mcp_client, "call_tool", {"name": "call_tool", "args": inner})
    assert result.is_error
    assert "call_tool does not call itself, so give the name of the inner call" in words(result)
    assert calls(gateway) == before


async def test_the_schema_of_an_own_tool_is_told_too(mcp_client: McpClient) -> None:
    sentence, schema = await refused(mcp_client, "call_tool", {"name": "get_operation", "op_id": "o"})
    assert "give the arguments of get_operation in args" in sentence
    assert schema.startswith("input_schema of get_operation: {")


class Repeated(dict[str, Any]):
    """Members that are written although one of them has the name of another."""

    def __init__(self, *members: tuple[str, Any]) -> None:
        super().__init__(members)
        self._members = members

    def items(self) -> Any:
        return self._members


@pytest.mark.parametrize("client", [Handshaker, Stateless])
@pytest.mark.parametrize("second", [("args", {}), ("args", None), ("name", "m_delete_all")])
async def test_a_member_that_is_given_twice_is_refused(
    gateway: GatewayProcess, client: type[Handshaker] | type[Stateless], second: tuple[str, Any]
) -> None:
    # Parsers keep one of two, so that the arguments in the other would be lost.
    given = Repeated(("name", "m_delete_all"), ("args", GIVEN), second)

    def answered() -> Any:
        return client(gateway.url).ask("tools/call", {"name": "call_tool", "arguments": given})["result"]

    before = calls(gateway)
    result = await asyncio.to_thread(answered)
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith(f"call_tool: '{second[0]}' is given twice; ")
    assert calls(gateway) == before


# The other own tools.


@pytest.mark.parametrize("tool", OWN_TOOLS)
async def test_an_own_tool_refuses_a_member_that_it_does_not_have(
    gateway: GatewayProcess, mcp_client: McpClient, tool: str
) -> None:
    before = calls(gateway)
    for wrapped in (False, True):
        given = {**OWN_TOOLS[tool], "dry_run": True}
        name, arguments = ("call_tool", {"name": tool, "args": given}) if wrapped else (tool, given)
        sentence = await refusal(mcp_client, name, arguments)
        plain = tool.removeprefix("knowledge_").replace("retrieve_tool", "retrieve_tools")
        assert f"{plain.replace('toolss', 'tools')} has no argument 'dry_run'; " in sentence
        assert "allowed: " in sentence
        for argument in OWN_TOOLS[tool]:
            assert argument in sentence
    assert calls(gateway) == before


async def refusal(mcp_client: McpClient, name: str, arguments: dict[str, Any]) -> str:
    """What is wrong; expandSchema says it as an error of the protocol."""
    try:
        return (await refused(mcp_client, name, arguments))[0]
    except Exception as error:
        if isinstance(error, AssertionError):
            raise
        return str(error)


@pytest.mark.parametrize("tool", ["call_tool", *OWN_TOOLS])
async def test_what_gemini_cli_adds_to_every_call_is_no_mistake(mcp_client: McpClient, tool: str) -> None:
    given = OWN_TOOLS.get(tool, {"name": "m_delete_all", "args": GIVEN})
    result = await called(mcp_client, tool, {**given, "wait_for_previous": True})
    told = (result.meta or {}).get("io.headgate/error", {})
    assert told.get("code") != "INVALID_PARAMS", result.content


@pytest.mark.parametrize("tool", OWN_TOOLS)
async def test_null_is_accepted_for_every_member_that_may_be_left_out(
    mcp_client: McpClient, tool: str
) -> None:
    # A strict dialect makes every member required, and a model writes null for those that it leaves out.
    wanted = "retrieve_tools" if tool == "retrieve_tool" else tool
    schema = json.loads(words(await called(mcp_client, "expandSchema", {"toolName": wanted})))
    given = dict.fromkeys(schema.get("inputSchema", schema)["properties"]) | OWN_TOOLS[tool]
    assert len(given) >= len(OWN_TOOLS[tool])
    result = await called(mcp_client, tool, given)
    told = (result.meta or {}).get("io.headgate/error", {})
    assert told.get("code") != "INVALID_PARAMS", result.content


@pytest.mark.parametrize(
    "tool", ["proxy_filter", "proxy_search", "proxy_explore", "proxy_read", "proxy_query"]
)
async def test_a_call_for_its_result_has_the_same_rule(
    gateway: GatewayProcess, mcp_client: McpClient, tool: str
) -> None:
    before = calls(gateway)
    _, schema = await refused(mcp_client, tool, {**OWN_TOOLS[tool], **GIVEN})
    assert schema == ITS_SCHEMA
    (twice,) = await refused(mcp_client, tool, {**OWN_TOOLS[tool], "args": {}, "arguments": GIVEN})
    assert "args and arguments are both given" in twice
    assert calls(gateway) == before


@pytest.mark.parametrize("container", CONTAINERS)
async def test_a_call_for_its_result_takes_every_container(mcp_client: McpClient, container: str) -> None:
    result = await called(mcp_client, "proxy_read", {"tool": "m_delete_all", container: GIVEN})
    assert json.loads(result.content[0].text) == GIVEN


@pytest.mark.parametrize("container", CONTAINERS)
async def test_a_step_and_its_compensation_have_the_same_rule(
    gateway: GatewayProcess, mcp_client: McpClient, container: str
) -> None:
    begun = await called(mcp_client, "transaction_begin", {})
    step = {"transaction_id": begun.structured_content["transaction_id"], "tool": "m_delete_all"}
    before = calls(gateway)
    for wrong in ({"compensate": {"tool": "m_delete_all", "id": 5}}, GIVEN):
        told, schema = await refused(mcp_client, "transaction_step", {**step, **wrong})
        assert "has no argument" in told
        assert schema == ITS_SCHEMA
    undo = {"tool": "m_delete_all", "args": {}, "params": GIVEN}
    (twice,) = await refused(mcp_client, "transaction_step", {**step, "compensate": undo})
    assert "compensate.args and compensate.params are both given" in twice
    assert calls(gateway) == before
    undo = {"tool": "m_delete_all", container: {"dry_run": False}}
    made = await called(mcp_client, "transaction_step", {**step, container: GIVEN, "compensate": undo})
    assert json.loads(made.content[0].text) == GIVEN
    await called(mcp_client, "transaction_rollback", {"transaction_id": step["transaction_id"]})
    found = await called(mcp_client, "get_transaction", {"transaction_id": step["transaction_id"]})
    assert found.structured_content["state"] == "rolled_back"
    assert calls(gateway) == before + 2


# Where a server has the name.


async def test_where_own_tools_are_not_served_a_servers_call_tool_gets_what_was_sent(tmp_path: Path) -> None:
    listing = tmp_path / "m.json"
    write_listing(listing, [{"name": "call_tool", "inputSchema": {"type": "object"}}])
    config = configuration({"m": stdio_entry(echo_listing_command(listing))}, prefix=False)
    with running_gateway(config, tmp_path / "gateway", start_seconds=START_SECONDS) as gateway:
        guests = McpClients(gateway)
        mcp_client = await guests.mcp_client("http", "modern")
        sent = {"name": "x", "dry_run": True, "args": [1], "params": {}}
        assert json.loads(words(await called(mcp_client, "call_tool", sent))) == sent
        await guests.leave()
