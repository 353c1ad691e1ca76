"""What the record of an operation says to whoever asks for it."""

from typing import Final

import msgspec

from headgate.delivery.ledger import Operation, Outcome, State
from headgate.domain.call import Answer
from headgate.domain.errors import quoted
from headgate.domain.ticket import Receipt
from headgate.protocol.jsonrpc_errors import rejection_of

_WORDS: Final = {
    "probe": "a probe says so",
    "operator": "an operator says so",
    "caller": "its caller says so",
}


def not_begun(answer: Answer) -> bool:
    """Whether an answer says that the call was not carried out, so that a repeat may be."""
    return bool(answer.error) and bool(rejection_of(answer.error).code)


def refused(answer: Answer, attempts: int, resolved_by: str = "") -> Outcome:
    """What is recorded of a call that its server did not begin: nothing happened, and why."""
    refusal = rejection_of(answer.error)
    return Outcome(
        state=State.FAILED,
        answer=answer,
        attempts=attempts,
        error_code=refusal.code,
        error=quoted(refusal.message),
        resolved_by=resolved_by,
    )


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
    left = "Its answer is no longer kept." if operation.dropped else "What the server answered is not known."
    text = f"This call was carried out ({why}). {left}"
    return Answer(msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": False}))
