"""Tools in few words are made once, and what is out of date is forgotten."""

import json
from typing import Any

import msgspec

from headgate.catalog.listing_variant import KnownClients
from headgate.catalog.tool_dialects import Dialect
from headgate.catalog.tool_forms import ToolForms
from headgate.domain.item import Item, ItemKind
from headgate.domain.listing_mode import ListingMode
from tests.catalog.sample_listings import ONE, ListingFixture, request_of, wordy


def tools(server: str, *names: str) -> list[Item]:
    return [Item(ItemKind.TOOLS, server, name, name, wordy(name)) for name in names]


def test_a_change_of_one_server_costs_nothing_for_the_others() -> None:
    words = ToolForms()
    before = words.reduced([*tools("s", "a", "b"), *tools("t", "a")])
    after = words.reduced([*tools("s", "a", "b"), *tools("t", "a", "c")])
    assert after["s"] is before["s"]
    assert after["t"] is not before["t"]
    # What was so before is remembered for a while: profiles differ, and servers change their mind.
    assert words.reduced(tools("t", "a"))["t"] is before["t"]


def test_a_server_that_lists_something_new_all_the_time_does_not_fill_the_memory() -> None:
    words = ToolForms(most_bytes=20_000)
    first = words.reduced(tools("s", "first"))["s"]
    kept = words.reduced(tools("t", "kept"))["t"]
    for number in range(200):
        words.reduced(tools("s", f"do{number}"))
        assert words.reduced(tools("t", "kept"))["t"] is kept
    assert words.reduced(tools("s", "first"))["s"] is not first
    assert words.reduced(tools("s", "first"))["s"] == first


def test_a_server_of_more_than_is_remembered_is_put_into_words_all_the_same() -> None:
    words = ToolForms(most_bytes=10)
    items = [*tools("s", "a", "b"), *tools("t", "c")]
    worded = words.reduced(items)
    assert [len(worded[server].slims) for server in ("s", "t")] == [2, 1]
    assert words.reduced(items) == worded


def test_a_definition_in_a_dialect_is_made_once_and_as_it_is_where_there_is_none() -> None:
    words = ToolForms()
    definition = wordy("a")
    for dialect in (Dialect.GEMINI, Dialect.OPENAI):
        assert words.adapted(definition, dialect) is words.adapted(definition, dialect)
    assert words.adapted(definition, Dialect.PLAIN).definition is definition


def test_a_strict_client_sees_every_type_in_few_words_and_no_other_client_does() -> None:
    words = ToolForms()
    many = a_definition({f"argument_{number}": LONG for number in range(20)})
    item = Item(ItemKind.TOOLS, "s", "a", "a", many)
    typed = {}
    for dialect in Dialect:
        properties = json.loads(words.reduced([item], dialect)["s"].slims[many])["inputSchema"]["properties"]
        assert len(properties) == 20
        typed[dialect] = sum(map(bool, properties.values()))
    assert typed == {Dialect.PLAIN: 0, Dialect.GEMINI: 0, Dialect.OPENAI: 20}
    assert words.reduced([item], Dialect.GEMINI)["s"] is words.reduced([item])["s"]


def test_a_strict_client_sees_whole_what_it_could_not_call_by_few_words() -> None:
    either = a_definition({"it": {"anyOf": [LONG, {"type": "object", "properties": {"a": LONG}}]}})
    item = Item(ItemKind.TOOLS, "s", "a", "a", either)
    assert ToolForms().reduced([item], Dialect.OPENAI)["s"].slims[either] == either
    assert ToolForms().reduced([item])["s"].slims[either] != either


async def test_what_a_strict_client_writes_for_few_words_reaches_the_tool_as_it_wants_it() -> None:
    inside = {"type": "object", "properties": {"name": LONG, "note": LONG}, "required": ["name"]}
    many: dict[str, Any] = {f"argument_{number}": LONG for number in range(20)}
    definition = a_definition({**many, "entities": {"type": "array", "items": inside}})
    item = Item(ItemKind.TOOLS, "s", "a", "s_a", definition)
    stage = ListingFixture(
        ListingMode.SLIM, {"s": [definition]}, clients=KnownClients(dialect=Dialect.OPENAI)
    )
    schema = (await stage.listed())[-1]["inputSchema"]
    assert schema["required"] == [*many, "entities"]
    assert schema["properties"]["entities"]["anyOf"][0]["items"]["type"] == "string"
    written = dict.fromkeys(many) | {"entities": ['{"name":"x","note":null}']}
    params = {"arguments": msgspec.Raw(json.dumps(written).encode())}
    request = stage.tool_listings.restore_arguments(request_of(ONE, "s_a", params=params), item)
    assert json.loads(bytes(request.params["arguments"])) == {"entities": [{"name": "x"}]}


LONG = {"type": "string", "description": "Says at some length what nobody needs in order to call it"}


def a_definition(properties: dict[str, Any]) -> bytes:
    return json.dumps({"name": "a", "inputSchema": {"type": "object", "properties": properties}}).encode()
