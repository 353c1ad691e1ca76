"""What the operator wants of a server's tools: pinned, hidden, renamed, listed in another way than others."""

import json
import logging

import pytest

from headgate.catalog.catalog import Catalog
from headgate.catalog.errors import ToolNotFound
from headgate.catalog.public_names import RESERVED, default_limit
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import Curation, ListingMode
from tests.catalog.sample_catalog import (
    SAMPLING,
    InMemoryNameOwners,
    called,
    catalog_of,
    public,
    target,
    tool,
)
from tests.catalog.sample_listings import ONE, OWN_TOOLS, ListingFixture, session, wordy

EXPAND = "expandSchema"
TOOLS = {"bank": [wordy("pay", 200), wordy("look", 200)], "shop": [wordy("buy", 200)]}
MANY = {f"server{number}": [wordy(f"do{one}") for one in range(20)] for number in range(10)}


def whole(stage: ListingFixture, listed: list[dict[str, object]]) -> set[str]:
    """The tools that are listed as their server defined them."""
    own = [one for one in listed if one["name"] not in OWN_TOOLS]
    return {str(one["name"]) for one in own if json.loads(stage.definition(str(one["name"]))) == one}


async def changed(stage: ListingFixture, curations: dict[str, Curation]) -> list[dict[str, object]]:
    """What is listed after the operator wrote something else into the file."""
    assert stage.catalog.curate(curations)
    stage.tool_listings.clear_cache()
    return await stage.listed()


# How its tools are listed.


async def test_a_server_is_listed_as_is_wanted_for_it_in_full_and_in_slim() -> None:
    for gateway, other in ((ListingMode.FULL, ListingMode.SLIM), (ListingMode.SLIM, ListingMode.FULL)):
        stage = ListingFixture(gateway, TOOLS)
        listed = await changed(stage, {"bank": Curation(other)})
        bank, shop = {"bank_pay", "bank_look"}, {"shop_buy"}
        assert whole(stage, listed) == (bank if other is ListingMode.FULL else shop)
        # A client sees short definitions, so the tool that expands them is listed.
        assert [one["name"] for one in listed] == [EXPAND, "bank_pay", "bank_look", "shop_buy"]


@pytest.mark.parametrize("mode", [ListingMode.FULL, ListingMode.SLIM, ListingMode.BUDGET, ListingMode.AUTO])
async def test_a_server_that_is_only_searched_is_not_listed_but_for_its_pins(mode: ListingMode) -> None:
    stage = ListingFixture(mode, TOOLS)
    listed = await changed(stage, {"bank": Curation(ListingMode.SEARCH)})
    assert [one["name"] for one in listed] == [*OWN_TOOLS, "shop_buy"]
    listed = await changed(stage, {"bank": Curation(ListingMode.SEARCH, pinned=("look",))})
    assert [one["name"] for one in listed] == [*OWN_TOOLS, "bank_look", "shop_buy"]
    assert "bank_look" in whole(stage, listed)
    assert target(stage.catalog, "bank_pay") == ("bank", "pay")


@pytest.mark.parametrize("mode", [ListingMode.BUDGET, ListingMode.AUTO])
async def test_a_server_of_few_words_stays_so_however_much_room_there_is(mode: ListingMode) -> None:
    stage = ListingFixture(mode, TOOLS, budget_tokens=100_000)
    listed = await changed(stage, {"bank": Curation(ListingMode.SLIM)})
    assert whole(stage, listed) == {"shop_buy"}


async def test_what_was_changed_back_is_listed_as_before() -> None:
    stage = ListingFixture(ListingMode.BUDGET, TOOLS)
    before = await stage.pages()
    await changed(stage, {"bank": Curation(ListingMode.SEARCH)})
    assert await stage.pages() != before
    await changed(stage, {})
    assert await stage.pages() == before


# Pinned.


async def test_a_pinned_tool_is_whole_in_slim_and_in_budget() -> None:
    for mode in (ListingMode.SLIM, ListingMode.BUDGET):
        stage = ListingFixture(mode, MANY, budget_tokens=1500)
        listed = await changed(stage, {"server7": Curation(pinned=("do1*",))})
        pins = {"server7_do1", *(f"server7_do1{number}" for number in range(10))}
        assert (pins & whole(stage, listed)) if mode is ListingMode.BUDGET else pins == whole(stage, listed)
    plain = await ListingFixture(ListingMode.BUDGET, MANY, budget_tokens=1500).names()
    assert "server7_do19" not in plain


async def test_pins_that_do_not_fit_are_left_to_search_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = ListingFixture(ListingMode.BUDGET, MANY, budget_tokens=500)
    caplog.set_level(logging.WARNING, "headgate")
    await changed(stage, {server: Curation(pinned=("*",)) for server in MANY})
    await stage.listed()
    (record,) = [record for record in caplog.records if "pinned" in record.message]
    (report,) = stage.tool_listings.report()
    assert (
        len(report.pins_left) + report.tools - sum(name in OWN_TOOLS for name in await stage.names()) == 200
    )
    assert record.__dict__["tools"] == list(report.pins_left[:20])


# Hidden.


@pytest.mark.parametrize("mode", ListingMode)
async def test_a_hidden_tool_is_neither_listed_nor_found_nor_called_nor_named(mode: ListingMode) -> None:
    stage = ListingFixture(mode, TOOLS)
    listed = await changed(stage, {"bank": Curation(hidden=("pay*",))})
    assert "bank_pay" not in [one["name"] for one in listed]
    for name in ("bank_pay", "bank:pay", "bank__pay"):
        with pytest.raises(ToolNotFound) as missing:
            stage.catalog.resolve(ItemKind.TOOLS, name, LOCAL_IDENTITY)
        assert "bank_pay" not in missing.value.hint
        assert stage.catalog.find(name, LOCAL_IDENTITY, PLAIN_PROFILE) is None
    assert stage.catalog.tool(("bank", "pay"), PLAIN_PROFILE) is None
    assert not stage.catalog.has(("bank", "pay"))
    assert ("bank", "pay") not in [(item.server, item.name) for item in stage.catalog.every_tool]
    assert target(stage.catalog, "bank_look") == ("bank", "look")
    # Shown again, it is called as before.
    await changed(stage, {})
    assert target(stage.catalog, "bank_pay") == ("bank", "pay")


def test_a_tool_that_appears_later_is_hidden_too_and_from_every_profile() -> None:
    catalog = catalog_of("bank")
    catalog.curate({"bank": Curation(hidden=("secret*",))})
    catalog.replace_listing("bank", ItemKind.TOOLS, [tool("pay"), tool("secret1")])
    catalog.replace_listing("bank", ItemKind.TOOLS, [tool("pay"), tool("secret2")], SAMPLING)
    for profile in (PLAIN_PROFILE, SAMPLING):
        assert called(catalog, ItemKind.TOOLS, profile) == ["bank_pay"]
    with pytest.raises(ToolNotFound):
        target(catalog, "bank_secret2")


def test_hiding_is_about_tools_and_their_names_at_the_server_alone() -> None:
    catalog = catalog_of("bank", "shop")
    catalog.replace_listing("bank", ItemKind.TOOLS, [tool("pay"), tool("Pay"), tool("pay_more")])
    catalog.replace_listing("shop", ItemKind.TOOLS, [tool("pay")])
    catalog.replace_listing("bank", ItemKind.PROMPTS, [b'{"name":"pay"}'])
    catalog.curate({"bank": Curation(hidden=("pay", "bank_pay_more"))})
    listed = called(catalog, ItemKind.TOOLS)
    assert len(listed) == 3
    assert {"bank_pay_more", "shop_pay"} < set(listed)
    assert called(catalog, ItemKind.PROMPTS) == ["bank_pay"]


# Renamed.


@pytest.mark.parametrize("mode", ListingMode)
async def test_a_renamed_tool_is_listed_and_called_by_its_new_name_alone(mode: ListingMode) -> None:
    stage = ListingFixture(mode, TOOLS, budget_tokens=100_000)
    listed = await changed(stage, {"bank": Curation(renamed={"pay": "send_money"})})
    if mode not in (ListingMode.SEARCH, ListingMode.DYNAMIC):
        assert "send_money" in [one["name"] for one in listed]
        assert "bank_pay" not in [one["name"] for one in listed]
    for name in ("send_money", "bank:pay", "bank__pay"):
        assert target(stage.catalog, name) == ("bank", "pay")


@pytest.mark.parametrize(
    ("given", "public_name"),
    [
        ("Send Money!", "send_money"),
        ("9lives", "tool_9lives"),
        ("x" * 300, "x" * 60),
        ("a" + "\u00fc" * 200 + "b", "a_b"),
    ],
)
def test_a_new_name_is_one_that_every_client_accepts(given: str, public_name: str) -> None:
    catalog = catalog_of("bank")
    catalog.curate({"bank": Curation(renamed={"pay": given})})
    catalog.replace_listing("bank", ItemKind.TOOLS, [tool("pay")])
    assert called(catalog, ItemKind.TOOLS) == [public_name]


@pytest.mark.parametrize("taken", ["shop_buy", "bank_look", *sorted(RESERVED)])
def test_a_new_name_that_another_has_gets_a_hash_and_the_other_keeps_its_own(taken: str) -> None:
    catalog = catalog_of("bank", "shop")
    catalog.replace_listing("bank", ItemKind.TOOLS, [tool("pay"), tool("look")])
    catalog.replace_listing("shop", ItemKind.TOOLS, [tool("buy")])
    catalog.curate({"bank": Curation(renamed={"pay": taken})})
    names = called(catalog, ItemKind.TOOLS)
    assert len(set(names)) == 3
    assert {"bank_look", "shop_buy"} < set(names)
    (name,) = set(names) - {"bank_look", "shop_buy"}
    assert name not in RESERVED
    assert target(catalog, name) == ("bank", "pay")


def test_two_tools_of_one_new_name_get_two_names_that_stay_theirs_after_a_restart() -> None:
    owners = InMemoryNameOwners()

    def start(*order: str) -> Catalog:
        catalog = catalog_of(*order, owners=owners)
        catalog.curate({server: Curation(renamed={"go": "run"}) for server in order})
        for server in order:
            catalog.replace_listing(server, ItemKind.TOOLS, [tool("go")])
        return catalog

    first = start("a", "b")
    names = {server: public(first, server, "go") for server in ("a", "b")}
    assert names["a"] == "run"
    assert names["b"].startswith("run_")
    again = start("b", "a")
    assert {server: public(again, server, "go") for server in ("a", "b")} == names


def test_two_tools_can_swap_their_names_and_swap_them_back() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("b")])
    for renamed, names in (({"a": "s_b", "b": "s_a"}, ["s_b", "s_a"]), ({}, ["s_a", "s_b"])):
        catalog.curate({"s": Curation(renamed=renamed)})
        assert called(catalog, ItemKind.TOOLS) == names
        # Each name leads where the list says.
        assert [target(catalog, name)[1] for name in names] == ["a", "b"]


MOVED = [
    # From one tool to another, at once, over a moment without it, and back.
    [({"t1": "foo"}, (), ["foo", "s_t2"]), ({"t2": "foo"}, (), ["s_t1", "foo"])],
    [({"t1": "foo"}, (), ["foo", "s_t2"]), ({}, (), ["s_t1", "s_t2"]), ({"t2": "foo"}, (), ["s_t1", "foo"])],
    [({"t2": "foo"}, (), ["s_t1", "foo"]), ({"t1": "foo"}, (), ["foo", "s_t2"])],
    # Its owner gets another name of the operator's.
    [({"t1": "foo"}, (), ["foo", "s_t2"]), ({"t1": "bar", "t2": "foo"}, (), ["bar", "foo"])],
    # Its owner is hidden, whether it was called so by the operator or by itself, and shown again.
    [({"t1": "foo"}, (), ["foo", "s_t2"]), ({"t1": "foo", "t2": "foo"}, ("t1",), ["foo"])],
    [({"t2": "s_t1"}, ("t1",), ["s_t1"]), ({}, (), ["s_t1", "s_t2"])],
    [({"t2": "s_t"}, ("t1",), ["s_t"]), ({"t1": "s_t"}, ("t2",), ["s_t"])],
    # Both wanted it, and then one did not any more.
    [({"t1": "foo", "t2": "foo"}, (), None), ({"t2": "foo"}, (), ["s_t1", "foo"])],
]


@pytest.mark.parametrize("steps", MOVED)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_name_of_the_operators_can_be_given_to_another_tool(
    steps: list[tuple[dict[str, str], tuple[str, ...], list[str] | None]], *, restarted: bool
) -> None:
    owners = InMemoryNameOwners()
    catalog = catalog_of("s", owners=owners)
    for renamed, hidden, names in steps:
        if restarted:
            catalog = catalog_of("s", owners=owners)
        catalog.curate({"s": Curation(hidden=hidden, renamed=renamed)})
        catalog.replace_listing("s", ItemKind.TOOLS, [tool("t1"), tool("t2")])
        assert names is None or called(catalog, ItemKind.TOOLS) == names


def test_a_name_is_given_away_though_the_server_of_its_owner_is_not_there() -> None:
    owners = InMemoryNameOwners()
    catalog = catalog_of("a", "b", owners=owners)
    catalog.curate({"a": Curation(renamed={"x": "foo"}), "b": Curation(renamed={"y": "foo"})})
    catalog.replace_listing("a", ItemKind.TOOLS, [tool("x")])
    catalog = catalog_of("b", owners=owners)
    catalog.curate({"a": Curation(renamed={"x": "foo"}), "b": Curation(renamed={"y": "foo"})})
    catalog.replace_listing("b", ItemKind.TOOLS, [tool("y")])
    # It may come back, and is still to be called so.
    assert called(catalog, ItemKind.TOOLS) != ["foo"]
    catalog.curate({"a": Curation(), "b": Curation(renamed={"y": "foo"})})
    assert called(catalog, ItemKind.TOOLS) == ["foo"]


def test_nobody_but_the_operator_gives_away_what_a_tool_is_called_by_itself() -> None:
    catalog = catalog_of("big", "big_two")
    catalog.replace_listing("big", ItemKind.TOOLS, [tool("two_list")])
    catalog.replace_listing("big_two", ItemKind.TOOLS, [tool("list")])
    hashed = public(catalog, "big_two", "list")
    for curation in (Curation(hidden=("two_list",)), Curation(renamed={"two_list": "other"})):
        catalog.curate({"big": curation})
        assert public(catalog, "big_two", "list") == hashed


# Wishes that nothing answers to.


def curation_warnings(caplog: pytest.LogCaptureFixture) -> list[tuple[str, list[str], list[str]]]:
    """What was warned of since the last time: the server, and what it should hide and rename."""
    found = [record.__dict__ for record in caplog.records if "no such tools" in record.message]
    caplog.clear()
    return [(one["server"], one["hide"], one["rename"]) for one in found]


def test_what_hides_or_renames_no_tool_is_warned_of_once_the_server_has_told_its_tools(
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog = catalog_of("bank", "shop")
    wishes = Curation(pinned=("x",), hidden=("delete_*", "pya"), renamed={"Look": "see", "pay": "send"})
    catalog.curate({"bank": wishes, "shop": wishes})
    assert curation_warnings(caplog) == []
    catalog.replace_listing("bank", ItemKind.PROMPTS, [])
    assert curation_warnings(caplog) == []
    for _ in range(2):
        catalog.replace_listing("bank", ItemKind.TOOLS, [tool("pay"), tool("look"), tool("delete_all")])
    assert curation_warnings(caplog) == [("bank", ["pya"], ["Look"])]
    catalog.curate({"bank": Curation(hidden=("pya",), renamed={"Look": "see"}), "shop": wishes})
    assert curation_warnings(caplog) == []
    catalog.curate({"bank": Curation(hidden=("pay",), renamed={"lok": "see"})})
    assert curation_warnings(caplog) == [("bank", [], ["lok"])]
    catalog.curate({"bank": Curation(hidden=("pay",), renamed={"look": "see"})})
    assert curation_warnings(caplog) == []


def test_a_tool_of_a_server_that_is_still_starting_is_waited_for_by_its_new_name() -> None:
    catalog = catalog_of("bank", "shop")
    catalog.curate({"bank": Curation(renamed={"pay": "Send Money"})})
    assert catalog.pending_server(ItemKind.TOOLS, "send_money") == "bank"
    assert catalog.pending_server(ItemKind.TOOLS, "send_moneys") is None


def test_the_same_wishes_again_are_nothing_new() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("b")])
    news: list[ItemKind] = []
    catalog.on_change(news.append)
    assert catalog.curate({"s": Curation(pinned=("a",), hidden=("b",))})
    assert not catalog.curate({"s": Curation(pinned=("a",), hidden=("b",))})
    assert news == [ItemKind.TOOLS]
    # A change of how tools are shown, not of which, is notified once their listings are rebuilt.
    assert catalog.curate({"s": Curation(hidden=("b",))})
    assert news == [ItemKind.TOOLS]


async def test_a_rename_is_news_to_those_who_see_it() -> None:
    stage = ListingFixture(ListingMode.FULL, TOOLS)
    await stage.names(ONE)
    await stage.names(session("two", mode=ListingMode.SEARCH))
    stage.catalog.curate({"bank": Curation(renamed={"pay": "send"})})
    told = stage.tool_listings.changed_groups(ItemKind.TOOLS)
    assert told is not None
    assert "one" in told
    assert "two" not in told


# Names of 64 characters, with what clients put before them.


@pytest.mark.parametrize(
    "gateway", ["headgate", "g", "a-rather-long-name-of-a-gateway-that-somebody-chose", "x" * 64]
)
def test_public_names_fit_64_characters_with_the_prefix_of_clients(gateway: str) -> None:
    limit = default_limit(gateway)
    servers = ["bank", "b" * 100, "\u00fcber", "9", "bank_two"]
    catalog = catalog_of(*servers, limit=limit)
    names = ["pay", "p" * 10_000, "p" * 10_000 + "2", "\u6771\u4eac", "", "pay!", "Pay", "9", "two_pay"]
    for server in servers:
        catalog.replace_listing(
            server,
            ItemKind.TOOLS,
            [json.dumps({"name": n, "inputSchema": {"type": "object"}}).encode() for n in names],
        )
    listed = called(catalog, ItemKind.TOOLS)
    assert len(listed) == len(set(listed)) == len(servers) * (len(names) - 1)
    prefix = f"mcp__{gateway}__"
    room = 64 if limit > 10 else len(prefix) + 10
    assert all(len(prefix + name) <= room for name in listed)
    for name, item in zip(listed, catalog.visible(PLAIN_PROFILE), strict=True):
        assert target(catalog, name) == (item.server, item.name)


# Profiles, and a single server without a prefix.


def test_what_only_some_clients_see_and_is_hidden_is_news_to_them() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("a")])
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("d")], SAMPLING)
    assert called(catalog, ItemKind.TOOLS, SAMPLING) == ["s_a", "s_d"]
    news: list[ItemKind] = []
    catalog.on_change(news.append)
    for curation, names in (
        (Curation(hidden=("d",)), ["s_a"]),
        (Curation(renamed={"d": "dig"}), ["s_a", "dig"]),
        (Curation(), ["s_a", "s_d"]),
    ):
        assert catalog.curate({"s": curation})
        assert called(catalog, ItemKind.TOOLS, SAMPLING) == names
        assert called(catalog, ItemKind.TOOLS) == ["s_a"]
    assert news == [ItemKind.TOOLS] * 3
    # A change that no client sees is not notified.
    assert catalog.curate({"s": Curation(hidden=("x",))})
    assert news == [ItemKind.TOOLS] * 3


@pytest.mark.parametrize(
    ("renamed", "names"),
    [
        ({"a": "x"}, ["x", "b", "c"]),
        # No tool takes a name that another tool has there.
        ({"a": "b"}, ["a", "b", "c"]),
        ({"a": "b", "b": "a"}, ["a", "b", "c"]),
        ({"a": "b", "b": "x"}, ["a", "x", "c"]),
        ({"a": "x", "b": "x", "c": "x"}, ["x", "b", "c"]),
        ({"nobody": "x"}, ["a", "b", "c"]),
        # In the letters that every client accepts.
        ({"a": "Send Money!", "b": "9lives", "c": "x" * 300}, ["send_money", "tool_9lives", "x" * 60]),
        ({"a": "call_tool", "b": "expandSchema"}, ["a", "b", "c"]),
    ],
)
def test_without_a_prefix_a_tool_is_renamed_unless_another_is_called_so(
    renamed: dict[str, str], names: list[str]
) -> None:
    catalog = catalog_of("s", prefixed=False)
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("b"), tool("c")])
    catalog.curate({"s": Curation(renamed=renamed)})
    assert called(catalog, ItemKind.TOOLS) == names
    assert [target(catalog, name) for name in names] == [("s", "a"), ("s", "b"), ("s", "c")]
