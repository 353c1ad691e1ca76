"""Where a path leads: through properties, arrays, branches and references, however it is written."""

import json
from typing import Any

import pytest

from tests.catalog.expand_schema.expand_schema_client import NAME, ExpandSchemaClient, an_object, tool

TEXT, NUMBER, YES = {"type": "string"}, {"type": "number"}, {"const": "yes"}


def desk(**properties: Any) -> ExpandSchemaClient:
    return ExpandSchemaClient(tool(an_object(**properties)))


# Through properties, arrays and maps.


async def test_properties_are_followed_by_their_names() -> None:
    assert await desk(a=an_object(b=an_object(c=YES))).value("a", "b", "c") == YES


async def test_a_part_may_be_a_schema_that_is_only_true() -> None:
    assert await desk(a=an_object(b=True)).value("a", "b") is True


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (["filters"], {"type": "array", "items": an_object(field=YES)}),
        (["filters", "items"], an_object(field=YES)),
        (["filters", "items", "field"], YES),
        (["filters", "field"], YES),
        (["filters", 0], an_object(field=YES)),
        (["filters", "3", "field"], YES),
    ],
)
async def test_an_array_is_followed_by_its_word_by_a_number_or_in_silence(
    path: list[Any], found: Any
) -> None:
    filters = {"type": "array", "items": an_object(field=YES)}
    assert await desk(filters=filters).value(*path) == found


async def test_arrays_of_arrays_are_looked_through() -> None:
    rows = {"type": "array", "items": {"type": "array", "items": an_object(cell=YES)}}
    assert await desk(rows=rows).value("rows", "cell") == YES
    assert await desk(rows=rows).value("rows", "items", "items", "cell") == YES


@pytest.mark.parametrize("keyword", ["prefixItems", "items"])
async def test_a_place_in_a_tuple_has_a_number(keyword: str) -> None:
    pair = {"type": "array", keyword: [TEXT, an_object(deep=YES)]}
    for path in (["pair", 1], ["pair", "1"], ["pair", keyword, "1"]):
        assert await desk(pair=pair).value(*path) == an_object(deep=YES)
    assert await desk(pair=pair).value("pair", "deep") == YES
    assert await desk(pair=pair).value("pair", keyword) == [TEXT, an_object(deep=YES)]
    told = await desk(pair=pair).refusal(["pair", keyword, 2])
    assert told == f"""No '2' in ["pair","{keyword}"] of {NAME}; there are: 0, 1"""


async def test_what_follows_a_tuple_has_every_further_number() -> None:
    pair = {"type": "array", "prefixItems": [TEXT], "items": YES}
    assert await desk(pair=pair).value("pair", 7) == YES


async def test_the_values_of_a_map_are_followed_by_the_word_or_in_silence() -> None:
    labels = {"type": "object", "additionalProperties": an_object(colour=YES)}
    assert await desk(labels=labels).value("labels", "additionalProperties", "colour") == YES
    assert await desk(labels=labels).value("labels", "colour") == YES


async def test_a_pattern_is_a_name_and_is_never_matched() -> None:
    headers = {"type": "object", "patternProperties": {"^(x+)+$": an_object(value=YES)}}
    for path in (["^(x+)+$"], ["patternProperties", "^(x+)+$"]):
        assert await desk(headers=headers).value("headers", *path) == an_object(value=YES)
    assert await desk(headers=headers).value("headers", "value") == YES
    assert "^(x+)+$" in await desk(headers=headers).refusal(["headers", "x" * 50])


# Through branches.


@pytest.mark.parametrize("union", ["anyOf", "oneOf", "allOf"])
async def test_a_branch_has_a_number_and_a_name_that_only_it_has_is_found_in_it(union: str) -> None:
    choice = {union: [{"type": "null"}, an_object(path=YES)]}
    assert await desk(choice=choice).value("choice", union, "1") == an_object(path=YES)
    assert await desk(choice=choice).value("choice", union, 1, "path") == YES
    assert await desk(choice=choice).value("choice", "path") == YES
    assert await desk(choice=choice).value("choice", union) == choice[union]


async def test_an_optional_list_is_a_list() -> None:
    tags = {"anyOf": [{"type": "array", "items": an_object(name=YES)}, {"type": "null"}]}
    for path in (["tags", "name"], ["tags", "items", "name"], ["tags", 0, "name"]):
        assert await desk(tags=tags).value(*path) == YES


async def test_branches_of_the_arguments_as_a_whole_are_looked_through() -> None:
    schema = {"type": "object", "oneOf": [an_object(a=TEXT), an_object(b=YES)]}
    assert await ExpandSchemaClient(tool(schema)).value("b") == YES


async def test_a_name_that_several_branches_have_is_shown_once_and_the_others_are_named() -> None:
    create, delete = (
        an_object(kind={"const": "create"}),
        an_object(kind={"const": "delete"}, id=an_object(n=YES)),
    )
    action = {"oneOf": [create, delete, create]}
    first, note = await desk(action=action).texts(["action", "kind"])
    assert json.loads(first) == {"const": "create"}
    assert note == 'Also at path: ["action","oneOf","1","kind"]'
    assert await desk(action=action).value("action", "oneOf", "1", "kind") == {"const": "delete"}


async def test_a_branch_that_leads_nowhere_is_left_again() -> None:
    options = {"anyOf": [an_object(x=TEXT), an_object(x=an_object(y=YES))]}
    assert await desk(options=options).value("options", "x", "y") == YES


# Names that mean something else as well.


@pytest.mark.parametrize(
    "name", ["type", "properties", "items", "anyOf", "$ref", "required", "$defs", "additionalProperties", "0"]
)
async def test_a_property_comes_before_the_keyword_of_its_name(name: str) -> None:
    schema = an_object(**{name: an_object(inner=YES)}) | {
        "items": TEXT,
        "anyOf": [NUMBER],
        "additionalProperties": TEXT,
        "$defs": {"inner": TEXT},
    }
    assert await ExpandSchemaClient(tool(schema)).value(name) == an_object(inner=YES)
    assert await ExpandSchemaClient(tool(schema)).value(name, "inner") == YES
    nested = ExpandSchemaClient(tool(an_object(outer=schema)))
    assert await nested.value("outer", name, "inner") == YES


async def test_a_property_of_a_branch_comes_before_a_keyword() -> None:
    schema = {"type": "object", "anyOf": [an_object(anyOf=YES)]}
    assert await ExpandSchemaClient(tool(schema)).value("anyOf") == YES
    assert await ExpandSchemaClient(tool(schema)).value("anyOf", "0") == an_object(anyOf=YES)


async def test_the_word_properties_may_be_said() -> None:
    made = desk(a=an_object(b=YES))
    assert await made.value("properties", "a", "properties", "b") == YES
    assert await made.value("a", "properties") == {"b": YES}


async def test_what_a_keyword_has_beside_its_property_is_still_reached() -> None:
    orders = {"type": "array", "items": an_object(items={"type": "array", "items": an_object(sku=YES)})}
    made = desk(orders=orders)
    for path in (
        ["orders", "items", "sku"],
        ["orders", "items", "items", "sku"],
        ["orders", 0, "items", 0, "sku"],
    ):
        assert await made.value(*path) == YES
    first, note = await made.texts(["orders", "items"])
    assert json.loads(first) == orders["items"]
    assert note == 'Also at path: ["orders","items","items"]'


# Through references.


async def test_a_reference_is_followed_on_the_way_and_at_the_end() -> None:
    schema = an_object(who={"$ref": "#/$defs/Person"}) | {"$defs": {"Person": an_object(name=YES)}}
    made = ExpandSchemaClient(tool(schema))
    assert await made.value("who", "name") == YES
    assert await made.text(["who"]) == json.dumps(an_object(name=YES))
    assert await made.text(["$defs", "Person"]) == json.dumps(an_object(name=YES))


async def test_what_stands_beside_a_reference_is_kept_and_its_target_comes_too() -> None:
    schema = an_object(who={"$ref": "#/$defs/P", "description": "Who."}) | {
        "$defs": {"P": an_object(name=YES)}
    }
    itself, target, note = await ExpandSchemaClient(tool(schema)).texts(["who"])
    assert json.loads(itself) == {"$ref": "#/$defs/P", "description": "Who."}
    assert json.loads(target) == an_object(name=YES)
    assert note == 'Expand $ref with path: ["$defs","P"]'


async def test_a_part_with_references_says_how_to_read_on() -> None:
    inner = an_object(
        a={"$ref": "#/$defs/A"}, b={"anyOf": [{"$ref": "#/definitions/B"}, {"$ref": "#/$defs/A"}]}
    )
    schema = an_object(part=inner) | {"$defs": {"A": YES}, "definitions": {"B": TEXT}}
    text, note = await ExpandSchemaClient(tool(schema)).texts(["part"])
    assert text == json.dumps(inner)
    assert note == 'Expand $ref with path: ["$defs","A"], ["definitions","B"]'


async def test_the_whole_schema_needs_no_such_note() -> None:
    schema = an_object(a={"$ref": "#/$defs/A"}) | {"$defs": {"A": YES}}
    assert await ExpandSchemaClient(tool(schema)).text() == json.dumps(schema)


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("#/$defs/a~1b", "a/b"),
        ("#/$defs/a~0b", "a~b"),
        ("#/$defs/a~01b", "a~1b"),
        ("#/$defs/a%20b", "a b"),
        ("#/%24defs/a%25b", "a%b"),
        ("#/$defs/%C3%A9", "é"),
        ("#/$defs/", ""),
    ],
)
async def test_references_are_read_with_their_escapes(reference: str, name: str) -> None:
    schema = an_object(x={"$ref": reference}, y=an_object(z={"$ref": reference})) | {"$defs": {name: YES}}
    made = ExpandSchemaClient(tool(schema))
    assert await made.value("x") == YES
    _, note = await made.texts(["y"])
    assert await made.value(*json.loads(note.removeprefix("Expand $ref with path: "))) == YES


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#/properties/list/items", YES),
        ("#/properties/pair/prefixItems/1", YES),
        ("#/components/schemas/Thing", YES),
    ],
)
async def test_a_reference_may_lead_anywhere_in_the_schema(reference: str, target: Any) -> None:
    schema = an_object(
        list={"type": "array", "items": YES},
        pair={"prefixItems": [TEXT, YES]},
        x=an_object(y={"$ref": reference}),
    ) | {"components": {"schemas": {"Thing": YES}}}
    made = ExpandSchemaClient(tool(schema))
    _, note = await made.texts(["x"])
    assert await made.value(*json.loads(note.removeprefix("Expand $ref with path: "))) == target
    assert await made.value(reference) == await made.value("x", "y") == target


async def test_a_reference_that_names_would_miss_is_a_path_itself() -> None:
    schema = an_object(**{"$defs": an_object(A=TEXT), "x": an_object(y={"$ref": "#/$defs/A"})}) | {
        "$defs": {"A": YES}
    }
    made = ExpandSchemaClient(tool(schema))
    _, note = await made.texts(["x"])
    assert note == 'Expand $ref with path: ["#/$defs/A"]'
    assert await made.value("#/$defs/A") == YES


async def test_a_reference_to_everything_is_the_empty_path() -> None:
    tree = an_object(children={"type": "array", "items": {"$ref": "#"}})
    _, note = await ExpandSchemaClient(tool(tree)).texts(["children"])
    assert note == "Expand $ref with path: []"
    assert await ExpandSchemaClient(tool(tree)).value(*["children"] * 40) == tree["properties"]["children"]


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("https://example.com/schema.json", "is outside of the schema and never fetched"),
        ("other.json#/a", "is outside of the schema and never fetched"),
        ("#/$defs/Nobody", "leads nowhere"),
        ("#anchor", "leads nowhere"),
        ("#/properties/x/type/3", "leads nowhere"),
        ("#/" + "a/" * 5_000, "leads nowhere"),
    ],
)
async def test_a_reference_to_what_is_not_here_is_said_and_never_fetched(reference: str, reason: str) -> None:
    made = desk(x={"$ref": reference}, y=an_object(z={"$ref": reference}))
    told = await made.refusal(["x", "name"])
    assert told.startswith(f"""No 'name' in ["x"] of {NAME}; nothing is inside; its $ref '{reference[:90]}""")
    assert told.endswith(reason)
    itself, note = await made.texts(["x"])
    assert json.loads(itself) == {"$ref": reference}
    assert note.endswith(reason)
    assert (await made.texts(["y"]))[1].endswith(reason)


@pytest.mark.parametrize("reference", [5, None, [], {"a": 1}, True])
async def test_a_reference_that_is_no_text_is_none(reference: Any) -> None:
    assert await desk(x={"$ref": reference, "properties": {"a": YES}}).value("x", "a") == YES


async def test_references_that_turn_in_a_circle_end() -> None:
    schema = an_object(x={"$ref": "#/$defs/A"}) | {
        "$defs": {
            "A": {"$ref": "#/$defs/B"},
            "B": {"$ref": "#/$defs/A"},
            "C": {"anyOf": [{"$ref": "#/$defs/C"}, {"$ref": "#/$defs/D"}, an_object(c=YES)]},
            "D": {"allOf": [{"$ref": "#/$defs/C"}]},
        }
    }
    made = ExpandSchemaClient(tool(schema))
    assert "$ref" in await made.value("x")
    assert (await made.refusal(["x", "y"])).startswith(f"""No 'y' in ["x"] of {NAME}""")
    assert await made.value("$defs", "D", "c") == YES


async def test_references_are_followed_from_one_to_the_next() -> None:
    defs = {f"D{i}": {"$ref": f"#/$defs/D{i + 1}"} for i in range(30)} | {"D30": an_object(end=YES)}
    assert (
        await ExpandSchemaClient(tool(an_object(x={"$ref": "#/$defs/D0"}) | {"$defs": defs})).value(
            "x", "end"
        )
        == YES
    )


# Paths as models write them.


@pytest.mark.parametrize(
    "path",
    [
        ["a", "b", "c"],
        "a.b.c",
        "a/b/c",
        "/a/b/c",
        "$.a.b.c",
        "a.b[].c",
        "a.b[0].c",
        '["a","b","c"]',
        ' ["a", "b", "c"]',
        ["a.b", "c"],
        ["a.b.c"],
        "#/properties/a/properties/b/items/properties/c",
    ],
)
async def test_a_path_may_be_written_in_many_ways(path: Any) -> None:
    made = desk(a=an_object(b={"type": "array", "items": an_object(c=YES)}))
    assert json.loads((await made.texts(path))[0]) == YES


@pytest.mark.parametrize("name", ["a.b", "a/b", "[x]", "[", "$", "#", "#/$defs/A", " ", "é", "a~1b"])
async def test_a_name_is_a_name_before_it_is_a_path(name: str) -> None:
    made = ExpandSchemaClient(
        tool(an_object(a=an_object(b=TEXT), x=TEXT, **{name: YES}) | {"$defs": {"A": TEXT}})
    )
    assert json.loads(await made.text(name)) == YES
    assert await made.value(name) == YES


@pytest.mark.parametrize("path", [7, [7], "7"])
async def test_a_number_may_be_a_name(path: Any) -> None:
    assert json.loads(await desk(**{"7": YES}).text(path)) == YES
