"""Public names: accepted by every client, never two alike, and the same after a restart."""

import re
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog.public_names import (
    HASH_LENGTH,
    RESERVED,
    allocate_names,
    default_limit,
    is_default_name,
    public_name,
    sanitise,
    server_prefix_length,
)
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import Curation
from headgate.storage.files.state_file import StateFile
from tests.catalog.real_servers import real_catalog
from tests.catalog.sample_catalog import InMemoryNameOwners, catalog_of, public, target, tool

# No double and no trailing underscore.
ALLOWED = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
SIGNALS = "awslabs.cloudwatch-applicationsignals-mcp-server"


@pytest.mark.parametrize(
    ("server", "name", "limit", "expected"),
    [
        ("my-server.com", "get/data:v1", 60, "my_server_com_get_data_v1"),
        ("MyServer", "GetData", 60, "myserver_getdata"),
        ("server", "tool", 10, "serve_tool"),
        ("", "test_tool", 60, "server_test_tool"),
        ("123server", "456tool", 60, "tool_123server_456tool"),
        ("a", "", 60, "a_tool"),
        ("a", "///", 60, "a_tool"),
        ("a--b", "c...d", 60, "a_b_c_d"),
        ("Grüße", "日本", 60, "gr_e_tool"),
        # The server part yields: common words, words that the tool repeats, the vendor, then its end.
        (SIGNALS, "list_slis", 49, "awslabs_cloudwatch_applicationsignals_list_slis"),
        (SIGNALS, "audit_service_operations", 49, "cloudwatch_applicationsi_audit_service_operations"),
        ("cloud-sql", "list_cloud_backups", 24, "sql_list_cloud_backups"),
        ("com.acme.tickets", "list_open_things", 30, "acme_tickets_list_open_things"),
        ("com.acme.tickets", "list_open_things", 24, "tickets_list_open_things"),
        ("@acme/tickets", "list_open_things", 26, "tickets_list_open_things"),
        ("mcp-server", "list_open_things", 24, "mcp_ser_list_open_things"),
        ("tickets", "list_open_things", 19, "ti_list_open_things"),
        ("a_tickets", "list_open_things", 19, "a_list_open_things"),
        # Only then the tool's name is cut.
        ("tickets", "list_open_things", 18, "ti_list_open_thing"),
        ("tickets", "list_open_things", 13, "ti_list_open"),
        ("1tickets", "list_open_things", 20, "tool_1t_list_open_th"),
        # The tool's name says it already.
        ("git", "git_status", 60, "git_status"),
        ("Git", "git-status", 60, "git_status"),
        ("git", "git", 60, "git"),
        ("git", "github_status", 60, "git_github_status"),
        ("1git", "1git_status", 60, "tool_1git_status"),
        ("mcp-server-git", "git_status", 60, "mcp_server_git_git_status"),
        ("mcp-server-git", "git_status", 24, "git_status"),
    ],
)
def test_the_names_of_the_specification(server: str, name: str, limit: int, expected: str) -> None:
    assert public_name(server, name, limit) == expected


@pytest.mark.parametrize(("gateway", "limit"), [("headgate", 49), ("x", 56), ("g" * 64, 10)])
def test_the_default_limit_leaves_room_for_the_prefix_of_the_client(gateway: str, limit: int) -> None:
    assert default_limit(gateway) == limit


words = st.one_of(
    st.text(st.sampled_from("aAb_-. 1é"), max_size=6),
    st.sampled_from(["big", "big_two", "two_x", "x", "server", "tool", "a" * 80, "a" * 81]),
    st.sampled_from(["mcp-server-git", "git_status", "git", "com.big.two", "@big/two", SIGNALS, "1two"]),
    st.lists(st.sampled_from(["mcp", "server", "git", "x" * 12, "7"]), max_size=5).map("_".join),
)
tools = st.lists(st.tuples(words, words), unique=True, max_size=12)


@given(tools, st.integers(10, 200))
def test_no_two_tools_share_a_name_and_every_name_is_allowed(
    offered: list[tuple[str, str]], limit: int
) -> None:
    names = allocate_names(offered, limit, InMemoryNameOwners())
    assert list(names) == offered
    assert len(set(names.values())) == len(names)
    for name in names.values():
        assert ALLOWED.fullmatch(name)
        assert len(name) <= limit


# A shorter one has no room for a hash behind both parts.
@given(tools, st.integers(20, 200))
def test_a_public_name_tells_whose_it_is(offered: list[tuple[str, str]], limit: int) -> None:
    for (server, own), name in allocate_names(offered, limit, InMemoryNameOwners()).items():
        # A tool whose own name is cut may be called like any other, and one that is called like its server
        # is only known by it where the key is in the letters of names.
        cut = len(sanitise(own)) > limit - len("tool_xx_") - HASH_LENGTH
        bases = {base.removeprefix("tool_") for base in (name, name[: -HASH_LENGTH - 1])}
        like_server = (sanitise(server) or "server") in bases
        assert server_prefix_length(server, name, limit) or cut or like_server


@given(words, words, st.integers(10, 200))
def test_a_tools_own_name_stays_whole_where_it_fits(server: str, tool: str, limit: int) -> None:
    name = public_name(server, tool, limit)
    own = sanitise(tool) or "tool"
    assert name == public_name(server, tool, limit)
    assert ALLOWED.fullmatch(name)
    assert len(name) <= limit
    # Two characters of the server, and what is put before a digit.
    if len(own) <= limit - len("tool_xx_"):
        assert name.endswith(own)
    assert is_default_name((server, tool), name)


@given(words, words, st.integers(10, 200), st.integers(0, 100))
def test_a_name_that_fits_is_the_same_under_a_larger_limit(
    server: str, tool: str, limit: int, more: int
) -> None:
    whole = public_name(server, tool, 10_000)
    if len(whole) <= limit:
        assert public_name(server, tool, limit) == public_name(server, tool, limit + more) == whole


@given(tools, st.integers(10, 200), st.randoms(use_true_random=False))
def test_two_machines_give_the_same_names_whatever_the_order_within_a_server(
    offered: list[tuple[str, str]], limit: int, random: Random
) -> None:
    servers = list(dict.fromkeys(server for server, _ in offered))
    listed = sorted(offered, key=lambda key: servers.index(key[0]))
    other = list(offered)
    random.shuffle(other)
    other.sort(key=lambda key: servers.index(key[0]))
    assert allocate_names(listed, limit, InMemoryNameOwners()) == allocate_names(
        other, limit, InMemoryNameOwners()
    )


def test_a_hash_leaves_the_tools_own_name_readable() -> None:
    keys = [("awslabs.x-mcp-server", "audit_service_operations"), ("other.x", "audit_service_operations")]
    owners = InMemoryNameOwners()
    owners.claim({"awslabs_x_audit_service_operations": ("gone", "tool")})
    (name, _) = allocate_names(keys, 36, owners).values()
    assert name.startswith("x_audit_service_operations_")
    assert len(name) == len("x_audit_service_operations_") + HASH_LENGTH


@given(tools, st.integers(10, 200), st.randoms(use_true_random=False))
def test_names_are_the_same_after_a_restart_in_another_order(
    offered: list[tuple[str, str]], limit: int, random: Random
) -> None:
    owners = InMemoryNameOwners()
    before = allocate_names(offered, limit, owners)
    again = list(offered)
    random.shuffle(again)
    assert allocate_names(again, limit, owners) == before


def offer_in_order(
    owners: StateFile, configured: Sequence[str], connected: Sequence[str]
) -> dict[tuple[str, str], str]:
    catalog = catalog_of(*configured, owners=owners)
    offers = {"big": "two_x", "big_two": "x", "other": "x"}
    for server in connected:
        catalog.replace_listing(server, ItemKind.TOOLS, [tool(offers[server])])
    return {(server, offers[server]): public(catalog, server, offers[server]) for server in connected}


@pytest.mark.parametrize("connected", list(permutations(["big", "big_two", "other"])))
def test_the_order_of_connecting_after_a_restart_changes_no_name(
    tmp_path: Path, connected: tuple[str, ...]
) -> None:
    configured = ("big", "big_two", "other")
    before = offer_in_order(StateFile(tmp_path / "state.json"), configured, configured)
    after = offer_in_order(StateFile(tmp_path / "state.json"), configured, connected)
    assert after == before
    assert before["big", "two_x"] == "big_two_x"
    assert before["big_two", "x"].startswith("big_two_x_")


def test_a_name_that_clients_know_does_not_pass_to_a_server_that_connects_later() -> None:
    # The server that stands first in the configuration was down when the clients listed.
    catalog = catalog_of("big", "big_two")
    catalog.replace_listing("big_two", ItemKind.TOOLS, [tool("x")])
    assert target(catalog, "big_two_x") == ("big_two", "x")
    catalog.replace_listing("big", ItemKind.TOOLS, [tool("two_x")])
    assert target(catalog, "big_two_x") == ("big_two", "x")
    assert public(catalog, "big", "two_x") != "big_two_x"


def test_a_name_that_clients_know_does_not_pass_to_another_server_with_a_restart(tmp_path: Path) -> None:
    first = catalog_of("big", "big_two", owners=StateFile(tmp_path / "state.json"))
    first.replace_listing("big_two", ItemKind.TOOLS, [tool("x")])
    assert target(first, "big_two_x") == ("big_two", "x")
    second = catalog_of("big", "big_two", owners=StateFile(tmp_path / "state.json"))
    second.replace_listing("big", ItemKind.TOOLS, [tool("two_x")])
    second.replace_listing("big_two", ItemKind.TOOLS, [tool("x")])
    assert target(second, "big_two_x") == ("big_two", "x")


def test_a_name_does_not_pass_on_while_its_owner_is_away(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state.json")
    offer_in_order(state, ("big", "big_two"), ("big", "big_two"))
    alone = catalog_of("big_two", owners=StateFile(tmp_path / "state.json"))
    alone.replace_listing("big_two", ItemKind.TOOLS, [tool("x")])
    assert public(alone, "big_two", "x") != "big_two_x"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"names":5}', b"\xff\xfe", b'{"names":{"a":["b"]}}'])
def test_a_broken_memory_costs_no_tool(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    state = StateFile(path)
    assert set(offer_in_order(state, ("big", "big_two"), ("big", "big_two"))) == {
        ("big", "two_x"),
        ("big_two", "x"),
    }
    assert StateFile(path).owner("big_two_x") == ("big", "two_x")


def test_a_memory_that_cannot_be_written_costs_no_tool(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    state = StateFile(tmp_path / "file" / "state.json")
    assert len(offer_in_order(state, ("big", "big_two"), ("big", "big_two"))) == 2


# The names of the gateway's own tools.

TAKEN = {("call", "tool"), ("Call", "TOOL"), ("retrieve", "tools"), ("retrieve", "tool"), ("proxy", "search")}


def test_the_names_of_the_own_tools_are_never_given_away() -> None:
    names = allocate_names(sorted(TAKEN), 60, InMemoryNameOwners(), reserved=RESERVED)
    assert len(set(names.values())) == len(TAKEN)
    assert not RESERVED & set(names.values())
    assert names["call", "tool"].startswith("call_tool_")


@given(tools, st.integers(10, 200), st.randoms(use_true_random=False))
def test_reserved_names_are_nobodys_and_the_others_are_the_same_after_a_restart(
    offered: list[tuple[str, str]], limit: int, random: Random
) -> None:
    owners = InMemoryNameOwners()
    reserved = {"call_tool", *(public_name(*key, limit) for key in offered[:2])}
    before = allocate_names(offered, limit, owners, reserved=reserved)
    assert len(set(before.values())) == len(offered)
    assert not reserved & set(before.values())
    assert all(len(name) <= limit for name in before.values())
    again = list(offered)
    random.shuffle(again)
    assert allocate_names(again, limit, owners, reserved=reserved) == before


def test_a_name_that_a_tool_had_before_it_was_reserved_is_taken_away() -> None:
    owners = InMemoryNameOwners()
    owners.claim({"call_tool": ("call", "tool")})
    (name,) = allocate_names([("call", "tool")], 60, owners, reserved=RESERVED).values()
    assert name != "call_tool"
    assert allocate_names([("call", "tool")], 60, owners, reserved=RESERVED) == {("call", "tool"): name}


def test_a_tool_whose_name_is_reserved_is_reached_under_every_other_spelling() -> None:
    catalog = catalog_of("call", "retrieve")
    catalog.replace_listing("call", ItemKind.TOOLS, [tool("tool")])
    catalog.replace_listing("retrieve", ItemKind.TOOLS, [tool("tools")])
    for server, name in (("call", "tool"), ("retrieve", "tools")):
        listed = public(catalog, server, name)
        assert listed not in RESERVED
        for spelling in (listed, f"{server}:{name}", f"{server}__{name}"):
            assert target(catalog, spelling) == (server, name)


# 3,250 tools of real servers.


def test_the_names_of_real_tools_fit_64_characters_with_a_prefix_and_stay_after_a_restart(
    tmp_path: Path,
) -> None:
    limit = default_limit("headgate")
    tools = [(item.server, item.name) for item in real_catalog().every_tool]
    first = allocate_names(tools, limit, StateFile(tmp_path / "state.json"))
    assert len(first) == len(set(first.values())) == 3250
    for name in first.values():
        assert len(f"mcp__headgate__{name}") <= 64
        assert ALLOWED.fullmatch(name)
    # The server that is connected first then.
    Random(5).shuffle(tools)
    assert allocate_names(tools, limit, StateFile(tmp_path / "state.json")) == first


def test_a_tool_renamed_to_an_own_one_in_small_letters_gets_a_hash() -> None:
    catalog = catalog_of("s")
    catalog.curate({"s": Curation(renamed={"a": "expandSchema"})})
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("a")])
    (item,) = catalog.every_tool
    assert item.public_name.startswith("expandschema_")
