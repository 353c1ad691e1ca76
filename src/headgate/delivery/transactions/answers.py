"""What the answer to a step says: whether it happened, and what its compensation needs to know of it."""

import asyncio
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.delivery.templates import fill
from headgate.delivery.transactions.plan import Remedy
from headgate.delivery.transactions.record import Step
from headgate.domain.call import Answer
from headgate.domain.errors import LONGEST_QUOTE, quoted
from headgate.protocol.jsonrpc import decode_object, encode_object
from headgate.protocol.result_conversion import is_input_required

META_KEY = "io.headgate/transaction"
# A larger result is not read to fill a compensation.
_MOST_READ_BYTES = 8 * 1024 * 1024
_UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Result(msgspec.Struct, rename="camel"):
    content: list[_Block] = []
    structured_content: Any = None
    is_error: bool = False


class _Error(msgspec.Struct):
    message: str = ""


def is_question(answer: Answer) -> bool:
    """Whether the server asks something first, and the call goes on with the client's answer."""
    return answer.typed and isinstance(answer.result, bytes) and is_input_required(answer.result)


def refusal(answer: Answer) -> str | None:
    """What the server says went wrong, cut to a sentence; None when it did what it was asked."""
    said = whole_refusal(answer)
    if said is None:
        return None
    return quoted(said) or f"an error without a {'message' if answer.error else 'text'}"


def whole_refusal(answer: Answer) -> str | None:
    """What the server says went wrong, as it said it; None when it did what it was asked."""
    if answer.error:
        try:
            return msgspec.json.decode(answer.error, type=_Error).message
        except _UNREADABLE:
            return ""
    if not isinstance(answer.result, bytes) or b'"isError"' not in answer.result:
        # What is too large for memory is no error.
        return None
    result = _read(answer.result)
    if not result.is_error:
        return None
    return next((block.text for block in result.content if block.text), "")


async def with_remedy(step: Step, key: str, op_id: str, answer: Answer) -> Step:
    """The step with the arguments of its compensation; one that cannot be filled is a step without any."""
    if step.remedy is not Remedy.COMPENSATION:
        return step
    try:
        # Away from the event loop: a result may be on disk, and large.
        filled = await asyncio.to_thread(_filled, step, key, op_id, answer)
    except ValueError as problem:
        error = f"its compensation cannot be filled: {problem}"[: 2 * LONGEST_QUOTE]
        return msgspec.structs.replace(step, remedy=Remedy.NONE, error=error)
    return msgspec.structs.replace(step, undo_arguments=filled)


def _filled(step: Step, key: str, op_id: str, answer: Answer) -> bytes:
    if b"$" not in step.undo_template:
        return step.undo_template
    values = {
        "arguments": msgspec.json.decode(step.arguments or b"{}"),
        "result": _value(answer),
        "key": key,
        "op_id": op_id,
    }
    return fill(step.undo_template, values)


def _value(answer: Answer) -> Any:
    """What a tool answered: its structured content, or its text, read if it is JSON."""
    result = answer.result
    if not isinstance(result, bytes):
        if result.size > _MOST_READ_BYTES:
            return {}
        result = b"".join(result.chunks())
    said = _read(result)
    if said.structured_content is not None:
        return said.structured_content
    text = next((block.text for block in said.content if block.type == "text"), "")
    try:
        return msgspec.json.decode(text)
    except _UNREADABLE:
        return {"text": text}


def _read(result: bytes) -> _Result:
    try:
        return msgspec.json.decode(result, type=_Result)
    except _UNREADABLE:
        return _Result()


def close(answer: Answer) -> None:
    """Nobody needs it: give back what it holds."""
    if not isinstance(answer.result, bytes):
        answer.result.close()


def noted(answer: Answer, note: dict[str, Any], text: str) -> Answer:
    """The answer with what became of the transaction in its `_meta`, and a text for a model behind its own.

    What is on disk stays as it is.
    """
    if answer.error or not isinstance(answer.result, bytes):
        return answer
    try:
        members = decode_object(answer.result)
        meta = decode_object(members.get("_meta", Raw(b"{}")))
        meta[META_KEY] = Raw(msgspec.json.encode(note))
        members["_meta"] = Raw(encode_object(meta))
        if text:
            blocks = msgspec.json.decode(members.get("content", b"[]"), type=list[Raw])
            blocks.append(Raw(msgspec.json.encode({"type": "text", "text": text})))
            members["content"] = Raw(msgspec.json.encode(blocks))
    except _UNREADABLE:
        return answer
    return msgspec.structs.replace(answer, result=encode_object(members))
