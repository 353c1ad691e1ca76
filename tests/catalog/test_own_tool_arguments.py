"""The arguments of the gateway's own tools: read forgivingly, and refused in one sentence each."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from headgate.catalog.own_tools import (
    CALL_DEFINITION,
    RetrieveToolsArguments,
    read_retrieve_arguments,
    read_wrapped_call,
    retrieve_definition,
)
from headgate.domain.errors import Effect, InvalidArguments, UnknownArgument


def params(arguments: Any) -> dict[str, Raw]:
    """Bytes are sent as they are."""
    return {"arguments": Raw(arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode())}


def wrapped(arguments: Any) -> tuple[str, bytes]:
    name, inner = read_wrapped_call(params(arguments))
    return name, bytes(inner)


# retrieve_tools.


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"query": "x"}, RetrieveToolsArguments(query="x")),
        ({"query": ""}, RetrieveToolsArguments(query="")),
        ({"queries": ["x"]}, RetrieveToolsArguments(queries=["x"])),
        ({"queries": ["x"] * 10}, RetrieveToolsArguments(queries=["x"] * 10)),
        ({"query": "x", "limit": 1}, RetrieveToolsArguments(query="x", limit=1)),
        ({"query": "x", "limit": 50}, RetrieveToolsArguments(query="x", limit=50)),
        ({"query": "x", "servers": ["a", "b"]}, RetrieveToolsArguments(query="x", servers=["a", "b"])),
        ({"query": "x", "read_only": True}, RetrieveToolsArguments(query="x", read_only=True)),
        ({"query": "x", "detail": "full"}, RetrieveToolsArguments(query="x", detail="full")),
        ({"query": "x", "detail": "explain"}, RetrieveToolsArguments(query="x", detail="explain")),
        ({"query": "x", "limit": "3"}, RetrieveToolsArguments(query="x", limit=3)),
        ({"query": "x", "limit": " 50 "}, RetrieveToolsArguments(query="x", limit=50)),
        ({"query": "x", "limit": 3.0}, RetrieveToolsArguments(query="x", limit=3)),
        ({"query": "x", "limit": "3.0"}, RetrieveToolsArguments(query="x", limit=3)),
        ({"query": "x", "servers": "github"}, RetrieveToolsArguments(query="x", servers=["github"])),
        ({"query": "x", "servers": '["a", "b"]'}, RetrieveToolsArguments(query="x", servers=["a", "b"])),
        ({"query": "x", "servers": "[a"}, RetrieveToolsArguments(query="x", servers=["[a"])),
        ({"queries": "x"}, RetrieveToolsArguments(queries=["x"])),
        ({"query": "x", "read_only": "true"}, RetrieveToolsArguments(query="x", read_only=True)),
        ({"query": "x", "read_only": "False"}, RetrieveToolsArguments(query="x", read_only=False)),
        ({"query": "3", "limit": "3"}, RetrieveToolsArguments(query="3", limit=3)),
    ],
)
def test_what_is_looked_for_is_read(arguments: dict[str, Any], expected: RetrieveToolsArguments) -> None:
    assert read_retrieve_arguments(params(arguments)) == expected


def test_an_argument_of_null_is_left_out() -> None:
    nothing = dict.fromkeys(["queries", "limit", "servers", "read_only", "detail"])
    given = read_retrieve_arguments(params({"query": "x", **nothing}))
    assert (given.query, given.queries, given.limit, given.servers) == ("x", None, None, None)
    assert not given.read_only
    assert given.detail not in ("full", "explain")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "retrieve_tools: neither query nor queries is given"),
        ({"query": None, "queries": None}, "retrieve_tools: neither query nor queries is given"),
        ({"query": "x", "queries": ["y"]}, "retrieve_tools: query and queries are both given"),
        ({"query": 5}, "retrieve_tools: query: expected a text, got a whole number"),
        ({"query": ["x"]}, "retrieve_tools: query: expected a text, got a list"),
        ({"queries": []}, "retrieve_tools: queries: expected a list of length >= 1"),
        ({"queries": ["x"] * 11}, "retrieve_tools: queries: expected a list of length <= 10"),
        ({"queries": 5}, "retrieve_tools: queries: expected a list, got a whole number"),
        ({"queries": ["x", 5]}, "retrieve_tools: queries[1]: expected a text, got a whole number"),
        ({"query": "x", "limit": 0}, "retrieve_tools: limit: expected a whole number >= 1"),
        ({"query": "x", "limit": -1}, "retrieve_tools: limit: expected a whole number >= 1"),
        ({"query": "x", "limit": 51}, "retrieve_tools: limit: expected a whole number <= 50"),
        ({"query": "x", "limit": "five"}, "retrieve_tools: limit: expected a whole number, got a text"),
        ({"query": "x", "limit": ""}, "retrieve_tools: limit: expected a whole number, got a text"),
        ({"query": "x", "limit": "51"}, "retrieve_tools: limit: expected a whole number <= 50"),
        ({"query": "x", "limit": "true"}, "retrieve_tools: limit: expected a whole number, got a text"),
        ({"query": "x", "limit": True}, "retrieve_tools: limit: expected a whole number, got true or false"),
        ({"query": "x", "limit": 1.5}, "retrieve_tools: limit: expected a whole number, got a number"),
        ({"query": "x", "servers": {}}, "retrieve_tools: servers: expected a list, got an object"),
        ({"query": "x", "read_only": "no"}, "retrieve_tools: read_only: expected true or false, got a text"),
        ({"query": "x", "detail": "all"}, "retrieve_tools: detail: expected brief, full or explain"),
        ({"query": "x", "detail": "a" * 9999}, "retrieve_tools: detail: expected brief, full or explain"),
        ([], "retrieve_tools: expected an object, got a list"),
        (None, "retrieve_tools: neither query nor queries is given"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(arguments: Any, sentence: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        read_retrieve_arguments(params(arguments))
    assert str(refused.value) == sentence
    assert refused.value.hint
    assert (refused.value.code, refused.value.effect) == ("INVALID_PARAMS", Effect.NONE)


def test_without_arguments_it_is_said_how_to_call_it() -> None:
    with pytest.raises(InvalidArguments) as refused:
        read_retrieve_arguments({})
    assert '{"query": ' in refused.value.hint


@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [("qurey", "query"), ("top_k", "limit"), ("server", "servers"), ("Detail", "detail"), ("why", "")],
)
def test_the_nearest_argument_is_suggested_for_one_that_there_is_not(unknown: str, nearest: str) -> None:
    with pytest.raises(UnknownArgument) as refused:
        read_retrieve_arguments(params({"queries": ["x"], unknown: "x"}))
    allowed = "allowed: detail, limit, queries, query, read_only, servers"
    meant = f"did you mean {nearest}? " if nearest else ""
    assert str(refused.value) == f"retrieve_tools has no argument '{unknown}'; {meant}{allowed}"


@pytest.mark.parametrize(
    "arguments",
    [
        b'{"query":"\xff"}',
        rb'{"query":"\ud800"}',
        b'{"query":',
        b"",
        b'{"query":"x","more":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"query":"x","limit":' + b"9" * 400 + b"}",
    ],
)
def test_what_no_parser_takes_is_refused(arguments: bytes) -> None:
    with pytest.raises(InvalidArguments):
        read_retrieve_arguments(params(arguments))
    with pytest.raises(InvalidArguments):
        wrapped(arguments)


# call_tool.


@pytest.mark.parametrize(
    ("arguments", "inner"),
    [
        (b'{"name":"x"}', b"{}"),
        (b'{"name":"x","args":{}}', b"{}"),
        (b'{"name":"x","args":{"a": 1e400, "b":[ ]}}', b'{"a": 1e400, "b":[ ]}'),
        (b'{"name":"x","args":null}', b"{}"),
        # As models write it, too.
        (b'{"name":"x","arguments":{"a":1}}', b'{"a":1}'),
        (b'{"name":"x","args":null,"arguments":{"a":1}}', b'{"a":1}'),
        (b'{"name":"x","params":{"a":1}}', b'{"a":1}'),
        (b'{"name":"x","parameters":{"a":1}}', b'{"a":1}'),
        (b'{"name":"x","input":{"a":1}}', b'{"a":1}'),
        (b'{"name":"x","args":null,"arguments":null,"input":null}', b"{}"),
        (rb'{"name":"x","input":"{\"a\": 1}"}', b'{"a": 1}'),
        (rb'{"name":"x","args":"{\"a\": 1}"}', b'{"a": 1}'),
        (rb'{"name":"x","args":"\n {\"a\":\"\u00e9\"} "}', '{"a":"é"}'.encode()),
        (b'{"name":"x","args":""}', b"{}"),
        (b'{"name":"x","args":"  "}', b"{}"),
        (b'{"name":"x","args":"null"}', b"{}"),
        (b'{"name":"x","args":"{}"}', b"{}"),
    ],
)
def test_the_call_inside_is_read_byte_for_byte(arguments: bytes, inner: bytes) -> None:
    assert wrapped(arguments) == ("x", inner)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "call_tool: object missing required field `name`"),
        ({"args": {}}, "call_tool: object missing required field `name`"),
        ({"name": ""}, "call_tool: name: expected a text of length >= 1"),
        ({"name": None}, "call_tool: name: expected a text, got `null`"),
        ({"name": 5}, "call_tool: name: expected a text, got a whole number"),
        ({"name": "x", "args": []}, "call_tool: args is not an object"),
        ({"name": "x", "args": 5}, "call_tool: args is not an object"),
        ({"name": "x", "args": True}, "call_tool: args is not an object"),
        ({"name": "x", "args": "[]"}, "call_tool: args is not an object"),
        ({"name": "x", "args": '"{}"'}, "call_tool: args is not an object"),
        (["x"], "call_tool: expected an object, got a list"),
        (None, "call_tool: object missing required field `name`"),
    ],
)
def test_a_call_without_a_tool_is_refused_in_one_sentence(arguments: Any, sentence: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        wrapped(arguments)
    assert str(refused.value) == sentence
    assert '{"name": ' in refused.value.hint


@pytest.mark.parametrize(
    ("arguments", "sentence", "target"),
    [
        (
            {"name": "x", "dry_run": True},
            "call_tool has no argument 'dry_run'; allowed: args, name",
            "x",
        ),
        (
            {"name": "x", "arg": {}, "force": True},
            "call_tool has no argument 'arg' (nor 'force'); did you mean args? allowed: args, name",
            "x",
        ),
        (
            {"Name": "x", "args": {}},
            "call_tool has no argument 'Name'; did you mean name? allowed: args, name",
            "call_tool",
        ),
        (
            {"tool": "x", "args": {}},
            "call_tool has no argument 'tool'; did you mean name? allowed: args, name",
            "call_tool",
        ),
        ({"name": 5, "": None}, "call_tool has no argument ''; allowed: args, name", "call_tool"),
    ],
)
def test_a_member_that_call_tool_does_not_have_is_refused(arguments: Any, sentence: str, target: str) -> None:
    with pytest.raises(UnknownArgument) as refused:
        wrapped(arguments)
    assert str(refused.value) == sentence
    assert refused.value.target == target
    assert "args" in refused.value.hint


def test_many_and_long_members_make_a_short_sentence() -> None:
    with pytest.raises(UnknownArgument) as refused:
        wrapped({"name": "x" * 10_000, **{f"{'y' * 10_000}{number}": 1 for number in range(100)}})
    assert len(refused.value.sentence) < 600


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"args": {"a": 1}, "arguments": {"b": 1}}, "call_tool: args and arguments are both given"),
        ({"params": {}, "input": ""}, "call_tool: params and input are both given"),
        ({"args": {}, "params": {}, "input": 5}, "call_tool: args, params, input are all given"),
    ],
)
def test_two_containers_of_arguments_are_refused(arguments: Any, sentence: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        wrapped({"name": "x", **arguments})
    assert str(refused.value) == sentence
    assert refused.value.hint == "give the arguments once, in args"


@pytest.mark.parametrize(
    "text", [b'"{"', b'"a=1"', rb'"\ud800"', b'"\xff"', b'"' + b"[" * 5000 + b'"', rb'"{\"a\":\"\\ud800\"}"']
)
def test_a_text_that_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidArguments) as refused:
        wrapped(b'{"name":"x","args":' + text + b"}")
    assert len(str(refused.value)) < 200


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
members = st.sampled_from(
    ["query", "queries", "limit", "servers", "read_only", "detail", "name", "args", "arguments"]
)


@given(values | st.dictionaries(members, values))
@settings(max_examples=60)
def test_whatever_is_sent_is_read_or_refused(arguments: Any) -> None:
    for read in (read_retrieve_arguments, read_wrapped_call):
        try:
            read(params(arguments))
        except InvalidArguments:
            continue


@given(st.dictionaries(st.text(), values))
@settings(max_examples=40)
def test_an_object_as_text_is_the_object(arguments: dict[str, Any]) -> None:
    text = json.dumps(arguments, allow_nan=False) if _finite(arguments) else "{}"
    assert wrapped({"name": "x", "args": text}) == ("x", text.encode())


def _finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


# What clients read about them.


def retrieve_tools(*servers: str) -> dict[str, Any]:
    definition: dict[str, Any] = json.loads(retrieve_definition(servers))
    return definition


def test_the_definitions_say_what_is_taken() -> None:
    schema = retrieve_tools("a")["inputSchema"]
    assert set(schema["properties"]) == set(RetrieveToolsArguments.__struct_fields__)
    assert (schema["properties"]["limit"]["minimum"], schema["properties"]["limit"]["maximum"]) == (1, 50)
    assert schema["properties"]["queries"]["maxItems"] == 10
    assert schema["properties"]["detail"]["enum"] == ["brief", "full", "explain"]
    assert json.loads(CALL_DEFINITION)["inputSchema"]["required"] == ["name"]


def test_the_servers_are_named_as_far_as_they_fit() -> None:
    assert "Servers" not in retrieve_tools()["description"]
    assert retrieve_tools("git", "mail")["description"].endswith(" Servers: git, mail.")
    many = retrieve_tools(*(f"server-number-{number}" for number in range(1000)))["description"]
    assert len(many) < 600
    assert many.endswith(" more.")
    assert len(retrieve_tools("x" * 10_000)["description"]) < 600
    assert len(retrieve_tools("a", "x" * 10_000)["description"]) < 600
