"""The tools that read large results, on every kind of list."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec import Raw

from headgate.catalog.catalog import Catalog
from headgate.catalog.expand_schema import ExpandableTools, ExpandSchema
from headgate.catalog.listing_builder import ListingBuilder
from headgate.catalog.listing_changes import ListingChangeLog
from headgate.catalog.listing_variant import KnownClients
from headgate.catalog.own_tools import OwnToolDefinition
from headgate.catalog.tool_dialects import Dialect
from headgate.catalog.tool_listings import ToolListings
from headgate.catalog.tool_pool import ToolPools
from headgate.domain.identity import LOCAL_IDENTITY, everything_visible
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import Curation, ListingMode
from headgate.domain.mcp_request import McpRequest
from headgate.results.tools import DEFINITIONS, NAMES, STUBS, parse_read_request
from headgate.search.token_counter import count_tokens
from tests.catalog.sample_catalog import InMemoryNameOwners, tool
from tests.catalog.sample_listings import (
    ONE,
    OWN_TOOLS,
    PAGE_BYTES,
    InMemoryListingState,
    listed_by,
    pages_by,
    request_of,
    session,
    stateless,
    wordy,
)
from tests.delivery.scripted_upstream import Clock

READERS = tuple(OwnToolDefinition(name, DEFINITIONS[name], STUBS[name]) for name in NAMES)
EXPAND = "expandSchema"
FEW = {"bank": [wordy("pay"), wordy("look")]}
MANY = {f"server{number}": [wordy(f"do{one}") for one in range(20)] for number in range(10)}


class ReaderListingFixture:
    """A catalog with the tools that each server has and those that read results, shown in one mode."""

    def __init__(
        self,
        mode: ListingMode,
        servers: Mapping[str, Sequence[bytes]],
        *,
        prefixed: bool = True,
        budget_tokens: int = 3000,
        clients: KnownClients | None = None,
        readers: Sequence[OwnToolDefinition] = READERS,
    ) -> None:
        self.catalog = catalog = Catalog(
            name_limit=60,
            prefixed=prefixed,
            page_bytes=PAGE_BYTES,
            visible=everything_visible,
            owners=InMemoryNameOwners(),
            readers=readers,
        )
        catalog.set_servers(tuple(servers))
        for server, tools in servers.items():
            catalog.replace_listing(server, ItemKind.TOOLS, tools)
        views = ListingBuilder(
            catalog,
            count_tokens,
            budget_tokens=budget_tokens,
            page_bytes=PAGE_BYTES,
            ranks=dict,
            readers=readers,
        )
        self.tool_listings = ToolListings(
            mode,
            catalog,
            ToolPools(15, Clock()),
            views,
            clients or KnownClients(),
            ListingChangeLog(InMemoryListingState(), Clock()),
            page_bytes=PAGE_BYTES,
            reserved=prefixed,
        )

    async def listed(self, **client: Any) -> dict[str, Any]:
        """Every tool on the list, by its name and in its order."""
        tools = await listed_by(self.tool_listings, session("one", **client) if client else ONE)
        names = [tool["name"] for tool in tools]
        assert len(names) == len(set(names))
        return dict(zip(names, tools, strict=True))

    async def names(self, **client: Any) -> list[str]:
        return list(await self.listed(**client))

    async def tokens(self) -> int:
        (page,) = await pages_by(self.tool_listings)
        return count_tokens(page[page.index(b"[") :])


def stub(name: str) -> Any:
    return json.loads(STUBS[name])


def whole(name: str) -> Any:
    return json.loads(DEFINITIONS[name])


# Each mode.


async def test_in_full_they_are_listed_whole_behind_the_tools_of_the_servers() -> None:
    stage = ReaderListingFixture(ListingMode.FULL, FEW)
    for listing_context in (ONE, stateless("alice")):
        (page,) = await pages_by(stage.tool_listings, listing_context)
        assert b",".join([*(DEFINITIONS[name] for name in NAMES)]) in page
    assert await stage.names() == ["bank_pay", "bank_look", *NAMES]
    assert stage.tool_listings.lists_result_readers(request_of(ONE))
    # A client that lists them has seen everything whole.
    assert stage.tool_listings.shows_full_schemas(request_of(ONE))


async def test_in_slim_little_is_said_of_them_before_the_tools_of_the_servers() -> None:
    stage = ReaderListingFixture(ListingMode.SLIM, FEW)
    listed = await stage.listed()
    assert list(listed) == [EXPAND, *NAMES, "bank_pay", "bank_look"]
    assert [listed[name] for name in NAMES] == [stub(name) for name in NAMES]
    assert stage.tool_listings.lists_result_readers(request_of(ONE))


@pytest.mark.parametrize("budget", [200, 500, 800, 1200, 3000, 10_000])
async def test_a_budget_is_kept_with_them_and_a_small_one_leaves_them_to_call_tool(budget: int) -> None:
    stage = ReaderListingFixture(ListingMode.BUDGET, MANY, budget_tokens=budget)
    names = await stage.names()
    assert await stage.tokens() <= budget
    shown = [name for name in names if name in NAMES]
    # All of them or none: who knows one looks for the others.
    assert shown in ([], list(NAMES))
    assert stage.tool_listings.lists_result_readers(request_of(ONE)) is bool(shown)
    # No more than a quarter of it is for them.
    assert bool(shown) is (budget >= 1200)
    assert shown or stage.tool_listings.lists_call_tool(request_of(ONE))
    assert len(set(names) - {*OWN_TOOLS, *NAMES}) > budget // 150


async def test_in_search_mode_they_are_called_by_call_tool() -> None:
    stage = ReaderListingFixture(ListingMode.SEARCH, FEW)
    assert await stage.names() == OWN_TOOLS
    assert not stage.tool_listings.lists_result_readers(request_of(ONE))
    assert stage.tool_listings.lists_call_tool(request_of(ONE))


async def test_in_dynamic_mode_they_are_on_the_list() -> None:
    stage = ReaderListingFixture(ListingMode.DYNAMIC, FEW)
    listed = await stage.listed()
    assert list(listed) == ["retrieve_tools", *NAMES]
    assert listed["proxy_read"] == stub("proxy_read")
    assert stage.tool_listings.lists_result_readers(request_of(ONE))


async def test_auto_is_full_with_all_of_them_where_that_fits() -> None:
    stage = ReaderListingFixture(ListingMode.AUTO, FEW)
    assert await pages_by(stage.tool_listings) == await pages_by(
        ReaderListingFixture(ListingMode.FULL, FEW).tool_listings
    )
    assert stage.tool_listings.lists_result_readers(request_of(ONE))


@pytest.mark.parametrize(("number", "budget"), [(3, 500), (6, 800), (20, 800)])
async def test_a_small_budget_shows_the_tools_of_the_servers_as_if_there_were_none_of_them(
    number: int, budget: int
) -> None:
    servers = {"bank": [wordy(f"pay{one}") for one in range(number)]}
    stage = ReaderListingFixture(ListingMode.AUTO, servers, budget_tokens=budget)
    assert (
        await stage.listed()
        == await ReaderListingFixture(ListingMode.AUTO, servers, budget_tokens=budget, readers=()).listed()
    )
    # Neither they nor call_tool are listed; by their names they can be called anyway.
    assert not stage.tool_listings.lists_result_readers(request_of(ONE))
    assert not stage.tool_listings.lists_call_tool(request_of(ONE))
    assert stage.tool_listings.serves_gateway_tools(request_of(ONE, "proxy_read"))


async def test_before_anybody_has_listed_they_are_taken_for_listed() -> None:
    assert ReaderListingFixture(ListingMode.AUTO, MANY).tool_listings.lists_result_readers(request_of(ONE))
    assert not ReaderListingFixture(ListingMode.AUTO, MANY, readers=()).tool_listings.lists_result_readers(
        request_of(ONE)
    )


@pytest.mark.parametrize("mode", ListingMode)
async def test_where_they_are_not_wanted_they_are_on_no_list(mode: ListingMode) -> None:
    for servers in (FEW, MANY):
        stage = ReaderListingFixture(mode, servers, readers=())
        assert not set(await stage.names()) & set(NAMES)
        assert not stage.tool_listings.lists_result_readers(request_of(ONE))


@pytest.mark.parametrize("servers", [FEW, MANY])
@pytest.mark.parametrize("readers", [READERS, ()])
@pytest.mark.parametrize("mode", ListingMode)
async def test_what_is_known_of_a_clients_list_is_what_is_on_it(
    mode: ListingMode, readers: Sequence[OwnToolDefinition], servers: Mapping[str, Sequence[bytes]]
) -> None:
    stage = ReaderListingFixture(mode, servers, readers=readers)
    names = await stage.names()
    assert stage.tool_listings.lists_result_readers(request_of(ONE)) is ("proxy_read" in names)
    assert stage.tool_listings.lists_call_tool(request_of(ONE)) is ("call_tool" in names)
    assert stage.tool_listings.lists_search_tool(request_of(ONE)) is ("retrieve_tools" in names)


@pytest.mark.parametrize("mode", ListingMode)
async def test_where_there_is_nothing_to_call_there_is_no_result_to_read(mode: ListingMode) -> None:
    names = await ReaderListingFixture(mode, {"bank": []}).names()
    few = {ListingMode.SEARCH: OWN_TOOLS, ListingMode.DYNAMIC: ["retrieve_tools", *NAMES]}
    assert names == few.get(mode, [])


async def test_a_client_is_shown_no_more_tools_than_it_can_handle_with_them() -> None:
    servers = {"s": [wordy(f"do{number}", 0) for number in range(38)]}
    stage = ReaderListingFixture(ListingMode.AUTO, servers, budget_tokens=1_000_000)
    assert len(await stage.names(client="claude-ai")) == 38 + len(NAMES)
    assert len(await stage.names(client="cursor-vscode")) <= 40


async def test_tools_of_one_server_that_are_left_to_search_bring_the_stubs() -> None:
    stage = ReaderListingFixture(ListingMode.FULL, {"bank": [tool("pay")], "shop": [tool("buy")]})
    stage.catalog.curate({"shop": Curation(ListingMode.SEARCH)})
    listed = await stage.listed()
    assert list(listed) == [*OWN_TOOLS, *NAMES, "bank_pay"]
    assert listed["proxy_filter"] == stub("proxy_filter")


# Names.


async def test_where_names_are_reserved_no_server_has_one_of_them() -> None:
    stage = ReaderListingFixture(ListingMode.FULL, {"proxy": [tool("filter"), tool("other")]})
    names = await stage.names()
    assert len(names) == len(NAMES) + 2
    assert names[0].startswith("proxy_filter_")
    assert "proxy_other" in names
    for name in NAMES:
        assert stage.tool_listings.serves_gateway_tools(request_of(ONE, name))


async def test_without_a_prefix_a_servers_own_tool_comes_before_one_of_them_in_full() -> None:
    stage = ReaderListingFixture(
        ListingMode.FULL, {"bank": [tool("proxy_filter", "theirs"), tool("pay")]}, prefixed=False
    )
    listed = await stage.listed()
    assert list(listed) == ["proxy_filter", "pay", *(name for name in NAMES if name != "proxy_filter")]
    assert listed["proxy_filter"]["description"] == "theirs"
    assert not stage.tool_listings.serves_gateway_tools(request_of(ONE, "proxy_filter"))
    assert stage.tool_listings.serves_gateway_tools(request_of(ONE, "proxy_search"))


@pytest.mark.parametrize("mode", [ListingMode.FULL, ListingMode.AUTO])
async def test_a_server_whose_tools_have_all_the_names_leaves_none_of_them(mode: ListingMode) -> None:
    stage = ReaderListingFixture(mode, {"bank": [tool(name, "theirs") for name in NAMES]}, prefixed=False)
    listed = await stage.listed()
    assert [one["description"] for one in listed.values()] == ["theirs"] * len(NAMES)
    assert not stage.tool_listings.lists_result_readers(request_of(ONE))


async def test_a_tool_of_the_same_name_is_not_taken_for_one_of_them() -> None:
    stage = ReaderListingFixture(
        ListingMode.FULL, {"bank": [tool("proxy_read", "theirs")]}, prefixed=False, readers=()
    )
    assert await stage.names() == ["proxy_read"]
    assert not stage.tool_listings.lists_result_readers(request_of(ONE))


@pytest.mark.parametrize("mode", [ListingMode.SLIM, ListingMode.DYNAMIC, ListingMode.SEARCH])
async def test_elsewhere_the_name_means_the_gateways_own(mode: ListingMode) -> None:
    stage = ReaderListingFixture(
        mode, {"bank": [tool("proxy_filter", "theirs"), wordy("pay", 400)]}, prefixed=False
    )
    listed = await stage.listed()
    assert listed.get("proxy_filter", stub("proxy_filter")) == stub("proxy_filter")
    assert stage.tool_listings.serves_gateway_tools(request_of(ONE, "proxy_filter"))


# Dialects.


@pytest.mark.parametrize("dialect", [one for one in Dialect if one is not Dialect.PLAIN])
@pytest.mark.parametrize("mode", [ListingMode.FULL, ListingMode.SLIM])
async def test_what_a_client_writes_by_the_schema_of_its_dialect_is_understood(
    mode: ListingMode, dialect: Dialect
) -> None:
    stage = ReaderListingFixture(mode, FEW, clients=KnownClients(dialects={"odd": dialect}))
    listed = await stage.listed(client="odd")
    for name in NAMES:
        schema = listed[name]["inputSchema"]
        given = {argument: example(argument, kind) for argument, kind in schema["properties"].items()}
        made = parse_read_request(name, {"arguments": Raw(json.dumps(given).encode())}, 100)
        assert made.cache_id == "0a"
        # Where every argument must be given, null is what is left out.
        bare = dict.fromkeys(schema.get("required", []))
        needed = {
            argument: example(argument, schema["properties"][argument])
            for argument in ("cache_id", "fields", "pattern", "sql")
            if argument in schema["properties"]
        }
        made = parse_read_request(name, {"arguments": Raw(json.dumps(bare | needed).encode())}, 100)
        assert bytes(made.arguments) == b"{}"


def example(argument: str, kind: dict[str, Any]) -> Any:
    """A value that the schema allows."""
    told = {"cache_id": "0a", "tool": "t", "pattern": "a", "path": "a", "sql": "SELECT 1"}
    if argument in told:
        return told[argument]
    kind = kind["anyOf"][0] if "anyOf" in kind else kind
    kinds = kind["type"] if isinstance(kind["type"], list) else [kind["type"]]
    if words := [word for word in kind.get("enum", []) if word is not None]:
        return words[0]
    if argument == "arguments":
        return "{}" if "string" in kinds else {}
    values = {"array": ["a"], "integer": 1, "number": 0.5, "boolean": True, "string": "a"}
    return next(values[one] for one in kinds if one in values)


# Expanding.


@pytest.mark.parametrize("name", NAMES)
async def test_the_whole_of_a_stub_can_be_had(name: str) -> None:
    stage = ReaderListingFixture(ListingMode.SLIM, FEW)
    expand = ExpandSchema(ExpandableTools(stage.catalog, READERS))

    async def expanded(**arguments: Any) -> str:
        params = {"arguments": Raw(json.dumps({"toolName": name, **arguments}).encode())}
        answer = await expand.run(McpRequest(caller=LOCAL_IDENTITY, name=EXPAND, params=params))
        assert isinstance(answer.result, bytes)
        words: str = json.loads(answer.result)["content"][0]["text"]
        return words

    assert json.loads(await expanded()) == whole(name)["inputSchema"]
    assert json.loads(await expanded(path=["cache_id"])) == {"type": "string"}
    assert whole(name)["description"] in await expanded(mode="docs")
