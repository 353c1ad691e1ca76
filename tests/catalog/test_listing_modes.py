"""What tools/list shows in each mode, to whom, and that its bytes stay as they are."""

import json
from typing import Any

import pytest

from headgate.catalog.listing_variant import KnownClients, ListingContext
from headgate.catalog.tool_dialects import Dialect
from headgate.domain.identity import Identity
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import Curation, ListingMode
from headgate.protocol.protocol_version import Era
from headgate.search.token_counter import count_tokens
from tests.catalog.sample_catalog import SAMPLING, InMemoryNameOwners, catalog_of, target
from tests.catalog.sample_listings import (
    ONE,
    OWN_TOOLS,
    InMemoryListingState,
    ListingFixture,
    request_of,
    session,
    stateless,
    wordy,
)

EXPAND = "expandSchema"
FEW = {"bank": [wordy("pay"), wordy("look")], "shop": [wordy("buy")]}
SOME = {"bank": [wordy(f"pay{number}", 200) for number in range(12)], "shop": [wordy("buy", 200)]}
MANY = {f"server{number}": [wordy(f"do{one}") for one in range(20)] for number in range(10)}


def array_tokens(pages: list[bytes]) -> int:
    (page,) = pages
    return count_tokens(page[page.index(b"[") :])


# Each mode.


async def test_full_shows_every_definition_byte_for_byte() -> None:
    stage = ListingFixture(ListingMode.FULL, FEW)
    (page,) = await stage.pages()
    for server, tools in FEW.items():
        for tool in tools:
            name = json.loads(tool)["name"]
            assert tool.replace(f'"{name}"'.encode(), f'"{server}_{name}"'.encode(), 1) in page
    assert await stage.names() == ["bank_pay", "bank_look", "shop_buy"]


async def test_slim_shows_every_tool_in_fewer_words_behind_what_expands_it() -> None:
    stage = ListingFixture(ListingMode.SLIM, SOME)
    listed = await stage.listed()
    assert [tool["name"] for tool in listed] == [
        EXPAND,
        *(f"bank_pay{number}" for number in range(12)),
        "shop_buy",
    ]
    for tool in listed[1:]:
        whole = stage.definition(tool["name"])
        assert len(json.dumps(tool)) < len(whole) / 2
        assert tool["inputSchema"]["type"] == "object"
        assert set(json.loads(whole)["inputSchema"]["required"]) <= set(tool["inputSchema"]["properties"])
    assert not stage.tool_listings.shows_full_schemas(request_of(ONE))


async def test_budget_shows_no_more_than_it_is_allowed_and_the_rest_can_be_found() -> None:
    for budget in (500, 1000, 3000):
        stage = ListingFixture(ListingMode.BUDGET, MANY, budget_tokens=budget)
        pages = await stage.pages()
        assert array_tokens(pages) <= budget
        assert (await stage.names())[:2] == OWN_TOOLS[:2]
        advice = await stage.tool_listings.instructions(ONE)
        left = 200 - sum(name not in OWN_TOOLS for name in await stage.names())
        assert f"{left} more tools are not listed" in advice


@pytest.mark.parametrize("mode", ListingMode)
async def test_every_tool_can_be_called_in_every_mode_listed_or_not(mode: ListingMode) -> None:
    stage = ListingFixture(mode, MANY)
    await stage.names()
    for server, tools in MANY.items():
        for tool in tools:
            name = json.loads(tool)["name"]
            assert target(stage.catalog, f"{server}_{name}") == (server, name)


@pytest.mark.parametrize("mode", ListingMode)
async def test_no_name_is_listed_twice(mode: ListingMode) -> None:
    for servers in (FEW, SOME, MANY):
        names = await ListingFixture(mode, servers).names()
        assert len(names) == len(set(names))


@pytest.mark.parametrize("mode", ListingMode)
async def test_without_any_tool_a_listing_is_short(mode: ListingMode) -> None:
    names = await ListingFixture(mode, {"bank": []}).names()
    assert names == {ListingMode.SEARCH: OWN_TOOLS, ListingMode.DYNAMIC: OWN_TOOLS[:1]}.get(mode, [])


# What auto comes to be.


@pytest.mark.parametrize(
    ("servers", "mode", "own"),
    [(FEW, ListingMode.FULL, []), (SOME, ListingMode.SLIM, [EXPAND]), (MANY, ListingMode.BUDGET, OWN_TOOLS)],
)
async def test_auto_is_the_fullest_mode_that_fits_and_says_so(
    servers: dict[str, list[bytes]], mode: ListingMode, own: list[str]
) -> None:
    stage = ListingFixture(ListingMode.AUTO, servers)
    names = await stage.names()
    assert [name for name in names if name in OWN_TOOLS] == own
    assert f"Listing: {mode} (auto)." in await stage.tool_listings.instructions(ONE)
    assert [shown.mode for shown in stage.tool_listings.report()] == [mode]
    assert stage.tool_listings.shows_full_schemas(request_of(ONE)) is (mode is ListingMode.FULL)


async def test_auto_in_full_is_the_bytes_of_full() -> None:
    assert (
        await ListingFixture(ListingMode.AUTO, FEW).pages()
        == await ListingFixture(ListingMode.FULL, FEW).pages()
    )


@pytest.mark.parametrize(
    ("client", "most"),
    [("cursor-vscode", 40), ("Windsurf", 100), ("Visual Studio Code", 128), ("claude-ai", None)],
)
async def test_auto_shows_a_client_no_more_tools_than_it_can_handle(client: str, most: int | None) -> None:
    servers = {"s": [wordy(f"do{number}", 0) for number in range(200)]}
    stage = ListingFixture(ListingMode.AUTO, servers, budget_tokens=1_000_000)
    names = await stage.names(session("one", client=client))
    assert len(names) == (most or 200)
    assert names[:3] == (OWN_TOOLS if most else ["s_do0", "s_do1", "s_do2"])
    # In a mode that was asked for, nothing is held back.
    for mode in (ListingMode.FULL, ListingMode.SLIM):
        assert len(await stage.names(session("two", client=client, mode=mode))) >= 200


# Which mode is meant.


async def test_the_path_wins_over_the_key_and_that_over_the_name_and_that_over_the_gateway() -> None:
    stage = ListingFixture(ListingMode.DYNAMIC, FEW, clients=KnownClients({"my-*": ListingMode.SEARCH}))
    key = Identity(principal="alice", listing=ListingMode.SLIM)

    def listing_context(
        caller: Identity, client: str = "", mode: ListingMode | None = None
    ) -> ListingContext:
        return ListingContext(era=Era.STATELESS, caller=caller, client=client, mode=mode)

    for who, mode in (
        (listing_context(Identity()), ListingMode.DYNAMIC),
        (listing_context(Identity(), "My-Agent"), ListingMode.SEARCH),
        (listing_context(key, "my-agent"), ListingMode.SLIM),
        (listing_context(key, "my-agent", ListingMode.FULL), ListingMode.FULL),
        (listing_context(Identity(), "my-agent", ListingMode.FULL), ListingMode.FULL),
        (listing_context(Identity(), "other"), ListingMode.DYNAMIC),
    ):
        assert stage.tool_listings.mode_for(who) is mode
    assert await stage.names(listing_context(key, "my-agent", ListingMode.FULL)) == [
        "bank_pay",
        "bank_look",
        "shop_buy",
    ]
    assert await stage.names(listing_context(key, "my-agent")) == [
        EXPAND,
        "bank_pay",
        "bank_look",
        "shop_buy",
    ]
    assert await stage.names(listing_context(Identity(), "my-agent")) == OWN_TOOLS
    assert await stage.names(listing_context(Identity())) == OWN_TOOLS[:1]


async def test_what_a_client_finds_is_added_to_its_list_only_where_that_grows() -> None:
    stage = ListingFixture(ListingMode.FULL, FEW)
    for mode in ListingMode:
        assert stage.tool_listings.is_dynamic(request_of(session("one", mode=mode))) is (
            mode is ListingMode.DYNAMIC
        )


def test_the_first_pattern_that_fits_a_name_decides_whatever_its_letters_case() -> None:
    clients = KnownClients(
        {"cursor*": ListingMode.SLIM, "*": ListingMode.SEARCH}, {"GEMINI-*": Dialect.OPENAI}, Dialect.PLAIN
    )
    assert clients.mode("Cursor-VSCode") is ListingMode.SLIM
    assert clients.mode("zed") is ListingMode.SEARCH
    assert clients.mode("") is ListingMode.SEARCH
    assert clients.dialect("gemini-cli") is Dialect.OPENAI
    # What the operator wants for all others wins over what a name says.
    assert clients.dialect("anybody") is Dialect.PLAIN
    assert KnownClients().mode("cursor") is None


def test_clients_that_call_themselves_something_new_every_time_are_known_all_the_same() -> None:
    clients = KnownClients(dialects={"x*7": Dialect.GEMINI})
    for number in range(5000):
        expected = Dialect.GEMINI if number % 10 == 7 else Dialect.PLAIN
        assert clients.dialect(f"x{number}") is expected


@pytest.mark.parametrize("client", ["", "[", "[!", "*", "?" * 200, "\\", "\u0130stanbul", "a\nb"])
def test_any_name_of_a_client_is_taken(client: str) -> None:
    clients = KnownClients({"[": ListingMode.FULL, "**[a": ListingMode.SLIM})
    clients.mode(client)
    clients.most_tools(client)
    assert clients.dialect(client) in Dialect


# The dialect.


async def test_a_client_is_served_its_dialect_in_every_mode_and_the_report_says_what_was_changed() -> None:
    optional = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
    tool = json.dumps({"name": "pay", "inputSchema": {**optional, "required": ["a"]}}).encode()
    for mode in (ListingMode.AUTO, ListingMode.FULL, ListingMode.SLIM, ListingMode.BUDGET):
        stage = ListingFixture(
            mode, {"bank": [tool]}, clients=KnownClients(dialects={"strict": Dialect.OPENAI})
        )
        plain, strict = ONE, session("two", client="strict")
        by_name = {tool["name"]: tool for tool in await stage.listed(strict)}
        assert by_name["bank_pay"]["inputSchema"]["additionalProperties"] is False
        assert sorted(by_name["bank_pay"]["inputSchema"]["required"]) == ["a", "b"]
        assert "additionalProperties" not in (await stage.listed(plain))[-1]["inputSchema"]
        (report,) = [shown for shown in stage.tool_listings.report() if "openai" in shown.listing]
        assert list(report.adapted) == ["bank_pay"]
        assert report.adapted["bank_pay"]


async def test_own_tools_and_what_was_found_are_in_the_dialect_too() -> None:
    clients = KnownClients(dialect=Dialect.OPENAI)
    for mode in (ListingMode.SEARCH, ListingMode.DYNAMIC):
        for tool in await ListingFixture(mode, FEW, clients=clients).listed():
            assert tool["inputSchema"]["additionalProperties"] is False


async def test_a_budget_holds_in_every_dialect() -> None:
    for dialect in Dialect:
        for budget in (500, 1000, 3000):
            stage = ListingFixture(
                ListingMode.BUDGET, MANY, budget_tokens=budget, clients=KnownClients(dialect=dialect)
            )
            assert array_tokens(await stage.pages()) <= budget


# The bytes stay as they are.


@pytest.mark.parametrize("mode", ListingMode)
@pytest.mark.parametrize("servers", [FEW, SOME, MANY], ids=["few", "some", "many"])
async def test_a_listing_is_the_same_bytes_in_every_call_and_after_a_restart(
    mode: ListingMode, servers: dict[str, list[bytes]]
) -> None:
    owners, memory, ranks = (
        InMemoryNameOwners(),
        InMemoryListingState(),
        {("server3", "do7"): 0, ("bank", "pay3"): 1},
    )
    listings = []
    for _ in range(2):
        catalog = catalog_of(*servers, owners=owners, page_bytes=8_000)
        stage = ListingFixture(mode, servers, catalog=catalog, memory=memory, ranks=ranks, page_bytes=8_000)
        for listing_context in (ONE, stateless("local"), session("two", SAMPLING)):
            first = await stage.pages(listing_context)
            assert await stage.pages(listing_context) == first
            listings.append(first)
        assert stage.tool_listings.changes.total == 0
    assert listings[:3] == listings[3:]


@pytest.mark.parametrize("mode", ListingMode)
async def test_servers_that_answer_in_another_order_are_listed_in_that_of_the_configuration(
    mode: ListingMode,
) -> None:
    one, other = ListingFixture(mode, MANY), ListingFixture(mode, {})
    other.catalog.set_servers(list(MANY))
    for server in reversed(MANY):
        other.catalog.replace_listing(server, ItemKind.TOOLS, MANY[server])
    assert await one.pages() == await other.pages()


async def test_a_change_of_one_server_leaves_the_words_of_the_others_as_they_are() -> None:
    stage = ListingFixture(ListingMode.SLIM, SOME)
    before = {tool["name"]: tool for tool in await stage.listed()}
    stage.catalog.replace_listing("shop", ItemKind.TOOLS, [wordy("buy", 300), wordy("sell", 300)])
    after = {tool["name"]: tool for tool in await stage.listed()}
    assert after.keys() - before.keys() == {"shop_sell"}
    assert all(after[name] == before[name] for name in before if name != "shop_buy")


async def test_a_long_listing_comes_in_pages_with_every_name_once() -> None:
    for mode in (ListingMode.FULL, ListingMode.SLIM, ListingMode.AUTO):
        stage = ListingFixture(mode, MANY, page_bytes=4_000, budget_tokens=1_000_000)
        names = [name for name in await stage.names() if name not in OWN_TOOLS]
        assert names == [f"{server}_do{number}" for server in MANY for number in range(20)]
        assert len(await stage.pages()) > 5


# What is said once.


async def test_what_the_tools_of_a_server_repeat_is_said_once_in_the_instructions() -> None:
    repeated = "Every call is written into the ledger of the bank and cannot be undone by anybody."

    def banking(name: str) -> bytes:
        definition: dict[str, Any] = json.loads(wordy(name, 0))
        definition["description"] += repeated
        return json.dumps(definition).encode()

    servers = {"bank": [banking(f"act{number}") for number in range(10)]}
    stage = ListingFixture(ListingMode.SLIM, servers)
    assert "bank: " in await stage.tool_listings.instructions(ONE)
    assert "ledger" in await stage.tool_listings.instructions(ONE)
    assert all("ledger" not in tool.get("description", "") for tool in await stage.listed())
    # Where every tool says it, the instructions do not.
    assert await ListingFixture(ListingMode.FULL, servers).tool_listings.instructions(ONE) == ""


@pytest.mark.parametrize("mode", ListingMode)
async def test_instructions_say_how_to_reach_what_is_not_shown(mode: ListingMode) -> None:
    stage = ListingFixture(mode, MANY)
    names, advice = await stage.names(), await stage.tool_listings.instructions(ONE)
    reach = {
        ListingMode.FULL: [],
        # These tools have nothing nested, so they are shown whole.
        ListingMode.PARTITIONED: [],
        ListingMode.SLIM: [EXPAND],
        ListingMode.SEARCH: ["retrieve_tools", "call_tool"],
        ListingMode.DYNAMIC: ["retrieve_tools"],
        ListingMode.BUDGET: OWN_TOOLS,
        ListingMode.AUTO: OWN_TOOLS,
    }[mode]
    assert all(tool in advice and tool in names for tool in reach)
    assert len(advice) < 5_000


async def test_a_view_that_was_in_the_making_when_what_it_is_made_of_changed_is_made_again() -> None:
    stage = ListingFixture(ListingMode.BUDGET, {})
    counted: list[bytes] = []

    def count(text: bytes) -> int:
        if not counted:
            # A reload, while the first view is made in another thread.
            stage.catalog.curate({"bank": Curation(ListingMode.SEARCH)})
            stage.tool_listings.clear_cache()
        counted.append(text)
        return count_tokens(text)

    stage = ListingFixture(ListingMode.BUDGET, FEW, count=count)
    assert await stage.names() == [*OWN_TOOLS, "shop_buy"]
