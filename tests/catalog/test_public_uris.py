"""A URI stays as it is while it is unique, and every URI that clients are shown reaches its server."""

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog.catalog import Catalog
from headgate.catalog.errors import ResourceNotFound
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import ItemKind
from headgate.storage.files.state_file import StateFile
from tests.catalog.sample_catalog import InMemoryNameOwners, called, catalog_of, item, reader, tool


def offer(catalog: Catalog, server: str, *uris: str, templates: tuple[str, ...] = ()) -> None:
    catalog.replace_listing(server, ItemKind.RESOURCES, [item(ItemKind.RESOURCES, uri) for uri in uris])
    catalog.replace_listing(
        server, ItemKind.TEMPLATES, [item(ItemKind.TEMPLATES, template) for template in templates]
    )


def test_a_uri_stays_while_it_is_unique_and_the_newcomer_names_its_server() -> None:
    catalog = catalog_of("my server", "b")
    offer(catalog, "b", "file:///a", "file:///b")
    offer(catalog, "my server", "file:///a", "file:///c")
    assert called(catalog, ItemKind.RESOURCES) == [
        "headgate://my%20server/file:///a",
        "file:///c",
        "file:///a",
        "file:///b",
    ]
    assert reader(catalog, "file:///a") == ("b", "file:///a")
    assert reader(catalog, "headgate://my%20server/file:///a") == ("my server", "file:///a")
    assert reader(catalog, "headgate://b/file:///a") == ("b", "file:///a")
    assert reader(catalog, "file:///c") == ("my server", "file:///c")


def test_templates_likewise() -> None:
    catalog = catalog_of("a", "b")
    offer(catalog, "a", templates=("x://{id}", "y://{id}"))
    offer(catalog, "b", templates=("x://{id}",))
    assert called(catalog, ItemKind.TEMPLATES) == ["x://{id}", "y://{id}", "headgate://b/x://{id}"]
    assert reader(catalog, "x://7") == ("a", "x://7")
    assert reader(catalog, "headgate://b/x://7") == ("b", "x://7")


@pytest.mark.parametrize("template", ["x://{id}", "x://t{?limit}", "x://{+path}{#part}"])
def test_a_template_itself_is_found_where_its_variables_are_completed(template: str) -> None:
    catalog = catalog_of("a", "b")
    offer(catalog, "a", "x://1", templates=(template,))
    offer(catalog, "b", "x://2", templates=(template,))
    assert reader(catalog, template) == ("a", template)
    assert reader(catalog, f"headgate://b/{template}") == ("b", template)


@pytest.mark.parametrize("connected", list(permutations("abc")))
def test_who_had_a_uri_first_keeps_it_after_a_restart(tmp_path: Path, connected: tuple[str, ...]) -> None:
    def public(order: tuple[str, ...]) -> dict[str, list[str]]:
        catalog = catalog_of("a", "b", "c", owners=StateFile(tmp_path / "state.json"))
        for server in order:
            offer(catalog, server, "x:1", "x:" + "2" * 1000, templates=("x:{y}",))
        return {server: [catalog.public_uri(server, "x:1")] for server in "abc"} | {
            kind.result_member: called(catalog, kind) for kind in (ItemKind.RESOURCES, ItemKind.TEMPLATES)
        }

    before = public(("b", "a", "c"))
    assert before["b"] == ["x:1"]
    assert public(connected) == before


def test_a_uri_does_not_pass_on_while_its_owner_is_away() -> None:
    owners = InMemoryNameOwners()
    offer(catalog_of("a", owners=owners), "a", "x:1")
    catalog = catalog_of("b", owners=owners)
    offer(catalog, "b", "x:1")
    assert called(catalog, ItemKind.RESOURCES) == ["headgate://b/x:1"]
    assert reader(catalog, "headgate://b/x:1") == ("b", "x:1")


def test_kinds_do_not_take_each_others_names() -> None:
    owners = InMemoryNameOwners()
    catalog = catalog_of("a", "b", owners=owners)
    offer(catalog, "a", "x:1")
    offer(catalog, "b", templates=("x:1",))
    assert called(catalog, ItemKind.RESOURCES) == called(catalog, ItemKind.TEMPLATES) == ["x:1"]
    catalog.replace_listing("b", ItemKind.TOOLS, [tool("t")])
    catalog.replace_listing("a", ItemKind.PROMPTS, [item(ItemKind.PROMPTS, "t")])
    assert sorted(owners.names) == ["b_t", "prompt:a_t", "template:x:1", "uri:x:1"]


def test_no_server_speaks_for_another() -> None:
    catalog = catalog_of("good", "bad")
    offer(catalog, "bad", "headgate://good/x:1", "HEADGATE://good/x:2", templates=("headgate://good/{x}",))
    offer(catalog, "good", "x:1")
    assert reader(catalog, "headgate://good/x:1") == ("good", "x:1")
    assert reader(catalog, "headgate://good/x:2") == ("good", "x:2")
    assert reader(catalog, "headgate://bad/headgate://good/x:1") == ("bad", "headgate://good/x:1")
    assert all(uri.startswith("headgate://bad/") for uri in called(catalog, ItemKind.RESOURCES)[1:])


@pytest.mark.parametrize("uri", ["notes.txt", "/etc/motd", "demo://a b", "http://"])
def test_what_clients_do_not_take_for_a_url_names_its_server(uri: str) -> None:
    catalog = catalog_of("s")
    offer(catalog, "s", uri)
    assert called(catalog, ItemKind.RESOURCES) == [f"headgate://s/{uri}"]
    assert reader(catalog, f"headgate://s/{uri}") == ("s", uri)


def test_without_prefix_uris_pass_unchanged_and_all_of_them_reach_the_only_server() -> None:
    catalog = catalog_of("only", prefixed=False)
    offered = ("notes.txt", "headgate://only/x:1", "x:1")
    offer(catalog, "only", *offered, templates=("t://{x}", "headgate://{x}"))
    assert called(catalog, ItemKind.RESOURCES) == list(offered)
    assert called(catalog, ItemKind.TEMPLATES) == ["t://{x}", "headgate://{x}"]
    for uri in (*offered, "t://1", "unlisted:1", "headgate://nobody/x"):
        assert reader(catalog, uri) == ("only", uri)
        assert catalog.public_uri("only", uri) == uri


def test_the_more_particular_of_two_templates_is_meant() -> None:
    catalog = catalog_of("wide", "narrow")
    offer(catalog, "wide", templates=("file:///{+path}", "{broken"))
    offer(catalog, "narrow", templates=("file:///logs/{day}",))
    assert reader(catalog, "file:///logs/monday") == ("narrow", "file:///logs/monday")
    assert reader(catalog, "file:///logs/monday/1") == ("wide", "file:///logs/monday/1")


def test_what_nobody_lists_goes_to_the_only_server_that_can_be_meant() -> None:
    catalog = catalog_of("files", "mail", "tools")
    offer(catalog, "tools")
    offer(catalog, "files", "file:///a")
    assert reader(catalog, "other:1") == ("files", "other:1")
    offer(catalog, "mail", templates=("mail://{id}",))
    assert reader(catalog, "FILE:///b") == ("files", "FILE:///b")
    assert reader(catalog, "mail://x/y") == ("mail", "mail://x/y")
    offer(catalog, "tools", "mail:box")
    for uri in ("other:1", "mail://x/y", "", "nothing", "headgate://nobody/x:1", "x" * 1_000_000):
        with pytest.raises(ResourceNotFound):
            catalog.resolve_resource(uri, LOCAL_IDENTITY)


@pytest.mark.parametrize("uri", ["headgate://", "headgate://files", "headgate://files/", "headgate:///x:1"])
def test_half_a_uri_of_ours_is_nobodys(uri: str) -> None:
    catalog = catalog_of("files", "mail")
    offer(catalog, "files", "file:///a")
    offer(catalog, "mail", "mail:a")
    with pytest.raises(ResourceNotFound):
        catalog.resolve_resource(uri, LOCAL_IDENTITY)


def test_a_resource_that_is_listed_nowhere_is_told_of_so_that_its_server_is_reached() -> None:
    catalog = catalog_of("a", "b")
    offer(catalog, "a", "x:1", templates=("x:{y}",))
    offer(catalog, "b", "x:1", "z:1")
    assert catalog.public_uri("a", "x:7") == "x:7"
    assert catalog.public_uri("b", "x:7") == "headgate://b/x:7"
    assert catalog.public_uri("b", "z:7") == "z:7"
    assert catalog.public_uri("a", "headgate://b/x:1") == "headgate://a/headgate://b/x:1"


servers = st.sampled_from(["a", "b", "ü/%", "a b"])
uris = st.one_of(
    st.sampled_from(["x:1", "x:2", "file:///a", "headgate://a/x:1", "headgate://b/", "a/b", "x://{y}", "{"]),
    st.text(min_size=1, max_size=6),
)


@given(st.lists(st.tuples(servers, st.lists(uris, max_size=4), st.lists(uris, max_size=2)), max_size=6), uris)
def test_every_public_uri_reaches_its_server(
    offers: list[tuple[str, list[str], list[str]]], unlisted: str
) -> None:
    catalog = catalog_of("a", "b", "ü/%", "a b")
    for server, resources, templates in offers:
        offer(catalog, server, *resources, templates=tuple(templates))
    public = called(catalog, ItemKind.RESOURCES)
    assert len(set(public)) == len(public)
    for server, resources in {server: resources for server, resources, _ in offers}.items():
        for uri in (*resources, unlisted):
            assert reader(catalog, catalog.public_uri(server, uri)) == (server, uri)


def test_a_server_that_has_not_told_its_resources_may_be_meant() -> None:
    catalog = catalog_of("a", "b", "c")
    assert catalog.pending_server(ItemKind.RESOURCES, "headgate://b/x:1") == "b"
    assert catalog.pending_server(ItemKind.TEMPLATES, "headgate://b/x:1") == "b"
    assert catalog.pending_server(ItemKind.RESOURCES, "x:1") is None
    offer(catalog, "a", "x:1", templates=("x:{y}",))
    catalog.replace_listing("b", ItemKind.RESOURCES, [])
    assert catalog.pending_server(ItemKind.RESOURCES, "y:1") is None
    catalog.replace_listing("b", ItemKind.TEMPLATES, [])
    assert catalog.pending_server(ItemKind.RESOURCES, "y:1") == "c"
    assert catalog.pending_server(ItemKind.RESOURCES, "x:1") is None
    assert catalog.pending_server(ItemKind.RESOURCES, "x:2") is None
    assert catalog.pending_server(ItemKind.RESOURCES, "headgate://a/y:1") is None
    offer(catalog, "c")
    assert catalog.pending_server(ItemKind.RESOURCES, "y:1") is None


def test_without_prefix_the_only_server_is_waited_for() -> None:
    catalog = catalog_of("only", prefixed=False)
    assert catalog.pending_server(ItemKind.RESOURCES, "x:1") == "only"
    assert catalog.pending_server(ItemKind.PROMPTS, "p") == "only"
    offer(catalog, "only")
    assert catalog.pending_server(ItemKind.RESOURCES, "x:1") is None


def test_more_uris_than_can_be_remembered_push_no_name_out(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state.json")
    catalog = catalog_of("big", "big_two", "many", owners=state)
    catalog.replace_listing("big_two", ItemKind.TOOLS, [tool("x")])
    for round_ in range(5):
        offer(catalog, "many", *(f"x:{round_}-{number}" for number in range(6_000)))
    assert len(called(catalog, ItemKind.RESOURCES)) == 6_000
    again = catalog_of("big", "big_two", owners=state)
    again.replace_listing("big", ItemKind.TOOLS, [tool("two_x")])
    assert called(again, ItemKind.TOOLS) != ["big_two_x"]
