"""Slim tools and stubs: small, callable, and told apart."""

import json
from typing import Any

import pytest

from headgate.catalog.tool_forms import SharedText, make_slim_forms
from tests.schema.reduction.tool_samples import LONG, a_tool, arguments, described
from tests.schema.slim_forms import slim_tool, stub_tool

PROSE = "Bare words about it that are of no use to a client and only fill up the definition here"


def argument(schema: Any) -> Any:
    """One argument of a tool as its slim form shows it."""
    return arguments(slim_tool(a_tool(PROSE, {"it": schema, "other": LONG})))["it"]


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
    assert json.loads(slim_tool(full)) == {
        "name": "files_read",
        "description": "Reads whole file at path",
        "inputSchema": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
            "required": ["path"],
        },
    }


def test_a_stub_names_as_many_arguments_as_it_has_room_for_the_required_first() -> None:
    names = ("first", "second", "a_very_long_name_of_an_argument", "needed")
    full = a_tool(PROSE, dict.fromkeys(names, LONG), "needed")
    assert list(arguments(stub_tool(full))) == ["needed", "first", "second"]


def test_a_stub_is_its_name_a_few_words_and_the_names_of_arguments() -> None:
    full = a_tool("Reads the whole file at a path. Never follows links.", {"path": LONG}, "path")
    assert json.loads(stub_tool(full)) == {
        "name": "files_read",
        "description": "Reads whole file at path",
        "inputSchema": {"type": "object", "properties": {"path": {}}},
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
    form = json.loads(slim_tool(a_tool(PROSE, {"it": LONG}, annotations=annotations)))
    assert form.get("annotations") == kept


@pytest.mark.parametrize("form", [slim_tool, stub_tool])
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
    assert described(slim_tool(a_tool(description, {"it": {**LONG, "description": PROSE}}))) == words


def test_a_long_sentence_ends_at_a_word() -> None:
    words = described(slim_tool(a_tool("Reads " + "many " * 100, {"it": LONG})))
    assert words.endswith("many…")
    assert len(words) <= 120


def test_examples_of_arguments_tell_tools_apart() -> None:
    samples = {"type": "string", "description": "The kind of sample to look at (e.g. blood, fibers or hair)"}
    assert described(slim_tool(a_tool("Analyzes what was found", {"it": samples}))) == (
        "Analyzes what was found [blood fibers hair]"
    )


def test_what_is_shown_as_a_choice_is_not_said_again() -> None:
    order = {"type": "string", "description": PROSE, "enum": ["newest", "oldest"]}
    form = slim_tool(a_tool("Lists what was found", {"order": order}))
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
    assert arguments(slim_tool(a_tool(PROSE, properties, schema={"$defs": definitions}))) == {
        "name": {"type": "string"},
        "names": {"type": "array", "items": {"type": "string"}},
        "either": {"type": ["string", "null"]},
        "escaped": {"type": "boolean"},
    }


def test_every_argument_is_named_and_the_first_of_many_have_types() -> None:
    properties = {f"argument_{n}": {"type": "integer", "description": "x" * 50} for n in range(30)}
    form = slim_tool(a_tool("Reads a file", properties, "argument_29"))
    assert list(arguments(form)) == list(properties)
    typed = [name for name, one in arguments(form).items() if one]
    assert typed == ["argument_0", "argument_1", "argument_2", "argument_3", "argument_29"]
    assert all(one in ({}, {"type": "integer"}) for one in arguments(form).values())
    assert described(form) == "Reads file"


def test_of_many_arguments_optional_texts_need_no_type() -> None:
    texts = {"a": LONG, "b": LONG, "c": {"type": ["string", "null"]}, "d": {"type": "string", "enum": ["x"]}}
    form = slim_tool(a_tool("Reads a file", {**texts, "number": {"type": "number"}}, "a"))
    assert arguments(form) == {
        "a": {"type": "string"},
        "b": {},
        "c": {},
        "d": {"type": "string", "enum": ["x"]},
        "number": {"type": "number"},
    }


def test_arguments_beyond_any_real_tool_are_counted() -> None:
    properties = {f"argument_{n}": LONG for n in range(600)} | {"x" * 200: LONG}
    form = slim_tool(a_tool("Reads a file", properties, "argument_599"))
    assert len(arguments(form)) == 500
    assert "argument_599" in arguments(form)
    assert described(form) == "Reads file (+101 args)"


def test_all_that_is_needed_is_shown() -> None:
    properties = {f"argument_{n}": LONG for n in range(30)}
    form = slim_tool(a_tool("Reads a file", properties, *properties))
    assert list(arguments(form)) == json.loads(form)["inputSchema"]["required"] == list(properties)


@pytest.mark.parametrize(
    "parts",
    [
        {"anyOf": [{"allOf": [{"properties": {"deep": LONG}}]}]},
        {
            "oneOf": [{"properties": {f"other_{n}": LONG}} for n in range(20)]
            + [{"properties": {"deep": LONG}}]
        },
        {"$ref": "#/$defs/Root"},
        {"allOf": [{"$ref": "#/$defs/Root"}]},
        {"if": {"properties": {"mode": {"const": "x"}}}, "then": {"properties": {"deep": LONG}}},
        {"if": {"required": ["mode"]}, "else": {"$ref": "#/$defs/Inner"}},
        {"dependentSchemas": {"mode": {"properties": {"deep": LONG}}}},
    ],
)
def test_arguments_are_named_wherever_the_root_says_them(parts: dict[str, Any]) -> None:
    definitions = {
        "Root": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"$ref": "#/$defs/Root"}]},
        "Inner": {"type": "object", "properties": {"deep": LONG}, "required": ["deep"]},
    }
    form = slim_tool(a_tool(PROSE, {"mode": LONG}, schema={**parts, "$defs": definitions}))
    assert {"mode", "deep"} <= arguments(form).keys()
    assert "required" not in json.loads(form)["inputSchema"]


def test_arguments_of_branches_are_named() -> None:
    branch = {"properties": {"by_name": LONG}}
    parts = {
        "allOf": [{"properties": {"always": LONG}, "required": ["always"]}],
        "oneOf": [branch, {"properties": {"by_number": {"type": "integer"}}}],
    }
    form = slim_tool(a_tool(PROSE, {}, schema=parts))
    assert arguments(form) == {"always": {"type": "string"}, "by_name": {}, "by_number": {}}
    assert json.loads(form)["inputSchema"]["required"] == ["always"]


@pytest.mark.parametrize(
    "name", ["type", "$ref", "properties", "required", "items", "enum", "", "ünï", 'a"b\\c']
)
def test_an_argument_may_be_called_anything(name: str) -> None:
    assert arguments(slim_tool(a_tool(PROSE, {name: LONG, "other": LONG}, name)))[name] == {"type": "string"}


# What several tools share.


def test_what_was_said_once_is_not_said_again() -> None:
    shared = SharedText(frozenset(["The public interface of a service"]), ("retries", "tenant"))
    properties = dict.fromkeys(("name", "size", "tenant", "retries", "color"), LONG)
    form = slim_tool(
        a_tool("The public interface of a service. Stops a machine.", properties, "name"), shared
    )
    assert described(form) == "Stops machine"
    assert list(arguments(form)) == ["name", "size", "tenant", "retries", "color"]
    assert (
        described(stub_tool(a_tool("The public interface of a service. Stops a machine."), shared))
        == "Stops machine"
    )


def test_what_is_needed_is_shown_though_it_is_shared() -> None:
    properties = {f"argument_{n}": LONG for n in range(6)}
    form = slim_tool(
        a_tool(PROSE, properties, "argument_1"), SharedText(arguments=("argument_1", "argument_2"))
    )
    assert arguments(form)["argument_1"] == {"type": "string"}
    assert arguments(form)["argument_2"] == {}


def test_few_arguments_are_shown_though_they_are_shared() -> None:
    properties = {"command": LONG, "parameters": {"type": "object"}}
    assert list(
        arguments(slim_tool(a_tool(PROSE, properties), SharedText(arguments=("command", "parameters"))))
    ) == [
        "command",
        "parameters",
    ]


# For clients that can give no argument that is not named.


def test_every_type_is_named_where_that_is_wanted() -> None:
    names = [f"argument_{number}" for number in range(60)] + ["x" * 200]
    full = a_tool("Reads the file.", dict.fromkeys(names, LONG), *names[:50])
    shared = SharedText(arguments=("argument_55", "argument_56"))
    form = slim_tool(full, shared, every_type=True)
    assert list(arguments(form)) == names
    assert json.loads(form)["inputSchema"]["required"] == names[:50]
    assert described(form) == "Reads file"
    assert len(slim_tool(full, shared)) < len(form)


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
    form = slim_tool(a_tool(PROSE, {"it": schema, "other": LONG}), every_type=True)
    assert arguments(form)["it"] == (kept or schema)


@pytest.mark.parametrize("every_type", [False, True])
@pytest.mark.parametrize("definition", [a_tool(PROSE, {"it": LONG, "other": LONG}), b"{", b"null"])
def test_both_forms_at_once_are_the_same(definition: bytes, *, every_type: bool) -> None:
    both = make_slim_forms(definition, every_type=every_type)
    assert both == (slim_tool(definition, every_type=every_type), stub_tool(definition))


def test_what_is_to_be_filled_in_stays_and_markup_does_not() -> None:
    text = "Show a file as <b>text</b>, given as <revision>:<path>."
    assert described(slim_tool(a_tool(text, {"it": LONG}))).startswith(
        "Show file as text, given as <revision>:<path>"
    )


def test_that_a_tool_is_deprecated_is_said_first() -> None:
    text = "Read the complete contents of a file as text. DEPRECATED: Use read_text_file instead."
    for form in (slim_tool, stub_tool):
        assert described(form(a_tool(text, {"it": LONG}))).startswith("Deprecated. Read complete")
