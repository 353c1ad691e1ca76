"""Corrections: an agent whose arguments were refused gets the schema, and no other answer changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog.argument_correction import may_be_refusal, with_schema_on_refusal
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpResponse
from tests.gateway_harness import Large

SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "minLength": 1}}, "required": ["path"]}
TOOL = Item(
    ItemKind.TOOLS,
    "files",
    "read",
    "files_read",
    json.dumps({"name": "files_read", "inputSchema": SCHEMA}).encode(),
)
HEAD = "input_schema of files_read: "


def a_tool(schema: bytes) -> Item:
    definition = b'{"name":"files_read","inputSchema":' + schema + b"}"
    return Item(ItemKind.TOOLS, "files", "read", "files_read", definition)


# A hundred thousand alternatives; little of schema in much of definition; what no parser opens.
WIDE = a_tool(b'{"type":"object","anyOf":[{}' + b",{}" * 100_000 + b"]}")
LONG = a_tool(b'{"type":"object","description":"' + b"x" * 70_000 + b'"}')
DEEP = a_tool(b'{"type":"object","x":' + b"[" * 20_000 + b"]" * 20_000 + b"}")
UNREPEATABLE = pytest.mark.parametrize("tool", [WIDE, LONG, DEEP], ids=["wide", "long", "deep"])


def failed(text: str, **more: Any) -> McpResponse:
    result = {"content": [{"type": "text", "text": text}], "isError": True, **more}
    return McpResponse(json.dumps(result).encode())


def refused(code: int = -32602, message: str = "Invalid arguments", **more: Any) -> McpResponse:
    return McpResponse(error=json.dumps({"code": code, "message": message, **more}).encode())


def told(answer: McpResponse) -> dict[str, Any]:
    assert not answer.error
    assert isinstance(answer.result, bytes)
    result: dict[str, Any] = json.loads(answer.result)
    return result


def schema_in(answer: McpResponse) -> Any:
    """The schema in the last block."""
    text = told(answer)["content"][-1]["text"]
    assert text.startswith(HEAD)
    return json.loads(text.removeprefix(HEAD))


# An error of the protocol.


def test_a_refusal_becomes_a_result_that_a_model_reads() -> None:
    answer = with_schema_on_refusal(TOOL, refused(message="path is missing"))
    assert told(answer)["isError"] is True
    assert told(answer)["content"][0] == {"type": "text", "text": "path is missing"}
    assert schema_in(answer) == SCHEMA
    error = told(answer)["_meta"]["io.headgate/error"]
    assert (error["code"], error["effect"], error["retryable"]) == ("INVALID_PARAMS", "none", False)
    assert error["hint"]
    assert not answer.typed


def test_what_the_server_says_beside_its_message_is_not_lost() -> None:
    answer = with_schema_on_refusal(
        TOOL, refused(message="Invalid params", data={"path": "must not be empty"})
    )
    said = " ".join(block["text"] for block in told(answer)["content"])
    assert "must not be empty" in said
    assert schema_in(answer) == SCHEMA


@pytest.mark.parametrize("data", [None, "x" * 10_000])
def test_nothing_and_very_much_beside_the_message_is_left_out(data: Any) -> None:
    assert told(with_schema_on_refusal(TOOL, refused(data=data)))["content"][0]["text"] == "Invalid arguments"


@pytest.mark.parametrize("code", [-32601, -32603, -32000, -32042, 0, 1])
def test_other_errors_pass_as_they_are(code: int) -> None:
    answer = refused(code)
    assert with_schema_on_refusal(TOOL, answer) is answer


@pytest.mark.parametrize(
    "error",
    [
        b"nonsense",
        b"[]",
        b'{"code":"-32602"}',
        b'{"code":-32602,"message":5}',
        b'{"message":"\xff"}',
        b'{"code":-32602,"data":' + b"[" * 3000 + b"]" * 3000 + b"}",
    ],
)
def test_an_error_that_cannot_be_read_passes_as_it_is(error: bytes) -> None:
    answer = McpResponse(error=error)
    assert with_schema_on_refusal(TOOL, answer) is answer


# A result that says so.


@pytest.mark.parametrize(
    "text",
    [
        # The official SDK for Python, its FastMCP and FastMCP itself.
        "Input validation error: 'path' is a required property",
        "Error executing tool read: 1 validation error for readArguments\npath\n  Field required",
        "1 validation error for call[read]\npath\n  Missing required argument [type=missing_argument]",
        # The official SDK for TypeScript, with zod 3 and 4.
        "MCP error -32602: Input validation error: Invalid arguments for tool read: [...]",
        'Invalid arguments for tool read: [{"code":"invalid_type","path":["path"],"message":"Required"}]',
        # Servers that look themselves: Python, ajv, Go, Rust, and by hand.
        "read() got an unexpected keyword argument 'pth'",
        "read() missing 1 required positional argument: 'path'",
        "read() missing 2 required positional arguments: 'path' and 'mode'",
        "read() missing 1 required keyword-only argument: 'path'",
        "data must have required property 'path'",
        'invalid params: validating "arguments": required: missing properties: ["path"]',
        'validating root: required: missing properties: ["path"]',
        "failed to deserialize parameters: missing field `path`",
        "The arguments dictionary is missing a value for the required parameter 'path'.",
        "Missing required parameter: path",
        "path is required",
        "INVALID ARGUMENTS",
        "unknown argument: pth",
        "unexpected argument 'pth'",
        # Of a wrong type or a name that does not exist: serde, jsonschema, ajv, zod, Go, pydantic.
        'invalid type: string "x", expected i64 at line 1 column 10',
        "unknown field `pth`, expected `path`",
        "unknown variant `x`, expected `a` or `b`",
        "failed to deserialize parameters",
        "5 is not of type 'string'",
        "Additional properties are not allowed ('pth' was unexpected)",
        *(
            f"data/path must be {kind}"
            for kind in ("string", "number", "integer", "boolean", "array", "object", "null", "a string")
        ),
        "data must NOT have additional properties",
        "Expected number, received string",
        "path: expected array, received undefined",
        "Invalid enum value. Expected 'a' | 'b', received 'c'",
        'validating root: unexpected additional properties ["pth"]',
        "Input should be a valid integer",
    ],
)
def test_a_failure_in_the_words_of_any_framework_gets_the_schema(text: str) -> None:
    answer = failed(text)
    assert schema_in(with_schema_on_refusal(TOOL, answer)) == SCHEMA
    assert told(with_schema_on_refusal(TOOL, answer))["content"][:-1] == told(answer)["content"]


@pytest.mark.parametrize(
    "text",
    [
        "No such file",
        "Connection refused",
        "Rate limit exceeded, try again in 5 s",
        "permission denied: /etc/shadow",
        "HTTP 500",
        "The server must be started first",
        "The order must be objected to within a day",
        "Expected a file, but received a directory",
        "",
    ],
)
def test_other_failures_pass_as_they_are(text: str) -> None:
    answer = failed(text)
    assert with_schema_on_refusal(TOOL, answer) is answer


@pytest.mark.parametrize(
    "text", ["Invalid path: /mars", "unsupported PATH '/x'", "the path must begin with a slash"]
)
def test_a_failure_that_finds_an_argument_wrong_by_its_name_gets_the_schema(text: str) -> None:
    assert schema_in(with_schema_on_refusal(TOOL, failed(text))) == SCHEMA


@pytest.mark.parametrize("text", ["Invalid credentials", "unknown host", "the path leads nowhere"])
def test_a_failure_about_something_else_does_not(text: str) -> None:
    answer = failed(text)
    assert with_schema_on_refusal(TOOL, answer) is answer


@pytest.mark.parametrize(
    "answer",
    [
        McpResponse(b'{"content":[{"type":"text","text":"a path is required"}]}'),
        McpResponse(b'{"content":[{"type":"text","text":"a path is required"}],"isError":false}'),
        McpResponse(b'{"content":[{"type":"text","text":"\\"isError\\": true, invalid_type"}]}'),
        McpResponse(b'{"content":[],"structuredContent":{"isError":true,"why":"is required"}}'),
        McpResponse(b'{"content":[],"isError":null,"x":"is required"}'),
        McpResponse(b'{"content":[],"isError":"true","x":"is required"}'),
        McpResponse(b'{"content":"is required","isError":true}'),
        McpResponse(b'[{"isError":true},"is required"]'),
        McpResponse(b'{"isError":true,"is required'),
        McpResponse(b'{"isError":true,"x":"is required","deep":' + b"[" * 3000 + b"]" * 3000 + b"}"),
        McpResponse(b'{"isError":true,"x":"is required \xff","content":[{"text":"\xff"}],"\xff":1}'),
        McpResponse(b""),
        McpResponse(b"{}"),
    ],
)
def test_a_result_that_is_no_failure_passes_as_it_is(answer: McpResponse) -> None:
    assert with_schema_on_refusal(TOOL, answer) is answer


def test_a_failure_that_goes_on_for_long_gets_the_schema_too() -> None:
    long = {"type": "text", "text": "path is required\n" + "x" * 200_000}
    for result in ({"content": [long], "isError": True}, {"isError": True, "content": [long]}):
        assert schema_in(with_schema_on_refusal(TOOL, McpResponse(json.dumps(result).encode()))) == SCHEMA


@pytest.mark.parametrize("text", ["x" * 10_000 + " path is required", "path is required" + "x" * 270_000])
def test_the_report_of_a_tool_passes_as_it_is(text: str) -> None:
    answer = failed(text)
    assert with_schema_on_refusal(TOOL, answer) is answer


def test_what_did_not_fail_is_known_without_opening_it() -> None:
    assert may_be_refusal(failed("x" * 50_000))
    assert may_be_refusal(McpResponse(b'{ "isError" :\n true}'))
    assert not may_be_refusal(McpResponse(b'{"content":[],"isError":false}'))
    assert not may_be_refusal(failed("x" * 270_000))


def test_what_is_on_disk_is_not_opened() -> None:
    large = Large(b'{"content":[],"isError":true,"x":"is required"}')
    answer = McpResponse(large)
    assert with_schema_on_refusal(TOOL, answer) is answer
    assert not large.opened


def test_everything_else_in_the_result_stays() -> None:
    answer = failed("path is required", structuredContent={"a": [1]}, _meta={"x": 1}, resultType="complete")
    answer = McpResponse(answer.result, typed=True)
    corrections = with_schema_on_refusal(TOOL, answer)
    assert corrections.typed
    before, after = told(answer), told(corrections)
    assert after.pop("content")[:-1] == before.pop("content")
    assert after == before
    assert after["resultType"] == "complete"


def test_a_failure_without_content_gets_the_schema_too() -> None:
    answer = McpResponse(b'{"isError":true,"structuredContent":{"error":"path is required"}}')
    assert schema_in(with_schema_on_refusal(TOOL, answer)) == SCHEMA


# The schema as it stands.


@pytest.mark.parametrize(
    "schema",
    [
        b'{"type":"object","properties":{"n":{"maximum":1e3,"minimum":-0.0}}}',
        b'{ "type" : "object",\n "x" : 1111111111111111111111111111111111111111 }',
        b'{"type":"object","description":"\\ud800 \\u00e9 \\/"}',
        '{"type":"object","description":"é 漢"}'.encode(),
        b'{"type":"object","x":' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"type":"object","description":"' + b"x" * 65_000 + b'"}',
    ],
)
def test_the_schema_is_given_as_its_server_wrote_it(schema: bytes) -> None:
    for answer in (refused(), failed("path is required")):
        text = told(with_schema_on_refusal(a_tool(schema), answer))["content"][-1]["text"]
        assert text == HEAD + schema.decode()
    beside = with_schema_on_refusal(a_tool(schema), refused(), seen_whole=True).error
    assert beside.endswith(b',"data":{"input_schema":' + schema + b"}}")


@UNREPEATABLE
def test_a_schema_that_cannot_be_repeated_is_named_with_the_way_to_it(tool: Item) -> None:
    size = f"{len(tool.definition):,}"
    for answer in (refused(message="path is required"), failed("path is required")):
        before, after = told(with_schema_on_refusal(tool, answer))["content"]
        assert before["text"] == "path is required"
        assert after["text"] == (
            "input_schema of files_read is too large or nested too deep to be repeated here "
            f"(its definition has {size} bytes); expandSchema gives it, whole or by path"
        )


@UNREPEATABLE
def test_who_has_seen_such_a_schema_is_told_nothing_of_it(tool: Item) -> None:
    for answer in (refused(), failed("path is required")):
        assert with_schema_on_refusal(tool, answer, seen_whole=True) is answer


def test_much_other_prose_does_not_cost_the_schema() -> None:
    definition = TOOL.definition[:-1] + b',"description":"' + b"x" * 100_000 + b'"}'
    tool = Item(ItemKind.TOOLS, "files", "read", "files_read", definition)
    assert schema_in(with_schema_on_refusal(tool, refused())) == SCHEMA


# To a client that has seen the whole definition.


def test_an_error_of_the_protocol_stays_one_with_the_schema_beside_it() -> None:
    answer = with_schema_on_refusal(TOOL, refused(message="path is missing"), seen_whole=True)
    assert answer.result == b""
    assert json.loads(answer.error) == {
        "code": -32602,
        "message": "path is missing",
        "data": {"input_schema": SCHEMA},
    }
    assert with_schema_on_refusal(TOOL, refused(data=None), seen_whole=True) == with_schema_on_refusal(
        TOOL, refused(), seen_whole=True
    )


@pytest.mark.parametrize("data", [{"path": "is missing"}, [], "", 0, False])
def test_what_the_server_says_there_itself_stays(data: Any) -> None:
    answer = refused(data=data)
    assert with_schema_on_refusal(TOOL, answer, seen_whole=True) is answer


@pytest.mark.parametrize("error", [b"{}", b"[]", b"nonsense", b'{"code":"x"}', b'{"code":-32603}', b"\xff"])
def test_another_error_stays_as_it_is(error: bytes) -> None:
    answer = McpResponse(error=error)
    assert with_schema_on_refusal(TOOL, answer, seen_whole=True) is answer


def test_a_failure_gets_the_schema_whatever_was_seen() -> None:
    answer = failed("path is required")
    assert with_schema_on_refusal(TOOL, answer, seen_whole=True) == with_schema_on_refusal(TOOL, answer)
    assert schema_in(with_schema_on_refusal(TOOL, answer, seen_whole=True)) == SCHEMA


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_whatever_is_answered_never_fails(content: bytes) -> None:
    result = b'{"isError":true,"content":[' + content + b'],"x":"is required"}'
    answer = with_schema_on_refusal(TOOL, McpResponse(result))
    if isinstance(answer.result, bytes) and answer.result != result:
        assert schema_in(answer) == SCHEMA
    assert with_schema_on_refusal(TOOL, McpResponse(content)) == McpResponse(content)
    assert with_schema_on_refusal(TOOL, McpResponse(error=content)) == McpResponse(error=content)
