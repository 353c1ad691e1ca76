"""Prompts, resources and templates are taken in like tools: byte for byte, mended, or left out."""

import json
import logging
from typing import Annotated, Any

import mcp_types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, TypeAdapter, UrlConstraints

from headgate.catalog.listing_validation import validate_listing
from headgate.domain.item import ItemKind
from tests.catalog.sample_catalog import called, catalog_of, first_page, item, listed
from tests.protocol.json_spelling import JsonValue, Pen, objects, pens, values

KINDS = [ItemKind.PROMPTS, ItemKind.RESOURCES, ItemKind.TEMPLATES]
WORDS = {ItemKind.PROMPTS: "prompt", ItemKind.RESOURCES: "resource", ItemKind.TEMPLATES: "template"}
NAMES = {ItemKind.PROMPTS: "p", ItemKind.RESOURCES: "a://b", ItemKind.TEMPLATES: "a://{b}"}
PUBLIC = {ItemKind.PROMPTS: "s_p", ItemKind.RESOURCES: "a://b", ItemKind.TEMPLATES: "a://{b}"}
MEANT = (
    "title",
    "description",
    "arguments",
    "annotations",
    "icons",
    "_meta",
    "mimeType",
    "size",
    "name",
    "uri",
    "uriTemplate",
)


@pytest.mark.parametrize("kind", KINDS)
@given(pens, objects)
def test_a_definition_passes_byte_for_byte_apart_from_what_it_is_called(
    kind: ItemKind, pen: Pen, more: dict[str, JsonValue]
) -> None:
    rest = {key: pen.value(value) for key, value in more.items() if key not in MEANT}
    if kind is not ItemKind.PROMPTS:
        rest["name"] = '"n"'
    order = pen.shuffled(rest)
    place = pen.choice(len(order))

    def definition(called: str) -> bytes:
        return Pen(7).object([*order[:place], (kind.key, f'"{called}"'), *order[place:]]).encode()

    catalog = catalog_of("s")
    catalog.replace_listing("s", kind, [definition(NAMES[kind])])
    assert first_page(catalog, kind) == f'"{kind.result_member}":['.encode() + definition(PUBLIC[kind]) + b"]"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "definition", [b"null", b"7", b"[]", b"{}", b'{"name":"n"}', b"{", b'{"x":"\xff"}', b'{"x":NaN}']
)
def test_what_nobody_could_use_is_left_out_and_the_others_are_served(
    kind: ItemKind, definition: bytes
) -> None:
    if kind is ItemKind.PROMPTS and definition == b'{"name":"n"}':
        definition = b'{"name":null}'
    good, also = item(kind, "x://good"), item(kind, "x://also")
    intake = validate_listing("s", kind, [good, definition, also])
    assert [source.name for source in intake.sources] == ["x://good", "x://also"]
    assert list(intake.left_out) == ["#2"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", ['""', "5", "null", '["a"]', '"\\ud800"'])
def test_it_must_be_called_something(kind: ItemKind, value: str) -> None:
    definition = f'{{"{kind.key}":{value},"description":"d"}}'.encode()
    intake = validate_listing("s", kind, [definition])
    assert not intake.sources
    assert intake.left_out["#1"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_of_one_name_is_left_out_and_the_log_says_the_kind(
    kind: ItemKind, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = catalog_of("s")
    first, second = item(kind, "x://a", title="first"), item(kind, "x://a", title="second")
    intake = catalog.replace_listing("s", kind, [first, second])
    assert WORDS[kind] in intake.left_out["#2"]
    assert [one["title"] for one in listed(catalog, kind)] == ["first"]
    assert caplog.messages == [f"{WORDS[kind]} left out"]


ANY = [
    ('"title":null', False),
    ('"title":"t"', True),
    ('"description":5', False),
    ('"icons":[{}]', False),
    ('"icons":[{"src":"i","theme":"blue"}]', False),
    ('"icons":[{"src":"i","theme":"dark","sizes":["any"]}]', True),
    ('"_meta":[]', False),
    ('"_meta":{"a/b":null}', True),
]
FILES = [
    ('"mimeType":7', False),
    ('"mimeType":"text/plain"', True),
    ('"annotations":[]', False),
    ('"annotations":{"audience":["user"],"priority":0.5,"x":1}', True),
    ('"annotations":{"lastModified":"2025-01-12T15:00:58Z"}', True),
    ('"annotations":{"lastModified":"2025-01-12T15:00:58.123+02:00"}', True),
]
CASES = [
    *[(kind, member, kept) for kind in KINDS for member, kept in ANY],
    *[(kind, member, kept) for kind in KINDS[1:] for member, kept in FILES],
    (ItemKind.RESOURCES, '"size":"5"', False),
    (ItemKind.RESOURCES, '"size":5.5', False),
    (ItemKind.RESOURCES, '"size":5', True),
    (ItemKind.PROMPTS, '"arguments":{}', False),
    (ItemKind.PROMPTS, '"arguments":[{"name":"a","required":true,"x":{}}]', True),
]


@pytest.mark.parametrize(("kind", "member", "kept"), CASES)
def test_a_member_that_would_cost_a_client_the_whole_page_is_taken_out(
    kind: ItemKind,
    member: str,
    kept: bool,  # noqa: FBT001 (a column of the table)
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    name = "" if kind is ItemKind.PROMPTS else '"name":"n", '
    start, end = f'{{{name}"{kind.key}":', ',"z":1}'
    catalog = catalog_of("s")
    catalog.replace_listing("s", kind, [f'{start}"{NAMES[kind]}", {member} {end}'.encode()])
    expected = f'{start}"{PUBLIC[kind]}", {member} {end}' if kept else f'{start}"{PUBLIC[kind]}", "z":1}}'
    assert first_page(catalog, kind).decode() == f'"{kind.result_member}":[{expected}]'
    assert (f"{WORDS[kind]} repaired" in caplog.text) is not kept


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('[{"name":"a","description":null},{"name":"b"}]', '[{"name":"a"},{"name":"b"}]'),
        ('[{"name":"a","required":"yes", "x":[1,2]}]', '[{"name":"a","x":[1,2]}]'),
        ('[{"name":"a"},{"title":"nameless"},"b",{"name":null}]', '[{"name":"a"}]'),
        ('[{"name":"a","name":"b"}]', '[{"name":"a","name":"b"}]'),
        ("[ ]", "[ ]"),
    ],
)
def test_arguments_are_mended_one_by_one(before: str, after: str) -> None:
    catalog = catalog_of("s")
    catalog.replace_listing(
        "s", ItemKind.PROMPTS, [f'{{"name":"p","arguments":{before}}}'.encode(), item(ItemKind.PROMPTS, "q")]
    )
    assert called(catalog, ItemKind.PROMPTS)[-1] == "s_q"
    assert f'{{"name":"s_p","arguments":{after}}}'.encode() in first_page(catalog, ItemKind.PROMPTS)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"audience":["user"],"priority":7}', '{"audience":["user"]}'),
        ('{"audience":["robot"],"priority":1}', '{"priority":1}'),
        ('{"lastModified":"yesterday"}', "{}"),
        ('{"lastModified":"2025-13-01T00:00:00Z", "x":null}', '{"x":null}'),
    ],
)
def test_annotations_are_mended_one_by_one(before: str, after: str) -> None:
    catalog = catalog_of("s")
    catalog.replace_listing(
        "s", ItemKind.RESOURCES, [f'{{"uri":"a:b","name":"n","annotations":{before}}}'.encode()]
    )
    assert f'"annotations":{after}}}'.encode() in first_page(catalog, ItemKind.RESOURCES)


@pytest.mark.parametrize("kind", [ItemKind.RESOURCES, ItemKind.TEMPLATES])
@pytest.mark.parametrize("name", ["", '"name":null,', '"name":5,'])
def test_what_has_no_name_is_named_after_its_uri(kind: ItemKind, name: str) -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", kind, [f'{{{name}"{kind.key}":"a:\\u0022b"}}'.encode()])
    assert listed(catalog, kind) == [{kind.key: 'a:"b', "name": 'a:"b'}]


odd = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys((*MEANT, "inputSchema"), values)
    | {
        "icons": st.lists(
            st.dictionaries(st.sampled_from(["src", "theme", "sizes", "mimeType"]), values), max_size=2
        ),
        "arguments": st.lists(
            st.dictionaries(st.sampled_from(["name", "title", "description", "required"]), values), max_size=3
        ),
        "annotations": st.dictionaries(st.sampled_from(["audience", "priority", "lastModified"]), values),
        "name": st.text(max_size=3),
    },
)
JUDGES: dict[ItemKind, Any] = {
    ItemKind.PROMPTS: mcp_types.ListPromptsResult,
    ItemKind.RESOURCES: mcp_types.ListResourcesResult,
    ItemKind.TEMPLATES: mcp_types.ListResourceTemplatesResult,
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50)
@given(definitions=st.lists(odd, max_size=4))
def test_the_official_client_reads_every_page_whatever_came_in(
    kind: ItemKind, definitions: list[dict[str, Any]]
) -> None:
    catalog = catalog_of("s")
    sent = [json.dumps(one | {kind.key: f"x:{at}"}).encode() for at, one in enumerate(definitions)]
    catalog.replace_listing("s", kind, sent)
    page = b'{"resultType":"complete","ttlMs":0,"cacheScope":"private",' + first_page(catalog, kind) + b"}"
    JUDGES[kind].model_validate_json(page)
    assert len(listed(catalog, kind)) == len(sent)


# As the official client before 2.0 reads the URI of a resource.
url = TypeAdapter[AnyUrl](Annotated[AnyUrl, UrlConstraints(host_required=False)])
uris = st.builds(
    "{}{}{}".format,
    st.sampled_from(["http", "https", "file", "demo", "x+y", "1", ""]),
    st.sampled_from([":", "://", ":///", ":/", ""]),
    st.text(st.sampled_from("aB1.:/@[]%?#\\ -_{}é0x|^<&=;"), max_size=8),
)


@given(st.lists(uris.filter(bool), max_size=4, unique=True))
def test_the_official_client_takes_every_uri_for_one(offered: list[str]) -> None:
    catalog = catalog_of("my server")
    catalog.replace_listing(
        "my server", ItemKind.RESOURCES, [item(ItemKind.RESOURCES, uri) for uri in offered]
    )
    public = called(catalog, ItemKind.RESOURCES)
    assert len(set(public)) == len(offered)
    for uri in public:
        url.validate_python(uri)


def test_a_listing_with_thousands_of_oddities_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    validate_listing("s", ItemKind.RESOURCES, [f'{{"uri":"a:{number}"}}'.encode() for number in range(3000)])
    assert len(caplog.records) < 50
    assert caplog.records[-1].__dict__["more"] > 2900
