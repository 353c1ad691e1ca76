"""Calls are routed by a table: the public name, or the two spellings that people type."""

import json

import pytest

from headgate.catalog.catalog import Catalog
from headgate.catalog.errors import PromptNotFound, ServerNotFound, ToolNotFound
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import ItemKind
from headgate.protocol.protocol_version import Era
from tests.catalog.sample_catalog import catalog_of, first_page, item, public, target, tool


def names(catalog: Catalog) -> list[str]:
    page = json.loads(b"{" + first_page(catalog) + b"}")
    return [listed["name"] for listed in page["tools"]]


def test_a_tool_is_reached_by_its_public_name_and_by_two_other_spellings() -> None:
    catalog = catalog_of("my-server.com")
    catalog.replace_listing("my-server.com", ItemKind.TOOLS, [tool("get/data:v1")])
    for name in ("my_server_com_get_data_v1", "my-server.com:get/data:v1", "my-server.com__get/data:v1"):
        assert target(catalog, name) == ("my-server.com", "get/data:v1")


def test_underscores_in_the_name_of_a_server_confuse_nobody() -> None:
    catalog = catalog_of("big", "big_two")
    catalog.replace_listing("big", ItemKind.TOOLS, [tool("two_x")])
    catalog.replace_listing("big_two", ItemKind.TOOLS, [tool("x")])
    for server, name in (("big", "two_x"), ("big_two", "x")):
        assert target(catalog, public(catalog, server, name)) == (server, name)
        assert target(catalog, f"{server}__{name}") == (server, name)


def test_a_spelling_that_could_mean_two_tools_means_none() -> None:
    catalog = catalog_of("a", "a__b")
    catalog.replace_listing("a", ItemKind.TOOLS, [tool("b__c")])
    catalog.replace_listing("a__b", ItemKind.TOOLS, [tool("c")])
    assert target(catalog, "a:b__c") == ("a", "b__c")
    assert target(catalog, "a__b:c") == ("a__b", "c")
    with pytest.raises(ToolNotFound):
        catalog.resolve(ItemKind.TOOLS, "a__b__c", LOCAL_IDENTITY)


def test_a_public_name_wins_over_another_spelling() -> None:
    catalog = catalog_of("a", "a_")
    catalog.replace_listing("a", ItemKind.TOOLS, [tool("_b")])
    catalog.replace_listing("a_", ItemKind.TOOLS, [tool("b")])
    for name in names(catalog):
        server, original = target(catalog, name)
        assert public(catalog, server, original) == name


def test_without_prefix_names_pass_unchanged() -> None:
    definition = b'{ "name" : "Get/Data:V1", "inputSchema":{"type":"object"}, "x": 1.0 }'
    catalog = catalog_of("only", prefixed=False)
    catalog.replace_listing("only", ItemKind.TOOLS, [definition])
    assert first_page(catalog) == b'"tools":[' + definition + b"]"
    for name in ("Get/Data:V1", "only:Get/Data:V1", "only__Get/Data:V1"):
        assert target(catalog, name) == ("only", "Get/Data:V1")


def test_an_unknown_name_is_told_its_neighbours() -> None:
    catalog = catalog_of("files")
    catalog.replace_listing("files", ItemKind.TOOLS, [tool("read_file"), tool("write_file")])
    with pytest.raises(ToolNotFound) as missing:
        catalog.resolve(ItemKind.TOOLS, "files_read_fil", LOCAL_IDENTITY)
    assert missing.value.code == "TOOL_NOT_FOUND"
    assert "files_read_file" in missing.value.hint
    with pytest.raises(ToolNotFound):
        catalog.resolve(ItemKind.TOOLS, "x" * 1_000_000, LOCAL_IDENTITY)


def test_servers_are_listed_in_the_order_of_the_configuration() -> None:
    catalog = catalog_of("one", "two", "three")
    for server in ("three", "one", "two"):
        catalog.replace_listing(server, ItemKind.TOOLS, [tool("b"), tool("a")])
    assert names(catalog) == ["one_b", "one_a", "two_b", "two_a", "three_b", "three_a"]
    catalog.set_servers(["two", "one"])
    assert names(catalog) == ["two_b", "two_a", "one_b", "one_a"]
    with pytest.raises(ToolNotFound):
        catalog.resolve(ItemKind.TOOLS, "three_a", LOCAL_IDENTITY)


def test_who_listens_is_told_of_changes_and_of_nothing_else() -> None:
    catalog = catalog_of("one", "two")
    told: list[int] = []
    catalog.on_change(lambda kind: told.append(len(catalog)))
    catalog.replace_listing("one", ItemKind.TOOLS, [tool("a")])
    catalog.replace_listing("one", ItemKind.TOOLS, [tool("a")])
    catalog.replace_listing("two", ItemKind.TOOLS, [])
    assert told == [1]
    catalog.replace_listing("one", ItemKind.TOOLS, [tool("a", "another description")])
    catalog.replace_listing("one", ItemKind.TOOLS, [tool("a", "another description"), tool("b")])
    catalog.set_servers(["two"])
    assert told == [1, 1, 2, 0]


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("my-server.com:get", "my-server.com"),
        ("my-server.com__get", "my-server.com"),
        ("my_server_com_get", "my-server.com"),
        ("tool_1st_get", "1st"),
        ("1st:get", "1st"),
        ("big_x", "big"),
        ("big_two_x", "big_two"),
        ("big:two_x", "big"),
        ("big__two_x", "big"),
        ("my_server_com", None),
        ("My_Server_Com_get", None),
        ("bigger_x", None),
        ("nobody_x", None),
        ("", None),
    ],
)
def test_a_name_belongs_to_a_server_that_has_not_told_its_tools_yet(name: str, server: str | None) -> None:
    catalog = catalog_of("my-server.com", "1st", "big", "big_two")
    assert catalog.pending_server(ItemKind.TOOLS, name) == server


def test_who_has_told_its_tools_is_not_waited_for() -> None:
    catalog = catalog_of("big", "big_two")
    catalog.replace_listing("big_two", ItemKind.TOOLS, [tool("x")])
    assert catalog.pending_server(ItemKind.TOOLS, "big_two_x") is None
    assert catalog.pending_server(ItemKind.TOOLS, "big_two:x") is None
    # It may still be a tool of the other, called `two_y`.
    assert catalog.pending_server(ItemKind.TOOLS, "big_two_y") == "big"
    catalog.replace_listing("big", ItemKind.TOOLS, [])
    assert catalog.pending_server(ItemKind.TOOLS, "big_two_y") is None
    assert catalog.pending_server(ItemKind.TOOLS, "big:y") is None


def test_a_server_that_is_not_configured_any_more_is_not_waited_for() -> None:
    catalog = catalog_of("one", "two")
    catalog.set_servers(["two"])
    assert catalog.pending_server(ItemKind.TOOLS, "one_x") is None
    assert catalog.pending_server(ItemKind.TOOLS, "two_x") == "two"


def test_without_prefix_every_name_belongs_to_the_only_server() -> None:
    catalog = catalog_of("only", prefixed=False)
    assert catalog.pending_server(ItemKind.TOOLS, "anything") == "only"
    catalog.replace_listing("only", ItemKind.TOOLS, [tool("x")])
    assert catalog.pending_server(ItemKind.TOOLS, "anything") is None
    assert catalog_of(prefixed=False).pending_server(ItemKind.TOOLS, "anything") is None


def test_both_eras_see_a_change_that_came_after_their_first_look() -> None:
    catalog = catalog_of("one", "two")
    catalog.replace_listing("two", ItemKind.TOOLS, [tool("a")])
    before = [first_page(catalog, era=era) for era in Era]
    catalog.replace_listing("one", ItemKind.TOOLS, [tool("b")])
    after = [first_page(catalog, era=era) for era in Era]
    assert all(b"one_b" not in page for page in before)
    assert all(b"one_b" in page and b"two_a" in page for page in after)


def test_a_server_that_nobody_configured_is_told_apart_from_a_tool() -> None:
    catalog = catalog_of("weather", "clock")
    catalog.replace_listing("clock", ItemKind.TOOLS, [tool("now")])
    with pytest.raises(ServerNotFound, match="Unknown server: 'wether'") as unknown:
        catalog.resolve(ItemKind.TOOLS, "wether:today", LOCAL_IDENTITY)
    assert "weather" in unknown.value.hint
    with pytest.raises(ToolNotFound):
        catalog.resolve(ItemKind.TOOLS, "clock:later", LOCAL_IDENTITY)


def test_the_nearest_names_are_found_among_thousands() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing(
        "s", ItemKind.TOOLS, [tool(f"do_thing_{number}") for number in range(2000)] + [tool("create_invoice")]
    )
    with pytest.raises(ToolNotFound) as unknown:
        catalog.resolve(ItemKind.TOOLS, "s_create_invoce", LOCAL_IDENTITY)
    assert "s_create_invoice" in unknown.value.hint


def test_prompts_are_named_and_missed_like_tools() -> None:
    catalog = catalog_of("my-server.com", "clock")
    catalog.replace_listing("my-server.com", ItemKind.PROMPTS, [item(ItemKind.PROMPTS, "write/Poem")])
    for name in ("my_server_com_write_poem", "my-server.com:write/Poem", "my-server.com__write/Poem"):
        found = catalog.resolve(ItemKind.PROMPTS, name, LOCAL_IDENTITY)
        assert (found.server, found.name) == ("my-server.com", "write/Poem")
    with pytest.raises(PromptNotFound) as missing:
        catalog.resolve(ItemKind.PROMPTS, "my_server_com_write_poems", LOCAL_IDENTITY)
    assert "my_server_com_write_poem" in missing.value.hint
    with pytest.raises(ServerNotFound):
        catalog.resolve(ItemKind.PROMPTS, "clocks:now", LOCAL_IDENTITY)
    with pytest.raises(ToolNotFound):
        catalog.resolve(ItemKind.TOOLS, "my_server_com_write_poem", LOCAL_IDENTITY)
    assert catalog.pending_server(ItemKind.PROMPTS, "clock_now") == "clock"
    assert catalog.pending_server(ItemKind.PROMPTS, "my_server_com_other") is None
    assert catalog.pending_server(ItemKind.TOOLS, "my_server_com_other") == "my-server.com"


def test_what_a_server_that_is_no_more_tells_too_late_is_nobodys_tool() -> None:
    catalog = catalog_of("gone", "here")
    catalog.set_servers(["here"])
    catalog.replace_listing("gone", ItemKind.TOOLS, [tool("a")])
    assert not catalog.has(("gone", "a"))
    assert catalog.tool(("gone", "a"), PLAIN_PROFILE) is None
    assert catalog.find("gone_a", LOCAL_IDENTITY, PLAIN_PROFILE) is None
    assert catalog.every_tool == catalog.visible(PLAIN_PROFILE) == []
    # Defined again, it is.
    catalog.set_servers(["gone", "here"])
    assert catalog.tool(("gone", "a"), PLAIN_PROFILE) is not None
