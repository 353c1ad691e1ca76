"""Slim tools and stubs: small, callable, and told apart."""

import json
from typing import Any

import pytest

from headgate.catalog.slim import Shared, forms, slim, stub
from tests.catalog.slim.tools import LONG, a_tool, arguments, described

PROSE = "Bare words about it that are of no use to a client and only fill up the definition here"


def argument(schema: Any) -> Any:
    """One argument of a tool as its slim form shows it."""
    return arguments(slim(a_tool(PROSE, {"it": schema, "other": LONG})))["it"]


# What is there.


def test_a_slim_tool_is_its_name_a_few_words_and_its_arguments() -> None:
    full = a_tool(
        "Reads the whole file at a path. Never follows links.",
        {"path": {**LONG, "minLength": 1}, "lines": {"type": "integer", "default": 10, "title": "Lines"}},
        "path",
        title="Read",
        icons=[{"src": "https://example.com/icon.png"}],
        outputSchema={"type": "object"},
        _meta={"a": 1},
        annotations={"title": "Read", "idempotentHint": True},
        schema={"additionalProperties": False, "$schema": "http://json-schema.org/draft-07/schema#"},
    )
    assert json.loads(slim(full)) == {
        "name": "files_read",
        "description": "Reads whole file at path",
        "inputSchema": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
            "required": ["path"],
        },
    }


def test_a_stub_is_its_name_and_a_few_words() -> None:
    full = a_tool("Reads the whole file at a path. Never follows links.", {"path": LONG}, "path")
    assert json.loads(stub(full)) == {
        "name": "files_read",
        "description": "Reads whole file at path",
        "inputSchema": {"type": "object"},
    }


@pytest.mark.parametrize(
    ("annotations", "kept"),
    [
        ({"readOnlyHint": True, "destructiveHint": False, "openWorldHint": True}, {"readOnlyHint": True}),
        ({"readOnlyHint": False, "destructiveHint": False}, {"destructiveHint": False}),
        # As good as nothing: what says nothing may destroy.
        ({"readOnlyHint": False, "destructiveHint": True}, None),
        ({"title": "A title", "idempotentHint": True}, None),
        ("odd", None),
    ],
)
def test_hints_that_change_what_a_client_does_stay(annotations: Any, kept: Any) -> None:
    form = json.loads(slim(a_tool(PROSE, {"it": LONG}, annotations=annotations)))
    assert form.get("annotations") == kept


@pytest.mark.parametrize("form", [slim, stub])
def test_what_is_small_already_stays_byte_for_byte(form: Any) -> None:
    full = b'{"name":"ping", "inputSchema":{"type":"object"}}'
    assert form(full) in (full, b'{"name":"ping","inputSchema":{"type":"object"}}')
    assert form(b'{"name":"p","inputSchema":{}}') == b'{"name":"p","inputSchema":{}}'


# Words.


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ("This tool allows you to send a mail to the team.", "send mail to team"),
        ("Use this tool to find, e.g. by name, the users. Fast.", "find, e.g. by name, users"),
        (
            "\n    Gets all **members** of a `set`.\n\n    Args:\n        name: The set.\n",
            "Gets all members of set",
        ),
        ("Lists all of the open issues\n\n- of a repository\n- of a user", "Lists all of open issues"),
        (
            "Sends a mail. Needs an account that was linked before.",
            "Sends mail. Needs account that was linked before",
        ),
        ("Fetch the call that was made (Uses the default account otherwise)", "Fetch call that was made"),
        ("List the groups (labels) of a user", "List groups (labels) of user"),
        ("查询。", "查询"),
        ("Ping", "Ping"),
        ("1. Counts the lines of all files. 2. Adds them up.", "Counts lines of all files"),
        ("   ", ""),
    ],
)
def test_the_first_sentence_says_it(description: str, words: str) -> None:
    assert described(slim(a_tool(description, {"it": {**LONG, "description": PROSE}}))) == words


def test_a_long_sentence_ends_at_a_word() -> None:
    words = described(slim(a_tool("Reads " + "many " * 100, {"it": LONG})))
    assert words.endswith("many…")
    assert len(words) <= 120


def test_examples_of_arguments_tell_tools_apart() -> None:
    samples = {"type": "string", "description": "The kind of sample to look at (e.g. blood, fibers or hair)"}
    assert described(slim(a_tool("Analyzes what was found", {"it": samples}))) == (
        "Analyzes what was found [blood fibers hair]"
    )


def test_what_is_shown_as_a_choice_is_not_said_again() -> None:
    order = {"type": "string", "description": PROSE, "enum": ["newest", "oldest"]}
    form = slim(a_tool("Lists what was found", {"order": order}))
    assert described(form) == "Lists what was found"
    assert arguments(form)["order"]["enum"] == ["newest", "oldest"]


# Arguments.


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "string", "pattern": "^a", "maxLength": 3}, {"type": "string"}),
        ({"type": ["integer", "null"], "minimum": 3}, {"type": ["integer", "null"]}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": ["string", "null"]}),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, {"type": "number"}),
        ({"anyOf": [{"type": "string"}, {}]}, {}),
        ({"allOf": [{"minimum": 3}, {"type": "number"}]}, {"type": "number"}),
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"enum": ["a", 1]}, {}),
        ({"const": "a"}, {"type": "string"}),
        ({"type": "string", "enum": [f"choice {n}" for n in range(100)]}, {"type": "string"}),
        (
            {"type": "array", "items": {"type": "string", "minLength": 3}},
            {"type": "array", "items": {"type": "string"}},
        ),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "array", "prefixItems": [{}], "items": {"type": "string"}}, {"type": "array", "items": {}}),
        ({"type": "object", "properties": {"deep": LONG}, "required": ["deep"]}, {"type": "object"}),
        ({"type": "str"}, {}),
        ({}, {}),
    ],
)
def test_an_argument_is_its_type(schema: Any, shown: Any) -> None:
    assert argument(schema) == shown


def test_a_reference_is_followed_for_its_type() -> None:
    definitions = {
        "Name": {"$ref": "#/$defs/Text"},
        "Text": {"type": "string", "description": PROSE},
        "a/b~c": {"type": "boolean"},
    }
    properties = {
        "name": {"$ref": "#/$defs/Name"},
        "names": {"type": "array", "items": {"$ref": "#/$defs/Name"}},
        "either": {"anyOf": [{"$ref": "#/$defs/Name"}, {"type": "null"}]},
        "escaped": {"$ref": "#/$defs/a~1b~0c"},
    }
    assert arguments(slim(a_tool(PROSE, properties, schema={"$defs": definitions}))) == {
        "name": {"type": "string"},
        "names": {"type": "array", "items": {"type": "string"}},
        "either": {"type": ["string", "null"]},
        "escaped": {"type": "boolean"},
    }


def test_arguments_that_may_be_left_out_are_counted_where_there_are_too_many() -> None:
    properties = {f"argument_{n}": LONG for n in range(30)}
    form = slim(a_tool("Reads a file", properties, "argument_29"))
    assert len(arguments(form)) == 10
    assert "argument_29" in arguments(form)
    assert described(form) == "Reads file (+20 args)"


def test_all_that_is_needed_is_shown() -> None:
    properties = {f"argument_{n}": LONG for n in range(30)}
    form = slim(a_tool("Reads a file", properties, *properties))
    assert list(arguments(form)) == json.loads(form)["inputSchema"]["required"] == list(properties)


def test_arguments_of_branches_are_named() -> None:
    branch = {"properties": {"by_name": LONG}}
    parts = {
        "allOf": [{"properties": {"always": LONG}, "required": ["always"]}],
        "oneOf": [branch, {"properties": {"by_number": {"type": "integer"}}}],
    }
    form = slim(a_tool(PROSE, {}, schema=parts))
    assert arguments(form) == {"always": {"type": "string"}, "by_name": {}, "by_number": {}}
    assert json.loads(form)["inputSchema"]["required"] == ["always"]


@pytest.mark.parametrize(
    "name", ["type", "$ref", "properties", "required", "items", "enum", "", "ünï", 'a"b\\c']
)
def test_an_argument_may_be_called_anything(name: str) -> None:
    assert arguments(slim(a_tool(PROSE, {name: LONG, "other": LONG}, name)))[name] == {"type": "string"}


# What several tools share.


def test_what_was_said_once_is_not_said_again() -> None:
    shared = Shared(frozenset(["The public interface of a service"]), ("retries", "tenant"))
    properties = dict.fromkeys(("name", "size", "tenant", "retries", "color"), LONG)
    form = slim(a_tool("The public interface of a service. Stops a machine.", properties, "name"), shared)
    assert described(form) == "Stops machine (+2 args)"
    assert list(arguments(form)) == ["name", "size", "color"]
    assert (
        described(stub(a_tool("The public interface of a service. Stops a machine."), shared))
        == "Stops machine"
    )


def test_what_is_needed_is_shown_though_it_is_shared() -> None:
    properties = {f"argument_{n}": LONG for n in range(6)}
    form = slim(a_tool(PROSE, properties, "argument_1"), Shared(arguments=("argument_1", "argument_2")))
    assert "argument_1" in arguments(form)
    assert "argument_2" not in arguments(form)


def test_few_arguments_are_shown_though_they_are_shared() -> None:
    properties = {"command": LONG, "parameters": {"type": "object"}}
    assert list(arguments(slim(a_tool(PROSE, properties), Shared(arguments=("command", "parameters"))))) == [
        "command",
        "parameters",
    ]


def test_a_tool_that_has_only_shared_arguments_shows_the_least_common() -> None:
    names = ("retries", "delay", "mode", "tenant", "subscription")
    form = slim(a_tool(PROSE, dict.fromkeys(names, LONG)), Shared(arguments=names))
    assert list(arguments(form)) == ["tenant", "subscription"]
    assert described(form).endswith(" (+3 args)")


# For clients that can give no argument that is not named.


def test_every_argument_is_named_where_that_is_wanted() -> None:
    names = [f"argument_{number}" for number in range(60)] + ["x" * 200]
    full = a_tool("Reads the file.", dict.fromkeys(names, LONG), *names[:50])
    shared = Shared(arguments=("argument_55", "argument_56"))
    form = slim(full, shared, every_argument=True)
    assert list(arguments(form)) == names
    assert json.loads(form)["inputSchema"]["required"] == names[:50]
    assert described(form) == "Reads file"
    assert len(arguments(slim(full, shared))) < 50


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        (
            {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
            {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        ),
        (
            {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            {"type": ["array", "null"], "items": {"type": "string"}},
        ),
        (
            {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "array"}]},
            {"type": "array", "items": {}},
        ),
        ({"type": "array", "items": {"type": ["string", "null"]}}, None),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, {"type": "array", "items": {}}),
        ({"type": "object", "properties": {"a": LONG}}, {"type": "object"}),
    ],
)
def test_of_lists_it_is_said_then_what_is_in_them(schema: Any, kept: Any) -> None:
    form = slim(a_tool(PROSE, {"it": schema, "other": LONG}), every_argument=True)
    assert arguments(form)["it"] == (kept or schema)


@pytest.mark.parametrize("every_argument", [False, True])
@pytest.mark.parametrize("definition", [a_tool(PROSE, {"it": LONG, "other": LONG}), b"{", b"null"])
def test_both_forms_at_once_are_the_same(definition: bytes, *, every_argument: bool) -> None:
    both = forms(definition, every_argument=every_argument)
    assert both == (slim(definition, every_argument=every_argument), stub(definition))


def test_what_is_to_be_filled_in_stays_and_markup_does_not() -> None:
    text = "Show a file as <b>text</b>, given as <revision>:<path>."
    assert described(slim(a_tool(text, {"it": LONG}))).startswith(
        "Show file as text, given as <revision>:<path>"
    )


def test_that_a_tool_is_deprecated_is_said_first() -> None:
    text = "Read the complete contents of a file as text. DEPRECATED: Use read_text_file instead."
    for form in (slim, stub):
        assert described(form(a_tool(text, {"it": LONG}))).startswith("Deprecated. Read complete")
