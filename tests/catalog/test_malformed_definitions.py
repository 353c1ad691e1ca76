"""Odd tools through the whole catalog: served or left out with a reason, and no other is the worse for it."""

import json
from functools import cache
from typing import Any

import pytest

from headgate.catalog.listing_validation import ValidatedListing
from headgate.catalog.listing_variant import KnownClients
from headgate.catalog.tool_dialects import Dialect
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.search.token_counter import count_tokens
from tests.catalog.sample_catalog import target
from tests.catalog.sample_listings import ONE, OWN_TOOLS, ListingFixture, session, stateless, wordy

TEXT = {"type": "string"}
GOOD = [wordy("first"), wordy("second")]
BUDGET = 2000


def odd(name: str, properties: object, **more: Any) -> bytes:
    schema = {"type": "object", "properties": properties, **more}
    definition = {"name": name, "description": f"Does {name}.", "inputSchema": schema}
    return json.dumps(definition, separators=(",", ":")).encode()


def deep(name: str, depth: int, **more: Any) -> bytes:
    """Written without recursion, which a writer of that depth has none of."""
    inner = b'{"type":"object","properties":{"a":' * depth + b"{}" + b"}}" * depth
    rest = json.dumps({"name": name, **more})[:-1].encode()
    return rest + b',"inputSchema":' + inner + b"}"


SERVED = {
    "cycle": odd("cycle", {"a": {"$ref": "#/properties/a"}, "b": {"$ref": "#"}}),
    "circle": odd(
        "circle",
        {"a": {"$ref": "#/$defs/A"}},
        **{"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
    ),
    "nowhere": odd("nowhere", {"a": {"$ref": "#/$defs/none"}}),
    "network": odd("network", {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}),
    "file": odd("file", {"a": {"$ref": "file:///etc/passwd"}}),
    "alternatives": odd("alternatives", {"a": {"anyOf": [{}] * 100_000}}),
    "choices": odd("choices", {"a": {"enum": list(range(100_000))}}),
    "arguments": odd("arguments", {f"argument{number}": TEXT for number in range(5_000)}),
    "named_like_keywords": odd(
        "named_like_keywords",
        {"type": TEXT, "$ref": TEXT, "properties": TEXT, "required": TEXT, "items": TEXT, "anyOf": TEXT},
        required=["type", "$ref", "properties"],
    ),
    "no_object_inside": odd("no_object_inside", {"a": {"type": "object", "properties": [1, "x"]}}),
    "long_argument": odd("long_argument", {"n" * 10_240: TEXT, "": TEXT}),
    "digits": odd("digits", {"a": {"type": "number", "minimum": 10**400}}),
    # Nothing that can be put into few words, with an output that only one era may see.
    "infinite": odd("infinite", {"a": {"maximum": 0}})[:-1].replace(b":0", b":1e999")
    + b',"outputSchema":{"type":"array"}}',
    "unicode": odd("unicode", {"\u00e9": TEXT, "\u6771\u4eac": TEXT, "\U0001f600": TEXT, "a\u0000b": TEXT}),
    "shallow": deep("shallow", 90),
    "prose": json.dumps(
        {"name": "prose", "description": "x" * 300_000, "inputSchema": {"type": "object"}}
    ).encode(),
    "emoji": json.dumps(
        {"name": "emoji", "description": "\U0001f600" * 5_000, "inputSchema": {"type": "object"}},
        ensure_ascii=False,
    ).encode(),
}
# Either can be the case: the limits of intake are its own.
PERHAPS = {
    "deep": deep("deep", 10_000),
    "half_deep": deep("half_deep", 400, outputSchema={"type": "array", "items": {}}),
    "text_schema": b'{"name":"text_schema","inputSchema":"object"}',
    "list_schema": b'{"name":"list_schema","inputSchema":[]}',
    "true_schema": b'{"name":"true_schema","inputSchema":true}',
    "string_arguments": b'{"name":"string_arguments","inputSchema":{"type":"string"}}',
    "no_schema": b'{"name":"no_schema"}',
    "no_type": b'{"name":"no_type","inputSchema":{}}',
    "wrong_properties": b'{"name":"wrong_properties","inputSchema":{"type":"object","properties":5}}',
    "no_name": b'{"inputSchema":{"type":"object"}}',
    "empty_name": b'{"name":"","inputSchema":{"type":"object"}}',
    "number_name": b'{"name":5,"inputSchema":{"type":"object"}}',
    "twice": b'{"name":"twice","name":"again","inputSchema":{"type":"object"}}',
    "no_json": b'{"name":"no_json",',
    "no_tool": b"[]",
    "half": b'{"name":"half","description":"\\ud800","inputSchema":{"type":"object"}}',
    "too_large": odd("too_large", {"a": {"anyOf": [{"const": number} for number in range(100_000)]}}),
    "no_text": b'{"name":"no_text","description":"\xff\xfe","inputSchema":{"type":"object"}}',
}
ODD = SERVED | PERHAPS
CLIENTS = KnownClients(dialects={"gemini": Dialect.GEMINI, "openai": Dialect.OPENAI}, dialect=Dialect.PLAIN)


@cache
def stage() -> tuple[ListingFixture, ValidatedListing]:
    """A good server on each side of one that has every odd tool."""
    made = ListingFixture(
        ListingMode.FULL, {"before": GOOD, "odd": [], "after": GOOD}, clients=CLIENTS, budget_tokens=BUDGET
    )
    return made, made.catalog.replace_listing("odd", ItemKind.TOOLS, list(ODD.values()))


def test_what_can_be_served_is_and_the_rest_is_left_out_with_a_reason() -> None:
    made, intake = stage()
    served = {item.name for item in made.catalog.every_tool if item.server == "odd"}
    assert set(SERVED) <= served
    assert len(served) + len(intake.left_out) == len(ODD)
    assert all(intake.left_out.values())


def names_of(server: str) -> list[str]:
    made, _ = stage()
    return [item.public_name for item in made.catalog.every_tool if item.server == server]


@pytest.mark.parametrize("mode", ListingMode)
@pytest.mark.parametrize("dialect", ["plain", "gemini", "openai"])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_the_others_are_listed_as_if_nothing_were_odd(
    mode: ListingMode, dialect: str, era: str
) -> None:
    made, _ = stage()
    alone = ListingFixture(
        ListingMode.FULL, {"before": GOOD, "odd": [], "after": GOOD}, clients=CLIENTS, budget_tokens=BUDGET
    )
    listing_context = session(f"{mode} {dialect}", client=dialect, mode=mode)
    if era == "stateless":
        listing_context = type(listing_context)(era=stateless("x").era, client=dialect, mode=mode)
    listed = {tool["name"]: tool for tool in await made.listed(listing_context)}
    expected = {tool["name"]: tool for tool in await alone.listed(listing_context)}
    assert all(isinstance(tool["inputSchema"], dict) for tool in listed.values())
    assert all(tool["inputSchema"]["type"] == "object" for tool in listed.values())
    if mode in (ListingMode.FULL, ListingMode.SLIM):
        assert {name: listed[name] for name in expected} == expected
        assert listed.keys() - expected.keys() <= {*names_of("odd"), "expandSchema"}
        assert set(names_of("odd")) <= listed.keys()
    if mode is ListingMode.BUDGET:
        (page,) = await made.pages(listing_context)
        assert count_tokens(page[page.index(b"[") :]) <= BUDGET
        # Each server is seen.
        assert {"before_first", "after_first"} <= listed.keys()
    if era == "handshake":
        # Clients of that era refuse the whole page for one of these.
        for tool in listed.values():
            assert tool.get("outputSchema", {"type": "object"})["type"] == "object"


def test_every_odd_tool_that_is_served_can_be_called() -> None:
    made, _ = stage()
    for item in made.catalog.every_tool:
        assert target(made.catalog, item.public_name) == (item.server, item.name)


async def test_what_several_odd_tools_repeat_is_said_within_bounds() -> None:
    made, _ = stage()
    for mode in ListingMode:
        assert len(await made.tool_listings.instructions(session("x", mode=mode))) < 5_000


NAMES = [
    "n" * 10_240,
    "n" * 10_240 + "!",
    "\u6771\u4eac",
    "\u00e9t\u00e9",
    "!!!",
    "a b",
    "a-b",
    "A_B",
    "a\nb",
    "\U0001f600",
]


@pytest.mark.parametrize("mode", ListingMode)
async def test_names_of_every_kind_become_names_that_every_client_accepts_and_never_two_alike(
    mode: ListingMode,
) -> None:
    tools = [json.dumps({"name": name, "inputSchema": {"type": "object"}}).encode() for name in NAMES]
    made = ListingFixture(mode, {"s": tools, "s_a": [wordy("b")]})
    listed = await made.names()
    assert len(listed) == len(set(listed))
    for item in made.catalog.every_tool:
        assert item.public_name.isascii()
        assert 0 < len(item.public_name) <= 60
        assert item.public_name.replace("_", "a").isalnum()
        assert target(made.catalog, item.public_name) == (item.server, item.name)
    assert len({item.public_name for item in made.catalog.every_tool}) == len(NAMES) + 1


async def test_of_two_tools_of_one_name_the_first_is_served_and_the_other_left_out_with_a_reason() -> None:
    made = ListingFixture(ListingMode.SLIM, {"s": []})
    intake = made.catalog.replace_listing(
        "s", ItemKind.TOOLS, [wordy("a"), wordy("b"), wordy("a", 80), wordy("a")]
    )
    assert await made.names() == ["expandSchema", "s_a", "s_b"]
    assert len(intake.left_out) == 2
    assert json.loads(made.definition("s_a")) == {**json.loads(wordy("a")), "name": "s_a"}


async def test_a_server_whose_every_tool_is_odd_leaves_room_for_the_others_in_a_budget() -> None:
    servers = {"odd": [odd(f"odd{number}", {"n" * 5_000: TEXT}) for number in range(50)], "good": GOOD}
    names = await ListingFixture(ListingMode.BUDGET, servers, budget_tokens=500).names(ONE)
    assert {"good_first", "good_second"} <= set(names)
    assert names[:2] == OWN_TOOLS[:2]
