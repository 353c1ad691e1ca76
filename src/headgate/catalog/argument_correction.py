"""Adds the schema of a tool to a refusal of its arguments, so that a model can correct them."""

import re
from typing import Final

import msgspec
from msgspec import DecodeError, Raw

from headgate.catalog.definition_text import split_definition
from headgate.catalog.public_names import EXPAND_SCHEMA
from headgate.domain.item import Item
from headgate.domain.mcp_request import McpResponse
from headgate.protocol.jsonrpc import decode_object, encode_object
from headgate.protocol.jsonrpc_errors import INVALID_PARAMS
from headgate.protocol.result_conversion import tool_error_result

# How SDK servers and common frameworks begin their messages about wrong arguments, in lower case.
# fmt: off
_REFUSAL_PHRASES: Final = (
    "-32602", "input validation error", "invalid argument", "invalid input", "invalid param",
    "validation error", "missing required", "missing propert", "missing field", "required propert",
    "required param", "required positional argument", "required keyword-only argument", "is required",
    "is missing", "field required", "unexpected keyword argument", "unexpected argument",
    "unknown argument", "unrecognized_keys", "invalid_type", "invalid type:", "invalid enum value",
    "unknown field", "unknown variant", "failed to deserialize", "input should be", "is not of type",
    "additional properties are not allowed", "must not have additional properties",
    "unexpected additional propert",
)
# fmt: on
# The same with a varying word in between: `must be a string`, `expected number, received string`.
_REFUSAL_PATTERN: Final = re.compile(
    r"must be (?:an? )?(?:string|number|integer|boolean|array|object|null)\b|expected [^,]{1,60}, received "
)
# General messages, which concern an argument if they name one: `Invalid timezone: Mars`.
_FOUND_WRONG: Final = re.compile(
    r"\b(?:invalid|not (?:a )?valid|unknown|unsupported|malformed|must|expected)\b"
)
_WORD: Final = re.compile(r"\w+")
# Shorter names occur as words in any sentence.
_SHORTEST_NAME: Final = 3
# An error message states the problem in its first lines.
_FIRST_BYTES: Final = 8_192
# Anything longer is the tool's own report.
_LONGEST_FAILURE: Final = 256 * 1024
_FAILED: Final = re.compile(rb'"isError"\s*+:\s*+true')
# The `data` of an error.
_LONGEST_DETAILS: Final = 8_192
# A model that fails again pays for it again.
_LONGEST_SCHEMA: Final = 64 * 1024
# Parsing a larger one would delay other clients.
_LONGEST_DEFINITION: Final = 512 * 1024


class _RefusalError(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: Raw = Raw(b"")


class _RefusedToolSchema(msgspec.Struct):
    properties: dict[str, Raw] = {}


class _FailedResult(msgspec.Struct):
    content: list[Raw] = []
    isError: bool = False  # noqa: N815 (the protocol's spelling)


def may_be_refusal(answer: McpResponse) -> bool:
    """Whether the reply may be a refusal of arguments; checked for every reply, so nothing is parsed."""
    result = answer.result
    if answer.error:
        return True
    if not isinstance(result, bytes) or len(result) > _LONGEST_FAILURE:
        return False
    # At the start or the end of a long reply: searching all of it would slow down every reply.
    if len(result) <= _FIRST_BYTES:
        return _FAILED.search(result) is not None
    return bool(_FAILED.search(result[:_FIRST_BYTES]) or _FAILED.search(result[-_FIRST_BYTES:]))


def with_schema_on_refusal(tool: Item, answer: McpResponse, *, seen_whole: bool = False) -> McpResponse:
    """The reply; a refusal of arguments gets the schema that they must satisfy.

    For a client that has seen the schema a protocol error stays an error, and a schema that is too large to
    repeat is not mentioned.
    """
    if answer.error:
        return _with_data(tool, answer) if seen_whole else _with_error(tool, answer)
    result = answer.result
    if not may_be_refusal(answer) or not isinstance(result, bytes) or not _refuses(result, tool):
        return answer
    try:
        failure = msgspec.json.decode(result, type=_FailedResult)
        members = decode_object(result)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return answer
    schema = _schema(tool)
    if not failure.isError or (seen_whole and schema is None):
        return answer
    blocks = [*failure.content, Raw(msgspec.json.encode(_schema_block(tool, schema)))]
    members["content"] = Raw(msgspec.json.encode(blocks))
    return msgspec.structs.replace(answer, result=encode_object(members))


def schema_text(tool: Item) -> str:
    """The schema of a tool's arguments as text, or how to get one that is too large."""
    return _schema_block(tool, _schema(tool))["text"]


def _refuses(result: bytes, tool: Item) -> bool:
    message = result[:_FIRST_BYTES].decode(errors="replace").lower()
    if any(sign in message for sign in _REFUSAL_PHRASES) or _REFUSAL_PATTERN.search(message) is not None:
        return True
    if _FOUND_WRONG.search(message) is None:
        return False
    try:
        properties = msgspec.json.decode(_schema(tool) or "{}", type=_RefusedToolSchema).properties
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False
    names = {name.lower() for name in properties if len(name) >= _SHORTEST_NAME}
    return not names.isdisjoint(_WORD.findall(message))


def _schema(tool: Item) -> str | None:
    """The schema as its server wrote it; None if it is too large or too deep to repeat."""
    if len(tool.definition) > _LONGEST_DEFINITION:
        return None
    split = split_definition(tool.definition.decode(errors="replace"))
    if split is None or len(split.schema.encode()) > _LONGEST_SCHEMA:
        return None
    return split.schema


def _schema_block(tool: Item, schema: str | None) -> dict[str, str]:
    text = f"input_schema of {tool.public_name}: {schema}"
    if schema is None:
        text = (
            f"input_schema of {tool.public_name} is too large or nested too deep to be repeated here (its "
            f"definition has {len(tool.definition):,} bytes); {EXPAND_SCHEMA} gives it, whole or by path"
        )
    return {"type": "text", "text": text}


def _with_error(tool: Item, answer: McpResponse) -> McpResponse:
    """A protocol error as a tool result, which a model can read."""
    try:
        error = msgspec.json.decode(answer.error, type=_RefusalError)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return answer
    if error.code != INVALID_PARAMS:
        return answer
    details = {
        "code": "INVALID_PARAMS",
        "effect": "none",
        "retryable": False,
        "hint": "correct the arguments by the schema of the tool",
    }
    failure = decode_object(tool_error_result(error.message, {"io.headgate/error": details}))
    data, message = bytes(error.data), error.message
    if data not in (b"", b"null") and len(data) <= _LONGEST_DETAILS:
        # It may name the argument.
        message += f" ({data.decode(errors='replace')})"
    text = {"type": "text", "text": message}
    failure["content"] = Raw(msgspec.json.encode([text, _schema_block(tool, _schema(tool))]))
    return McpResponse(encode_object(failure))


def _with_data(tool: Item, answer: McpResponse) -> McpResponse:
    """The error with the schema in `data`, unless the server sent data itself."""
    try:
        error = decode_object(answer.error)
        code = msgspec.json.decode(error.get("code", b"0"))
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return answer
    has_data = bytes(error.get("data", b"null")) != b"null"
    if code != INVALID_PARAMS or has_data or (schema := _schema(tool)) is None:
        return answer
    error["data"] = Raw(b'{"input_schema":' + schema.encode() + b"}")
    return msgspec.structs.replace(answer, error=encode_object(error))
