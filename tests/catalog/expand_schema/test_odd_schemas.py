"""Whatever a server writes and a client asks: an answer or one sentence, and never anything else."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog.errors import InvalidExpansionRequest, SchemaNotFound
from headgate.domain.errors import HeadgateError
from headgate.domain.item import Item
from tests.catalog.expand_schema.expand_schema_client import (
    NAME,
    ExpandSchemaClient,
    an_object,
    ask,
    item,
    tool,
)
from tests.protocol.json_spelling import Pen, pens, scalars, values

KEYWORDS = [
    "type",
    "properties",
    "items",
    "prefixItems",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "$defs",
    "required",
    "additionalProperties",
    "patternProperties",
    "description",
    "a",
    "b",
    "",
    "0",
]
names = st.sampled_from(KEYWORDS)
references = st.sampled_from(
    [
        "#",
        "#/",
        "#/$defs/a",
        "#/properties/a",
        "#/properties/a/items/0",
        "#/anyOf/0",
        "#/$defs",
        "https://x.y/z",
    ]
)


def _nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4))


schemas = st.recursive(st.one_of(scalars, references), _nest, max_leaves=25)
objects = st.dictionaries(names, schemas, max_size=6)
paths = st.lists(st.one_of(names, st.sampled_from(["a.b", "#/$defs/a", "items/0", "1"])), max_size=6)
modes = st.sampled_from(["schema", "docs"])


def said(of: Item, path: Any, mode: str) -> list[str] | str:
    """The answer or the sentence; anything else that is raised goes through."""
    try:
        return ask(of, path, mode)
    except HeadgateError as error:
        message = error.message
    assert 0 < len(message) < 5_000
    return message


@given(objects, paths, modes, pens)
def test_any_schema_is_answered_or_refused_in_a_sentence(
    schema: dict[str, Any], path: list[str], mode: str, pen: Pen
) -> None:
    made = tool(pen.value(schema).encode())
    answer = said(made, path, mode)
    assert said(made, path, mode) == answer
    if mode == "docs" and isinstance(answer, list):
        assert isinstance(json.loads(answer[0]), dict)
    if not path:
        assert isinstance(answer, list)


@given(objects, paths)
def test_what_is_found_stands_in_the_schema(schema: dict[str, Any], path: list[str]) -> None:
    answer = said(tool(schema), path, "schema")
    if isinstance(answer, list):
        assert answer[0] in json.dumps(schema)


@given(st.one_of(st.just(NAME), values), st.one_of(values, paths), st.one_of(values, modes))
def test_any_arguments_are_answered_or_refused(name: Any, path: Any, mode: Any) -> None:
    for arguments in ({"toolName": name, "path": path, "mode": mode}, {"toolName": NAME, "path": path}, path):
        desk = ExpandSchemaClient(tool(an_object(a=an_object(b={}))))
        with suppress(InvalidExpansionRequest, SchemaNotFound):
            asyncio.run(desk.answer(arguments))
        assert desk.tool.expansions + desk.tool.refused == 1


@given(st.binary(max_size=60), st.lists(names, max_size=3), modes)
def test_even_bytes_that_are_no_definition_are_answered(
    definition: bytes, path: list[str], mode: str
) -> None:
    assert said(item(definition), path, mode) is not None


# Sizes.

DEEP = b'{"properties":{"x":' * 5_000 + b"{}" + b"}}" * 5_000


@pytest.mark.parametrize("mode", ["schema", "docs"])
def test_what_is_nested_too_deep_to_be_opened_comes_whole(mode: str) -> None:
    made = tool(DEEP)
    assert ask(made, None, mode) == [made.definition.decode()]
    told = said(made, ["x"], mode)
    assert told == f"{NAME} is nested too deep to be taken apart; leave path out to get it whole"


def test_a_path_leads_as_deep_as_it_is_long() -> None:
    schema: dict[str, Any] = {"const": "yes"}
    for _ in range(100):
        schema = an_object(x=schema)
    assert json.loads(ask(tool(schema), ["x"] * 100)[0]) == {"const": "yes"}


def test_a_hundred_thousand_branches_are_counted_and_each_has_its_number() -> None:
    made = tool({"type": "object", "anyOf": [{"a": 1}] * 99_999 + [{"b": 2}]})
    assert ask(made, ["anyOf", 99_999]) == ['{"b": 2}']
    assert said(made, ["x"], "schema") == f"No 'x' in the arguments of {NAME}; there are: anyOf"
    told = said(made, ["anyOf", "x"], "schema")
    assert isinstance(told, str)
    assert told.endswith("18, 19 and 99980 more")


def test_branches_that_are_references_are_looked_through() -> None:
    schema = {
        "type": "object",
        "anyOf": [{"$ref": f"#/$defs/D{i}"} for i in range(8_000)],
        "$defs": {f"D{i}": an_object(**{f"p{i}": {"const": i}}) for i in range(8_000)},
    }
    assert ask(tool(schema), ["p100"]) == ['{"const": 100}']
    told = said(tool(schema), ["x"], "schema")
    assert isinstance(told, str)
    assert "there are: p0, p1, p2, " in told


def test_a_schema_too_large_to_be_searched_says_so() -> None:
    schema: dict[str, Any] = an_object(q={})
    for _ in range(250):
        schema = {"type": "object", "anyOf": [schema], "description": "y" * 3_500}
    told = said(tool(schema), ["nope"], "schema")
    assert isinstance(told, str)
    assert told == (
        f"{NAME} is too large to be searched for 'nope' in the arguments; there are: anyOf; "
        "leave path out to get it whole"
    )
    # What a path names is found all the same.
    assert ask(tool(schema), ["anyOf", 0])


def test_what_a_path_names_is_found_however_large_the_rest_is() -> None:
    many = an_object(**{f"p{i}": {"description": "x" * 40} for i in range(60_000)})
    last = '{"description": "' + "x" * 40 + '"}'
    assert ask(tool(many), ["p59999"]) == [last]
    assert ask(tool(an_object(a=many)), ["a", "p59999"]) == [last]
    assert ask(tool(an_object(a=many)), "a.p59999") == [last]
    assert ask(tool({"type": "object", "anyOf": [many]}), ["anyOf", 0, "p59999"]) == [last]
    referring = an_object(a={"$ref": "#/$defs/many"}) | {"$defs": {"many": many}}
    assert ask(tool(referring), ["a", "p59999"]) == [last]
    # It was all looked at, so it can be said that there is nothing of that name.
    told = said(tool(many), ["nope"], "schema")
    assert isinstance(told, str)
    assert told.startswith(f"No 'nope' in the arguments of {NAME}; there are: p0, p1, ")


def test_names_that_need_another_spelling_are_found_in_a_large_object_too() -> None:
    names = ["", 'a"b', "a\\b", "a\nb", "é", "a/b", "member"]
    schema = an_object(**{name: {"const": at} for at, name in enumerate(names)}, long={"title": "x" * 70_000})
    for at, name in enumerate(names):
        assert ask(tool(schema), [name]) == [f'{{"const": {at}}}']


def test_it_is_not_said_of_what_was_not_searched_that_it_does_not_exist() -> None:
    many = an_object(**{f"p{i}": {"description": "x" * 40} for i in range(60_000)})
    # In a branch of a branch of a branch, each as large as the whole.
    for _ in range(3):
        many = {"type": "object", "anyOf": [many]}
    told = said(tool(many), ["p59999"], "schema")
    assert isinstance(told, str)
    assert told.startswith(f"{NAME} is too large to be searched for 'p59999' in the arguments")


def test_many_references_are_named_up_to_twenty() -> None:
    part = an_object(**{f"p{i}": {"$ref": f"#/$defs/D{i}"} for i in range(500)})
    schema = an_object(part=part) | {"$defs": {f"D{i}": {} for i in range(500)}}
    _, note = ask(tool(schema), ["part"])
    assert note.endswith('["$defs","D19"] and 480 more')


# Broken texts and numbers.


def test_half_of_a_surrogate_pair_does_not_hide_the_rest() -> None:
    schema = b'{"type":"object","properties":{"a":{"description":"\\ud800"},"\\udfff":{},"l":[[],"\\ud800"]}}'
    made = tool(schema)
    assert ask(made) == [schema.decode()]
    assert ask(made, ["a"]) == ['{"description":"\\ud800"}']
    assert ask(made, ["a"], "docs") == ['{"description":"\\ud800"}']
    assert said(made, ["x"], "schema") == f"No 'x' in the arguments of {NAME}; there are: a, ?, l"


def test_numbers_of_any_length_pass() -> None:
    number = b"1" * 400
    made = tool(b'{"type":"object","properties":{"a":{"maximum":' + number + b',"default":-0.0e-400}}}')
    assert ask(made, ["a"]) == [f'{{"maximum":{number.decode()},"default":-0.0e-400}}']
    assert ask(made, ["a"], "docs") == ['{"default":-0.0e-400}']


@pytest.mark.parametrize("value", [b"5", b"null", b'"x"', b"[]", b"true", b"[1,[2]]"])
def test_keywords_that_hold_something_else_lead_nowhere(value: bytes) -> None:
    for keyword in KEYWORDS[:12]:
        made = tool(b'{"type":"object","properties":{"x":{"' + keyword.encode() + b'":' + value + b"}}}")
        assert ask(made, ["x"])
        told = said(made, ["x", "y"], "schema")
        assert isinstance(told, str)
        assert told.startswith(f"""No 'y' in ["x"] of {NAME}; """)
