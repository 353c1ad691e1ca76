"""What the record of an operation says to whoever asks for it."""

from typing import Final

import msgspec
from msgspec import DecodeError

from headgate.delivery.ledger import Operation, State
from headgate.domain.call import Answer
from headgate.domain.ticket import Receipt
from headgate.wire.violations import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)

# With these a server says that it has not even begun.
_NOT_BEGUN: Final = frozenset(
    {
        PARSE_ERROR,
        INVALID_REQUEST,
        METHOD_NOT_FOUND,
        INVALID_PARAMS,
        HEADER_MISMATCH,
        MISSING_CAPABILITY,
        UNSUPPORTED_VERSION,
    }
)
_WORDS: Final = {
    "probe": "a probe says so",
    "operator": "an operator says so",
    "caller": "its caller says so",
}


class _Error(msgspec.Struct):
    code: int = 0


def not_begun(answer: Answer) -> bool:
    """Whether an answer says that the call was not carried out, so that a repeat may be."""
    if not answer.error:
        return False
    try:
        return msgspec.json.decode(answer.error, type=_Error).code in _NOT_BEGUN
    except (DecodeError, UnicodeDecodeError):
        return False


def receipt_of(operation: Operation, *, state: State | None = None, duplicate: bool = False) -> Receipt:
    """What the client is told of an operation."""
    return Receipt(
        op_id=operation.op_id,
        duplicate=duplicate,
        attempts=operation.attempts,
        state=state or operation.state,
        resolved_by=operation.resolved_by,
    )


def word_of(operation: Operation) -> Answer:
    """The answer to a call that was carried out, of which the server's own answer is not known."""
    why = _WORDS.get(operation.resolved_by, "the ledger says so")
    text = f"This call was carried out ({why}). What the server answered is not known."
    return Answer(msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": False}))
