"""The gateway's own tools on the path: retrieve_tools finds, call_tool calls whatever there is."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from headgate.catalog.errors import SchemaNotFound, ServerNotFound, ToolNotFound
from headgate.catalog.expand_schema import ExpandSchema
from headgate.catalog.finder import Finder
from headgate.catalog.listing_variant import KnownClients, ListingContext
from headgate.catalog.retrieve_tools import RetrieveTools
from headgate.catalog.tool_dialects import Dialect
from headgate.domain.client_profile import ClientProfile
from headgate.domain.errors import HeaderMismatch, InvalidArguments, ResourceExhausted
from headgate.domain.identity import Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.listing_mode import Curation, ListingMode
from headgate.domain.mcp_request import ClientSession, McpResponse
from headgate.gateway.interfaces import AccessControl, GatewayTool
from headgate.protocol.protocol_version import Era
from testkit.waiting import eventually
from tests.catalog.sample_listings import UnreachableChannel
from tests.delivery.scripted_upstream import DONE, WAIT_SECONDS, WRONG
from tests.gateway_harness import GatewayHarness, request

SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "minimum": 1}},
    "required": ["amount"],
}
PAY = {"name": "pay", "description": "Pay an amount of money to somebody", "inputSchema": SCHEMA}
LOOK = {"name": "look", "description": "Look at the balance of an account", "inputSchema": {"type": "object"}}
REFUSED = McpResponse(b'{"content":[{"type":"text","text":"amount is required"}],"isError":true}')


class Hall:
    """A gateway with its own tools, before a bank with two tools."""

    def __init__(
        self,
        mode: ListingMode = ListingMode.SEARCH,
        *servers: str,
        answer: McpResponse = DONE,
        access: AccessControl | None = None,
        told: Callable[[str], None] = lambda visibility_group: None,
        prefixed: bool = True,
        clients: KnownClients | None = None,
    ) -> None:
        own: dict[str, GatewayTool] = {}
        self.harness = GatewayHarness(
            *(servers or ("bank",)),
            answer=answer,
            access=access,
            mode=mode,
            own=own,
            prefixed=prefixed,
            clients=clients,
        )
        catalog = self.harness.catalog
        retrieve = RetrieveTools(
            Finder(lambda: catalog.every_tool),
            catalog,
            self.harness.pools,
            self.harness.tool_listings.is_dynamic,
            top_k=5,
            await_tools=_await_nothing,
            tell=told,
        )
        own.update(retrieve_tools=retrieve, retrieve_tool=retrieve, expandSchema=ExpandSchema(catalog))
        self.harness.offer("bank", ItemKind.TOOLS, PAY, LOOK)

    async def call(self, name: str, arguments: Any = None, **more: Any) -> McpResponse:
        params = {} if arguments is None else {"arguments": arguments}
        return await self.harness.gateway.call(request("tools/call", name, params, **more))

    async def wrapped(self, name: str, args: Any = None, **more: Any) -> McpResponse:
        return await self.call("call_tool", {"name": name, "args": args}, **more)

    def sent(self) -> list[tuple[str, str, bytes]]:
        return [
            (call.item.server, call.item.name, bytes(call.request.params.get("arguments", b"")))
            for call in self.harness.sent
        ]

    async def listed(self, owner: ClientSession | None = None) -> list[str]:
        page = await self.harness.gateway.list(
            ItemKind.TOOLS, None, ListingContext(era=Era.HANDSHAKE, owner=owner)
        )
        return [tool["name"] for tool in json.loads(b"{" + page + b"}")["tools"]]


async def _await_nothing(profile: ClientProfile, owner: ClientSession | None, caller: Identity) -> None:
    """Every server has told what it has."""


def told(answer: McpResponse) -> Any:
    assert isinstance(answer.result, bytes)
    return json.loads(answer.result)


# call_tool.


@pytest.mark.parametrize("mode", ListingMode)
@pytest.mark.parametrize("name", ["bank_pay", "bank:pay", "bank__pay"])
async def test_any_tool_is_called_by_any_of_its_names_in_any_mode(mode: ListingMode, name: str) -> None:
    hall = Hall(mode)
    assert await hall.wrapped(name, {"amount": 5}) is DONE
    # Without call_tool, too: listed or not.
    assert await hall.call(name, {"amount": 5}) is DONE
    assert [(server, tool, json.loads(given)) for server, tool, given in hall.sent()] == [
        ("bank", "pay", {"amount": 5})
    ] * 2
    assert hall.harness.catalog.drain_usage() == {("bank", "pay"): 2}


async def test_the_arguments_arrive_byte_for_byte_and_without_any_as_none() -> None:
    hall = Hall()
    await hall.wrapped("bank_pay", '{"amount": 1e1,  "x":"\\u00e9"}')
    await hall.call("call_tool", {"name": "bank_look"})
    assert hall.sent() == [("bank", "pay", b'{"amount": 1e1,  "x":"\\u00e9"}'), ("bank", "look", b"{}")]


@pytest.mark.parametrize("name", ["bank_pey", "bank:pey", "pay", "call_tool", "retrieve_toolz", "x" * 10_000])
async def test_a_tool_that_nobody_has_is_said_with_the_nearest_and_how_to_find_others(name: str) -> None:
    hall = Hall()
    with pytest.raises(ToolNotFound) as missing:
        await hall.wrapped(name)
    assert "retrieve_tools" in missing.value.hint
    assert "tools/list" not in missing.value.hint
    assert len(str(missing.value)) < 300
    assert hall.sent() == []
    if name.startswith("bank"):
        assert "bank_pay" in missing.value.hint


async def test_in_full_mode_the_list_is_named_to_whoever_calls_from_it() -> None:
    hall = Hall(ListingMode.FULL)
    with pytest.raises(ToolNotFound) as missing:
        await hall.call("bank_pey")
    assert "tools/list" in missing.value.hint


async def test_a_server_that_nobody_has_is_said() -> None:
    with pytest.raises(ServerNotFound) as missing:
        await Hall().wrapped("bonk:pay")
    assert "bank" in missing.value.hint


@pytest.mark.parametrize(
    "arguments", [{}, {"name": ""}, {"name": "bank_pay", "args": [1]}, {"name": 5}, None]
)
async def test_a_call_that_names_no_tool_reaches_nobody(arguments: Any) -> None:
    hall = Hall()
    with pytest.raises(InvalidArguments):
        await hall.call("call_tool", arguments)
    assert hall.sent() == []


async def test_a_call_inside_a_call_inside_a_call_is_no_tool() -> None:
    hall = Hall()
    with pytest.raises(ToolNotFound):
        await hall.wrapped("call_tool", {"name": "bank_pay", "args": {}})
    assert hall.sent() == []


async def test_a_call_waits_for_a_server_that_is_still_starting() -> None:
    hall = Hall(ListingMode.SEARCH, "bank", "shop")
    hall.harness.desk.upstream.open.clear()
    under_way = asyncio.ensure_future(hall.wrapped("shop_buy", {"what": "bread"}))
    awaited = hall.harness.desk.upstream.awaited
    await eventually(lambda: awaited == ["shop"], WAIT_SECONDS, "it waits")
    hall.harness.offer("shop", ItemKind.TOOLS, {"name": "buy", "inputSchema": {"type": "object"}})
    hall.harness.desk.upstream.open.set()
    assert await under_way is DONE
    assert [tool for _, tool, _ in hall.sent()] == ["buy"]


async def test_headers_that_repeat_arguments_are_not_compared_with_the_call_inside() -> None:
    hall = Hall()
    schema = {"type": "object", "properties": {"to": {"type": "string", "x-mcp-header": "To"}}}
    hall.harness.offer("bank", ItemKind.TOOLS, {"name": "pay", "inputSchema": schema})
    with pytest.raises(HeaderMismatch):
        await hall.call("bank_pay", {"to": "me"}, headers={b"mcp-param-to": b"you"})
    assert await hall.wrapped("bank_pay", {"to": "me"}, headers={b"mcp-param-to": b"you"}) is DONE


class Strict:
    """Refuses clients that ask too often, and permits some things."""

    def __init__(self, *, admits: bool = True, permits: bool = True) -> None:
        self.admits, self.permits = admits, permits

    def admit(self, caller: Identity) -> None:
        if not self.admits:
            raise ResourceExhausted("too many requests")

    def permit(self, caller: Identity, item: Item) -> None:
        if not self.permits:
            raise ToolNotFound(item.public_name, [])


@pytest.mark.parametrize("name", ["call_tool", "retrieve_tools", "bank_pay"])
async def test_whoever_asks_too_often_is_refused_before_anything_is_looked_at(name: str) -> None:
    hall = Hall(access=Strict(admits=False))
    with pytest.raises(ResourceExhausted):
        await hall.call(name, {"nonsense": True})
    assert hall.sent() == []


async def test_what_a_caller_may_not_use_he_may_not_use_through_call_tool() -> None:
    hall = Hall(access=Strict(permits=False))
    with pytest.raises(ToolNotFound):
        await hall.wrapped("bank_pay", {"amount": 5})
    assert hall.sent() == []


# Arguments that were refused.


def has_schema(answer: McpResponse) -> bool:
    blocks = told(answer)["content"]
    # As its server wrote it.
    return json.dumps(SCHEMA) in blocks[-1]["text"]


@pytest.mark.parametrize("mode", ListingMode)
@pytest.mark.parametrize("answer", [REFUSED, WRONG])
async def test_whoever_called_through_call_tool_gets_the_schema(
    mode: ListingMode, answer: McpResponse
) -> None:
    hall = Hall(mode, answer=answer)
    refusal = await hall.wrapped("bank_pay", {})
    assert has_schema(refusal)
    assert told(refusal)["isError"] is True
    assert "input_schema of bank_pay" in told(refusal)["content"][-1]["text"]


@pytest.mark.parametrize(
    "mode", [ListingMode.SEARCH, ListingMode.DYNAMIC, ListingMode.SLIM, ListingMode.BUDGET]
)
@pytest.mark.parametrize("answer", [REFUSED, WRONG])
async def test_whoever_does_not_see_whole_definitions_gets_the_schema_too(
    mode: ListingMode, answer: McpResponse
) -> None:
    assert has_schema(await Hall(mode, answer=answer).call("bank_pay", {}))


async def test_whoever_sees_whole_definitions_gets_a_refusal_with_the_schema_and_an_error_stays_one() -> None:
    assert has_schema(await Hall(ListingMode.FULL, answer=REFUSED).call("bank_pay", {}))
    error = json.loads((await Hall(ListingMode.FULL, answer=WRONG).call("bank_pay", {})).error)
    assert error == {"code": -32602, "message": "no", "data": {"input_schema": SCHEMA}}


@pytest.mark.parametrize("mode", ListingMode)
async def test_an_answer_that_refuses_nothing_is_handed_on_as_it_is(mode: ListingMode) -> None:
    assert await Hall(mode, answer=DONE).call("bank_pay", {}) is DONE
    other = McpResponse(error=b'{"code":-32000,"message":"amount is required"}')
    assert await Hall(mode, answer=other).call("bank_pay", {}) is other


# retrieve_tools.


@pytest.mark.parametrize("mode", ListingMode)
@pytest.mark.parametrize("name", ["retrieve_tools", "retrieve_tool"])
async def test_a_tool_is_found_and_called_by_the_name_under_which_it_was_found(
    mode: ListingMode, name: str
) -> None:
    hall = Hall(mode)
    found = told(await hall.call(name, {"query": "pay money"}))["structuredContent"]["tools"]
    assert found[0]["name"] == "bank_pay"
    assert await hall.wrapped(found[0]["name"], {"amount": 5}) is DONE
    assert hall.harness.catalog.drain_usage() == {("bank", "pay"): 1}


async def test_tools_can_be_found_through_call_tool() -> None:
    found = told(await Hall().wrapped("retrieve_tools", {"query": "pay money"}))
    assert found["structuredContent"]["tools"][0]["name"] == "bank_pay"


async def test_in_dynamic_mode_the_list_grows_before_the_answer_and_for_nobody_else() -> None:
    owner, other = ClientSession("one", UnreachableChannel()), ClientSession("two", UnreachableChannel())
    found: list[tuple[str, tuple[tuple[str, str], ...]]] = []
    hall = Hall(
        ListingMode.DYNAMIC,
        told=lambda visibility_group: found.append(
            (visibility_group, hall.harness.pools.keys(visibility_group))
        ),
    )
    assert await hall.listed(owner) == ["retrieve_tools"]
    await hall.call("retrieve_tools", {"query": "pay money", "limit": 1}, session=owner)
    assert found == [("one", (("bank", "pay"),))]
    assert await hall.listed(owner) == ["retrieve_tools", "bank_pay"]
    assert await hall.listed(other) == ["retrieve_tools"]
    await hall.call("bank_pay", {"amount": 1}, session=owner)
    assert await hall.listed(owner) == ["retrieve_tools", "bank_pay"]


async def test_a_tool_that_is_called_like_an_own_one_is_reached_by_its_other_names() -> None:
    hall = Hall(ListingMode.SEARCH, "bank", "call", "retrieve")
    for server, name in (("call", "tool"), ("retrieve", "tools")):
        hall.harness.offer(server, ItemKind.TOOLS, {"name": name, "inputSchema": {"type": "object"}})
        assert await hall.call(f"{server}:{name}") is DONE
    assert [(server, tool) for server, tool, _ in hall.sent()] == [("call", "tool"), ("retrieve", "tools")]


# expandSchema.


@pytest.mark.parametrize("mode", ListingMode)
async def test_the_schema_of_any_tool_can_be_had_in_every_mode_directly_and_through_call_tool(
    mode: ListingMode,
) -> None:
    hall = Hall(mode)
    for answer in (
        await hall.call("expandSchema", {"toolName": "bank_pay"}),
        await hall.wrapped("expandSchema", {"toolName": "bank:pay"}),
    ):
        assert json.loads(told(answer)["content"][0]["text"]) == SCHEMA
    # Nothing of it reaches a server, and it is no use of the tool.
    assert hall.sent() == []
    assert hall.harness.catalog.drain_usage() == {}


async def test_what_is_hidden_cannot_be_expanded_either() -> None:
    hall = Hall()
    hall.harness.catalog.curate({"bank": Curation(hidden=("pay",))})
    with pytest.raises(SchemaNotFound) as missing:
        await hall.call("expandSchema", {"toolName": "bank_pay"})
    assert "bank_pay" not in missing.value.message.removeprefix("Schema not found for tool: bank_pay")
    with pytest.raises(ToolNotFound):
        await hall.wrapped("bank_pay", {"amount": 1})


# Without a prefix, where names of the gateway's own tools may be a server's.

NAMES = ["call_tool", "expandSchema", "retrieve_tools", "retrieve_tool"]
THEIRS = [{"name": name, "inputSchema": SCHEMA} for name in NAMES]


def bare(mode: ListingMode, *tools: dict[str, Any]) -> Hall:
    hall = Hall(mode, "bank", prefixed=False)
    hall.harness.offer("bank", ItemKind.TOOLS, PAY, *tools)
    return hall


async def test_in_full_the_names_of_own_tools_are_those_of_nobody() -> None:
    hall = bare(ListingMode.FULL)
    for name in NAMES:
        with pytest.raises(ToolNotFound):
            await hall.call(name, {"name": "pay", "toolName": "pay", "query": "pay"})
    assert hall.sent() == []


async def test_where_everything_is_whole_a_servers_tool_of_such_a_name_is_listed_and_called() -> None:
    owner = ClientSession("one", UnreachableChannel())
    for mode in (ListingMode.FULL, ListingMode.AUTO, ListingMode.BUDGET):
        hall = bare(mode, *THEIRS)
        assert await hall.listed(owner) == ["pay", *NAMES]
        for name in NAMES:
            assert await hall.call(name, {"amount": 1}, session=owner) is DONE
        assert [name for _, name, _ in hall.sent()] == NAMES


@pytest.mark.parametrize(
    "mode", [ListingMode.SLIM, ListingMode.BUDGET, ListingMode.SEARCH, ListingMode.DYNAMIC]
)
async def test_elsewhere_no_name_is_listed_twice_and_such_a_tool_is_reached_by_its_server(
    mode: ListingMode,
) -> None:
    hall = bare(mode, *THEIRS, *({"name": f"do{number}", "inputSchema": WIDE} for number in range(200)))
    names = await hall.listed()
    assert len(names) == len(set(names))
    assert "retrieve_tools" in names
    assert "retrieve_tool" not in names
    for tool in THEIRS:
        assert await hall.call(f"bank:{tool['name']}", {"amount": 1}) is DONE
    assert [name for _, name, _ in hall.sent()] == NAMES


WIDE = {"type": "object", "properties": {f"argument{number}": {"type": "string"} for number in range(30)}}


@pytest.mark.parametrize("listing", [True, False], ids=["listed", "not listed yet"])
async def test_own_tools_that_a_server_of_its_own_mode_needs_can_be_called_in_full(*, listing: bool) -> None:
    hall = bare(ListingMode.FULL)
    hall.harness.catalog.curate({"bank": Curation(ListingMode.SEARCH)})
    if listing:
        assert await hall.listed() == ["retrieve_tools", "call_tool", "expandSchema"]
    found = told(await hall.call("retrieve_tools", {"query": "pay money"}))["structuredContent"]["tools"]
    assert await hall.call("call_tool", {"name": found[0]["name"], "args": {"amount": 1}}) is DONE
    # No client has seen the schema, so the model reads the refusal.
    hall.harness.desk.upstream.script = [WRONG]
    assert has_schema(await hall.call("pay", {}))


async def test_own_tools_on_a_list_from_before_a_restart_can_be_called_after_it() -> None:
    wide = [{"name": f"do{number}", "description": "d" * 300, "inputSchema": WIDE} for number in range(200)]
    # No client has listed yet, so the choice of auto is open.
    hall = bare(ListingMode.AUTO, *wide)
    assert await hall.call("call_tool", {"name": "pay", "args": {"amount": 1}}) is DONE
    assert told(await hall.call("expandSchema", {"toolName": "pay"}))["content"]
    # A tool of the server's is the server's, as long as that is so.
    hall = bare(ListingMode.AUTO, *wide, *THEIRS)
    assert await hall.call("call_tool", {"amount": 1}) is DONE
    assert hall.sent()[-1][1] == "call_tool"


# Arguments in the dialect of a client.


@pytest.mark.parametrize("mode", ListingMode)
async def test_what_a_strict_client_writes_arrives_as_the_tools_own_schema_wants_it(
    mode: ListingMode,
) -> None:
    schema = {
        "type": "object",
        "properties": {"to": {"type": "string"}, "note": {"type": "string"}, "extra": {"type": "object"}},
        "required": ["to"],
    }
    hall = Hall(mode, clients=KnownClients(dialects={"strict": Dialect.OPENAI}))
    hall.harness.offer("bank", ItemKind.TOOLS, {"name": "send", "inputSchema": schema})
    written = {"to": "me", "note": None, "extra": '{"deep":[1]}'}
    await hall.call("bank_send", written, client="strict")
    await hall.wrapped("bank_send", written, client="strict")
    meant = {"to": "me", "extra": {"deep": [1]}}
    assert [json.loads(given) for _, _, given in hall.sent()] == [meant, meant]
    # What is right already, and what other clients write, arrives byte for byte.
    await hall.call("bank_send", meant, client="strict")
    await hall.call("bank_send", written)
    assert [given for _, _, given in hall.sent()[2:]] == [
        json.dumps(meant).encode(),
        json.dumps(written).encode(),
    ]


@pytest.mark.parametrize("arguments", [None, [], "x", 5, {"a": {"b": None}}])
async def test_arguments_of_any_kind_pass_in_every_dialect(arguments: Any) -> None:
    for dialect in Dialect:
        hall = Hall(clients=KnownClients(dialect=dialect))
        assert await hall.call("bank_pay", arguments) is DONE
