"""Corrections: an agent whose arguments were refused gets the schema, and nobody else's answer is touched."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog.correction import corrected
from headgate.domain.call import Answer
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from tests.house import Large

SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "minLength": 1}}, "required": ["path"]}
TOOL = Item(
    Kind.TOOLS,
    "files",
    "read",
    "files_read",
    json.dumps({"name": "files_read", "inputSchema": SCHEMA}).encode(),
)
HEAD = "input_schema of files_read: "


def failed(text: str, **more: Any) -> Answer:
    result = {"content": [{"type": "text", "text": text}], "isError": True, **more}
    return Answer(json.dumps(result).encode())


def refused(code: int = -32602, message: str = "Invalid arguments", **more: Any) -> Answer:
    return Answer(error=json.dumps({"code": code, "message": message, **more}).encode())


def told(answer: Answer) -> dict[str, Any]:
    assert not answer.error
    assert isinstance(answer.result, bytes)
    result: dict[str, Any] = json.loads(answer.result)
    return result


def schema_in(answer: Answer) -> Any:
    """The schema in the last block."""
    text = told(answer)["content"][-1]["text"]
    assert text.startswith(HEAD)
    return json.loads(text.removeprefix(HEAD))


# An error of the protocol.


def test_a_refusal_becomes_a_result_that_a_model_reads() -> None:
    answer = corrected(TOOL, refused(message="path is missing"))
    assert told(answer)["isError"] is True
    assert told(answer)["content"][0] == {"type": "text", "text": "path is missing"}
    assert schema_in(answer) == SCHEMA
    error = told(answer)["_meta"]["io.headgate/error"]
    assert (error["code"], error["effect"], error["retryable"]) == ("INVALID_PARAMS", "none", False)
    assert error["hint"]
    assert not answer.typed


def test_what_the_server_says_beside_its_message_is_not_lost() -> None:
    answer = corrected(TOOL, refused(message="Invalid params", data={"path": "must not be empty"}))
    said = " ".join(block["text"] for block in told(answer)["content"])
    assert "must not be empty" in said
    assert schema_in(answer) == SCHEMA


@pytest.mark.parametrize("data", [None, "x" * 10_000])
def test_nothing_and_very_much_beside_the_message_is_left_out(data: Any) -> None:
    assert told(corrected(TOOL, refused(data=data)))["content"][0]["text"] == "Invalid arguments"


@pytest.mark.parametrize("code", [-32601, -32603, -32000, -32042, 0, 1])
def test_other_errors_pass_as_they_are(code: int) -> None:
    answer = refused(code)
    assert corrected(TOOL, answer) is answer


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
    answer = Answer(error=error)
    assert corrected(TOOL, answer) is answer


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
    ],
)
def test_a_failure_in_the_words_of_any_framework_gets_the_schema(text: str) -> None:
    answer = failed(text)
    assert schema_in(corrected(TOOL, answer)) == SCHEMA
    assert told(corrected(TOOL, answer))["content"][:-1] == told(answer)["content"]


@pytest.mark.parametrize(
    "text",
    [
        "No such file",
        "Connection refused",
        "Rate limit exceeded, try again in 5 s",
        "permission denied: /etc/shadow",
        "HTTP 500",
        "",
    ],
)
def test_other_failures_pass_as_they_are(text: str) -> None:
    answer = failed(text)
    assert corrected(TOOL, answer) is answer


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b'{"content":[{"type":"text","text":"a path is required"}]}'),
        Answer(b'{"content":[{"type":"text","text":"a path is required"}],"isError":false}'),
        Answer(b'{"content":[{"type":"text","text":"\\"isError\\": true, invalid_type"}]}'),
        Answer(b'{"content":[],"structuredContent":{"isError":true,"why":"is required"}}'),
        Answer(b'{"content":[],"isError":null,"x":"is required"}'),
        Answer(b'{"content":[],"isError":"true","x":"is required"}'),
        Answer(b'{"content":"is required","isError":true}'),
        Answer(b'[{"isError":true},"is required"]'),
        Answer(b'{"isError":true,"is required'),
        Answer(b'{"isError":true,"x":"is required","deep":' + b"[" * 3000 + b"]" * 3000 + b"}"),
        Answer(b'{"isError":true,"x":"is required \xff","content":[{"text":"\xff"}],"\xff":1}'),
        Answer(b""),
        Answer(b"{}"),
    ],
)
def test_a_result_that_is_no_failure_passes_as_it_is(answer: Answer) -> None:
    assert corrected(TOOL, answer) is answer


def test_a_long_failure_is_the_report_of_the_tool_and_passes_as_it_is() -> None:
    answer = failed("path is required\n" + "x" * 10_000)
    assert corrected(TOOL, answer) is answer


def test_what_is_on_disk_is_not_opened() -> None:
    large = Large(b'{"content":[],"isError":true,"x":"is required"}')
    answer = Answer(large)
    assert corrected(TOOL, answer) is answer
    assert not large.opened


def test_everything_else_in_the_result_stays() -> None:
    answer = failed("path is required", structuredContent={"a": [1]}, _meta={"x": 1}, resultType="complete")
    answer = Answer(answer.result, typed=True)
    corrections = corrected(TOOL, answer)
    assert corrections.typed
    before, after = told(answer), told(corrections)
    assert after.pop("content")[:-1] == before.pop("content")
    assert after == before
    assert after["resultType"] == "complete"


def test_a_failure_without_content_gets_the_schema_too() -> None:
    answer = Answer(b'{"isError":true,"structuredContent":{"error":"path is required"}}')
    assert schema_in(corrected(TOOL, answer)) == SCHEMA


def test_a_tool_without_a_schema_takes_any_object() -> None:
    tool = Item(Kind.TOOLS, "files", "read", "files_read", b'{"name":"files_read"}')
    assert schema_in(corrected(tool, refused())) == {"type": "object"}


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_whatever_is_answered_never_fails(content: bytes) -> None:
    result = b'{"isError":true,"content":[' + content + b'],"x":"is required"}'
    answer = corrected(TOOL, Answer(result))
    if isinstance(answer.result, bytes) and answer.result != result:
        assert schema_in(answer) == SCHEMA
    assert corrected(TOOL, Answer(content)) == Answer(content)
    assert corrected(TOOL, Answer(error=content)) == Answer(error=content)
