"""Contested names: the configuration order decides at the start, and from then on no tool loses its name."""

import asyncio
import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog.catalog import Catalog
from headgate.catalog.errors import PromptNotFound, ToolNotFound
from headgate.catalog.public_names import NameOwners, former_names
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import Curation
from headgate.storage.files.state_file import StateFile
from tests.catalog.sample_catalog import InMemoryNameOwners, called, catalog_of, item, public, target, tool
from tests.gateway_harness import GatewayHarness, request

OFFERS = {"big": ["two_x", "y"], "big_two": ["x", "x-", "z"], "big-two": ["x"]}
SIGNALS = "awslabs.cloudwatch-applicationsignals-mcp-server"


def starting(*servers: str, owners: NameOwners | None = None, limit: int = 60) -> Catalog:
    """A catalog of a gateway that waits for its servers."""
    catalog = catalog_of(*servers, owners=owners, limit=limit)
    catalog.hold_names()
    return catalog


def names_of(catalog: Catalog) -> dict[tuple[str, str], str]:
    return {(one.server, one.name): one.public_name for one in catalog.every_tool}


def connect(catalog: Catalog, servers: Sequence[str]) -> None:
    for server in servers:
        catalog.replace_listing(server, ItemKind.TOOLS, [tool(name) for name in OFFERS[server]])


@pytest.mark.parametrize("connected", list(permutations(OFFERS)))
def test_the_order_of_connecting_decides_nothing_before_the_first_listing(connected: tuple[str, ...]) -> None:
    catalog = starting(*OFFERS)
    connect(catalog, connected)
    catalog.settle_names()
    names = names_of(catalog)
    assert names["big", "two_x"] == "big_two_x"
    for key in (("big_two", "x"), ("big_two", "x-"), ("big-two", "x")):
        assert names[key].startswith("big_two_x_")
    assert len(set(names.values())) == len(names) == 6
    other = starting(*OFFERS)
    connect(other, list(OFFERS))
    assert names_of(other) == names


servers = st.sampled_from(["a", "a_b", "a-b", "b"])
tools = st.dictionaries(servers, st.lists(st.sampled_from(["b_c", "c", "C", "b_b_c", "b-c"]), unique=True))


@given(tools, st.permutations(["a", "a_b", "a-b", "b"]), st.permutations(["a", "a_b", "a-b", "b"]))
def test_two_machines_of_one_configuration_give_the_same_names(
    offers: dict[str, list[str]], one: list[str], other: list[str]
) -> None:
    found = []
    for connected in (one, other):
        catalog = starting("a", "a_b", "a-b", "b")
        for server in connected:
            catalog.replace_listing(server, ItemKind.TOOLS, [tool(name) for name in offers.get(server, [])])
        catalog.settle_names()
        found.append(names_of(catalog))
        assert len(set(found[-1].values())) == len(found[-1])
    assert found[0] == found[1]


def test_a_server_that_comes_after_the_first_listing_gets_the_hash(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state.json")
    catalog = starting("big", "big_two", owners=state)
    connect(catalog, ["big_two"])
    catalog.settle_names()
    connect(catalog, ["big"])
    before = names_of(catalog)
    assert before["big_two", "x"] == "big_two_x"
    assert before["big", "two_x"].startswith("big_two_x_")
    # Neither a restart nor another order of the configuration takes a name away.
    for order in (("big", "big_two"), ("big_two", "big")):
        again = starting(*order, owners=StateFile(tmp_path / "state.json"))
        connect(again, ["big", "big_two"])
        again.settle_names()
        assert names_of(again) == before


def test_a_server_that_is_added_before_another_takes_no_name_from_it() -> None:
    catalog = starting("big_two")
    connect(catalog, ["big_two"])
    catalog.settle_names()
    catalog.set_servers(["big", "big_two"])
    connect(catalog, ["big"])
    assert public(catalog, "big_two", "x") == "big_two_x"
    # Nor do tools that are new at a server.
    catalog.replace_listing("big", ItemKind.TOOLS, [tool("two_z"), tool("two_w")])
    catalog.replace_listing("big_two", ItemKind.TOOLS, [tool("z"), tool("w")])
    assert public(catalog, "big_two", "z") == "big_two_z"
    assert public(catalog, "big", "two_w") == "big_two_w"


def test_a_gateway_that_ends_before_the_first_listing_remembers_no_owner() -> None:
    owners = InMemoryNameOwners()
    connect(starting("big", "big_two", owners=owners), ["big_two"])
    assert owners.names == {}
    catalog = starting("big", "big_two", owners=owners)
    connect(catalog, ["big", "big_two"])
    assert public(catalog, "big", "two_x") == "big_two_x"


@pytest.mark.parametrize("disabled", [(), ("big",)])
def test_names_of_a_server_are_free_once_it_is_removed_not_while_it_is_disabled(
    disabled: tuple[str, ...],
) -> None:
    for kind in (ItemKind.TOOLS, ItemKind.PROMPTS):
        owners = InMemoryNameOwners()
        first = catalog_of("big", owners=owners)
        first.replace_listing("big", kind, [item(kind, "two_x")])
        second = catalog_of(owners=owners)
        second.set_servers(["big_two"], disabled)
        second.replace_listing("big_two", kind, [item(kind, "x")])
        assert (called(second, kind) == ["big_two_x"]) is (not disabled)


def test_a_tool_with_a_hash_keeps_it_when_the_server_with_its_plain_name_is_removed() -> None:
    owners = InMemoryNameOwners()
    catalog = catalog_of("big", "big_two", owners=owners)
    connect(catalog, ["big", "big_two"])
    hashed = public(catalog, "big_two", "x")
    catalog.set_servers(["big_two"])
    assert public(catalog, "big_two", "x") == hashed
    again = catalog_of("big_two", owners=owners)
    connect(again, ["big_two"])
    assert public(again, "big_two", "x") == hashed
    # What clients took for another server's tool is not suddenly this one.
    with pytest.raises(ToolNotFound):
        target(again, "big_two_x")


def test_resources_of_two_servers_are_told_apart_in_the_order_of_the_configuration() -> None:
    for connected in (("a", "b"), ("b", "a")):
        catalog = starting("a", "b")
        for server in connected:
            catalog.replace_listing(server, ItemKind.RESOURCES, [item(ItemKind.RESOURCES, "file:///x")])
        catalog.settle_names()
        assert called(catalog, ItemKind.RESOURCES) == ["file:///x", "headgate://b/file:///x"]
    late = starting("a", "b")
    late.replace_listing("b", ItemKind.RESOURCES, [item(ItemKind.RESOURCES, "file:///x")])
    late.settle_names()
    late.replace_listing("a", ItemKind.RESOURCES, [item(ItemKind.RESOURCES, "file:///x")])
    assert called(late, ItemKind.RESOURCES) == ["headgate://a/file:///x", "file:///x"]


# Calls while servers start.


async def test_a_call_by_a_name_that_an_earlier_server_may_get_waits_until_names_are_settled() -> None:
    harness = GatewayHarness("big", "big_two")
    harness.catalog.hold_names()
    connect(harness.catalog, ["big_two"])
    calling = asyncio.ensure_future(
        harness.upstream_calls.call_upstream_tool(request("tools/call", "big_two_x"))
    )
    # No server may get this name any more, or only one behind its owner.
    await harness.upstream_calls.call_upstream_tool(request("tools/call", "big_two:z"))
    assert not calling.done()
    connect(harness.catalog, ["big"])
    harness.catalog.settle_names()
    await calling
    assert [(call.item.server, call.item.name) for call in harness.sent] == [
        ("big_two", "z"),
        ("big", "two_x"),
    ]


async def test_a_call_does_not_wait_where_the_name_has_an_owner() -> None:
    harness = GatewayHarness("big", "big_two")
    connect(harness.catalog, ["big_two"])
    harness.catalog.hold_names()
    await harness.upstream_calls.call_upstream_tool(request("tools/call", "big_two_x"))
    assert [call.item.server for call in harness.sent] == ["big_two"]


# Names of version 0.1.0.


@pytest.mark.parametrize("kind", [ItemKind.TOOLS, ItemKind.PROMPTS])
def test_names_of_version_0_1_0_can_be_called_and_are_not_listed(kind: ItemKind) -> None:
    catalog = catalog_of("git", SIGNALS, limit=49)
    offers = {"git": ["git_status"], SIGNALS: ["list_slis", "audit_services"]}
    for server, names in offers.items():
        catalog.replace_listing(server, kind, [item(kind, name) for name in names])
    former = {
        "git_git_status": ("git", "git_status"),
        # It was first, and no other tool had its shortened name.
        "awslabs_cloudwatch_applicationsignals_mcp_server_": (SIGNALS, "list_slis"),
        "awslabs_cloudwatch_applicationsignals_mcp__ee35b4": (SIGNALS, "list_slis"),
        "awslabs_cloudwatch_applicationsignals_mcp__240178": (SIGNALS, "audit_services"),
    }
    for name, key in former.items():
        found = catalog.resolve(kind, name, LOCAL_IDENTITY)
        assert (found.server, found.name) == key
    assert not former.keys() & set(called(catalog, kind))
    missing = ToolNotFound if kind is ItemKind.TOOLS else PromptNotFound
    for name in ("git_git_statu", "awslabs_cloudwatch_applicationsignals_mcp__ee35b5"):
        with pytest.raises(missing):
            catalog.resolve(kind, name, LOCAL_IDENTITY)


def test_a_former_name_means_the_tool_that_had_it() -> None:
    # As version 0.1.0 left it: the second one was connected first.
    owners = InMemoryNameOwners()
    cut = former_names((SIGNALS, "list_slis"), 49)[0]
    owners.claim({cut: (SIGNALS, "audit_services")})
    catalog = catalog_of(SIGNALS, owners=owners, limit=49)
    catalog.replace_listing(SIGNALS, ItemKind.TOOLS, [tool("list_slis"), tool("audit_services")])
    assert target(catalog, cut) == (SIGNALS, "audit_services")
    # It names no other tool while that one is absent.
    catalog.replace_listing(SIGNALS, ItemKind.TOOLS, [tool("list_slis")])
    with pytest.raises(ToolNotFound):
        target(catalog, cut)


def test_a_former_name_that_another_tool_has_is_the_others() -> None:
    catalog = catalog_of("git", "git-git")
    catalog.replace_listing("git", ItemKind.TOOLS, [tool("git_status")])
    assert target(catalog, "git_git_status") == ("git", "git_status")
    catalog.replace_listing("git-git", ItemKind.TOOLS, [tool("status")])
    assert target(catalog, "git_git_status") == ("git-git", "status")


def test_names_of_another_limit_can_still_be_called() -> None:
    owners = InMemoryNameOwners()
    long = catalog_of(SIGNALS, owners=owners, limit=60)
    long.replace_listing(SIGNALS, ItemKind.TOOLS, [tool("list_slis")])
    (before,) = called(long, ItemKind.TOOLS)
    short = catalog_of(SIGNALS, owners=owners, limit=49)
    short.replace_listing(SIGNALS, ItemKind.TOOLS, [tool("list_slis")])
    assert called(short, ItemKind.TOOLS) != [before]
    assert target(short, before) == (SIGNALS, "list_slis")


def test_a_tool_that_is_hidden_or_renamed_has_no_former_name() -> None:
    catalog = catalog_of("git")
    catalog.replace_listing("git", ItemKind.TOOLS, [tool("git_status"), tool("git_log")])
    catalog.curate({"git": Curation(hidden=("git_log",), renamed={"git_status": "state"})})
    for name in ("git_git_status", "git_git_log"):
        with pytest.raises(ToolNotFound):
            target(catalog, name)


def test_a_name_that_was_cut_at_an_underscore_can_still_be_called() -> None:
    catalog = catalog_of("s", limit=10)
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("a")])
    catalog.curate({"s": Curation(renamed={"a": "abcdefghi_jkl"})})
    assert called(catalog, ItemKind.TOOLS) == ["abcdefghi"]
    assert target(catalog, "abcdefghi_") == ("s", "a")


def test_the_names_of_the_gateways_own_tools_are_nobodys_former_names() -> None:
    catalog = catalog_of("call", "proxy")
    catalog.replace_listing("call", ItemKind.TOOLS, [tool("tool")])
    catalog.replace_listing("proxy", ItemKind.TOOLS, [tool("proxy_filter"), tool("filter")])
    names = [one["name"] for one in map(json.loads, (one.definition for one in catalog.every_tool))]
    assert not {"call_tool", "proxy_filter"} & set(names)
    for name in ("call_tool", "proxy_filter"):
        with pytest.raises(ToolNotFound):
            target(catalog, name)
    assert target(catalog, "proxy_proxy_filter") == ("proxy", "proxy_filter")
