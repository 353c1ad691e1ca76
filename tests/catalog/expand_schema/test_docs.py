"""The prose of a part: what it says about itself, and a line about each of its children."""

from typing import Any

from tests.catalog.expand_schema.expand_schema_client import ExpandSchemaClient, an_object, tool

PART = an_object(
    street={"type": "string", "description": "With number.", "minLength": 1},
    country={"$ref": "#/$defs/Country"},
    floor={"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
    free={},
) | {
    "title": "Address",
    "description": "Where it goes.",
    "examples": [{"street": "A 1"}],
    "default": {},
    "required": ["street", "ghost"],
    "additionalProperties": False,
}
SCHEMA = an_object(to=PART, many={"type": "array", "description": "Others.", "items": PART}) | {
    "$defs": {"Country": {"type": "string", "description": "Two letters.", "enum": ["de", "fr"]}}
}
CHILDREN = {
    "street": {"type": "string", "required": True, "description": "With number."},
    "country": {"type": "string", "description": "Two letters."},
    "floor": {"type": ["integer", "null"]},
    "free": {},
}


async def docs(*path: str, schema: dict[str, Any] = SCHEMA) -> Any:
    return await ExpandSchemaClient(tool(schema)).value(*path, mode="docs")


async def test_a_part_tells_its_prose_and_a_line_about_each_child() -> None:
    assert await docs("to") == {
        "title": "Address",
        "description": "Where it goes.",
        "type": "object",
        "default": {},
        "examples": [{"street": "A 1"}],
        "children": CHILDREN,
    }


async def test_an_array_tells_the_children_of_its_elements() -> None:
    assert await docs("many") == {"description": "Others.", "type": "array", "children": CHILDREN}


async def test_a_reference_tells_what_it_refers_to() -> None:
    assert await docs("to", "country") == {"description": "Two letters.", "type": "string"}


async def test_what_stands_beside_a_reference_comes_first() -> None:
    told = await docs("x", schema=SCHEMA | an_object(x={"description": "Here.", "$ref": "#/$defs/Country"}))
    assert told == {"description": "Here.", "type": "string"}


async def test_a_keyword_tells_what_it_holds() -> None:
    assert await docs("$defs") == {"children": {"Country": {"type": "string", "description": "Two letters."}}}
    assert await docs("to", "floor", "anyOf") == {
        "children": {"0": {"type": "integer"}, "1": {"type": "null"}}
    }


async def test_a_part_without_prose_tells_nothing() -> None:
    assert await docs("to", "free") == {}


async def test_of_many_children_the_first_are_told_and_the_others_counted() -> None:
    told = await docs("x", schema=an_object(x=an_object(**{f"p{i}": {"type": "null"} for i in range(1_000)})))
    assert (len(told["children"]), told["more"]) == (200, 800)
