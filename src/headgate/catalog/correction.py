"""Gives an agent that was refused the schema that it has not seen, so that it can correct itself."""

from typing import Any, Final

import msgspec
from msgspec import DecodeError, Raw

from headgate.catalog.signature import schema_of
from headgate.domain.call import Answer
from headgate.domain.item import Item
from headgate.wire.envelope import decode_object, encode_object
from headgate.wire.results import text_failure
from headgate.wire.violations import INVALID_PARAMS

# How servers of the SDKs and of common frameworks begin to say that arguments are wrong, in small letters.
_SIGNS: Final = (
    "-32602",
    "input validation error",
    "invalid argument",
    "invalid input",
    "invalid param",
    "validation error",
    "missing required",
    "missing propert",
    "missing field",
    "required propert",
    "required param",
    "required positional argument",
    "required keyword-only argument",
    "is required",
    "is missing",
    "field required",
    "unexpected keyword argument",
    "unrecognized_keys",
    "invalid_type",
)
# A failure says what is wrong in its first lines; what is longer is the tool's own report.
_LONGEST_FAILURE: Final = 8_192


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: Raw = Raw(b"")


class _Failure(msgspec.Struct):
    content: list[Raw] = []
    isError: bool = False  # noqa: N815 (the protocol's spelling)


def corrected(tool: Item, answer: Answer) -> Answer:
    """The answer; where the upstream refused the arguments, with the schema that they must have."""
    if answer.error:
        return _with_error(tool, answer)
    result = answer.result
    if not isinstance(result, bytes) or len(result) > _LONGEST_FAILURE or b'"isError"' not in result:
        return answer
    try:
        failure = msgspec.json.decode(result, type=_Failure)
        members = decode_object(result)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return answer
    if not failure.isError or not _refuses(result):
        return answer
    blocks = [*failure.content, Raw(msgspec.json.encode(_schema_block(tool)))]
    members["content"] = Raw(msgspec.json.encode(blocks))
    return msgspec.structs.replace(answer, result=encode_object(members))


def _with_error(tool: Item, answer: Answer) -> Answer:
    """An error of the protocol as a result, which is what a model gets to read."""
    try:
        error = msgspec.json.decode(answer.error, type=_Error)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return answer
    if error.code != INVALID_PARAMS:
        return answer
    told = {
        "code": "INVALID_PARAMS",
        "effect": "none",
        "retryable": False,
        "hint": "correct the arguments by the schema in this answer",
    }
    failure = decode_object(text_failure(error.message, {"io.headgate/error": told}))
    text = {"type": "text", "text": f"{error.message}{_details(bytes(error.data))}"}
    failure["content"] = Raw(msgspec.json.encode([text, _schema_block(tool)]))
    return Answer(encode_object(failure))


def _details(data: bytes) -> str:
    """What a server says beside its message, which may be where it names the argument."""
    if data in (b"", b"null") or len(data) > _LONGEST_FAILURE:
        return ""
    return f" ({data.decode(errors='replace')})"


def _refuses(result: bytes) -> bool:
    said = result.decode(errors="replace").lower()
    return any(sign in said for sign in _SIGNS)


def _schema_block(tool: Item) -> dict[str, Any]:
    schema = msgspec.json.encode(schema_of(tool.definition)).decode()
    return {"type": "text", "text": f"input_schema of {tool.public_name}: {schema}"}
