"""The calls that steps and compensations are, and what the ledger knows of them."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from msgspec import Raw

from headgate.delivery.ledger import Operation, State
from headgate.delivery.settled import word_of
from headgate.delivery.transactions.answers import close, is_question, refusal, with_remedy
from headgate.delivery.transactions.book import Book
from headgate.delivery.transactions.plan import Remedy, StepState
from headgate.delivery.transactions.record import Step, Transaction
from headgate.domain.call import Answer, Call, Caller, Request
from headgate.domain.care import ToolClass
from headgate.domain.errors import HeadgateError, OperationNotFound
from headgate.domain.ticket import Ticket

# Makes one call: finds the tool, sees whether the caller may use it, and carries it to its answer.
Use = Callable[[Request], Awaitable[tuple[Call, Answer]]]


class Operations(Protocol):
    """What the ledger knows of calls."""

    async def look(self, caller: Caller, op_id: str) -> Operation:
        """The operation of that id, if it is the caller's; raises OperationNotFound or LedgerAway."""

    async def answer_of(self, operation: Operation) -> Answer:
        """What an operation that is DONE was answered; raises LedgerAway."""

    async def resolve(self, caller: Caller, op_id: str, *, happened: bool, by: str) -> Operation:
        """Settle an operation in doubt; raises HeadgateError when there is no doubt about it."""


class Calls:
    """Makes the calls of a transaction, and finds out what became of them."""

    def __init__(self, operations: Operations, book: Book, use: Use) -> None:
        self._operations = operations
        self._book = book
        self._use = use

    async def undo(self, transaction: Transaction, step: Step) -> Answer:
        """The answer to the compensation of a step; raises HeadgateError."""
        _, answer = await self._use(
            Request(
                caller=transaction.place.caller,
                name=step.undo_tool,
                params={"arguments": Raw(step.undo_arguments)},
                client=step.client,
                ticket=Ticket(key=transaction.undo_key(step), transaction=transaction.id),
            )
        )
        return answer

    async def replay(self, transaction: Transaction, step: Step) -> tuple[Operation, Answer | None]:
        """What a step was answered, out of the ledger, if it was; raises OperationNotFound or LedgerAway."""
        operation = await self._operations.look(transaction.place.caller, step.op_id)
        return operation, await self._answer(operation) if operation.state is State.DONE else None

    async def settled(self, transaction: Transaction, step: Step) -> Step:
        """A step that is SENT or in DOUBT as the ledger knows it now; raises LedgerAway."""
        operation = await self._find(transaction, transaction.key(step), step.op_id)
        if operation is None:
            return self._unknown(transaction, step)
        step = msgspec.structs.replace(step, op_id=operation.op_id)
        match operation.state:
            case State.DONE:
                return await self._ended(transaction, step, await self._answer(operation), operation)
            case State.FAILED | State.ASKED:
                # A server that has asked something waits with the rest, and nobody will answer it.
                reason = operation.error or "it was not carried out"
                return msgspec.structs.replace(step, state=StepState.FAILED, error=reason)
            case State.INTENT:
                return step
            case State.DOUBT:
                step = msgspec.structs.replace(step, state=StepState.DOUBT, error=operation.error)
                return await self._asked_again(transaction, step, operation)

    async def undo_settled(self, transaction: Transaction, step: Step) -> Step:
        """A step whose compensation is in doubt as the ledger knows it now; raises LedgerAway."""
        operation = await self._find(transaction, transaction.undo_key(step), step.undo_op_id)
        if operation is None or operation.state not in (State.DONE, State.FAILED):
            return step
        if operation.state is State.FAILED:
            return again(step)
        answer = await self._answer(operation)
        refused = refusal(answer)
        close(answer)
        return again(step) if refused else msgspec.structs.replace(step, state=StepState.UNDONE, error="")

    async def open_undo(self, transaction: Transaction, step: Step) -> str:
        """The op_id of a compensation that may have been made; empty when the ledger knows that none was."""
        operation = await self._find(transaction, transaction.undo_key(step), step.undo_op_id)
        if operation is None or operation.state in (State.FAILED, State.ASKED):
            return ""
        return operation.op_id

    async def _find(self, transaction: Transaction, key: str, op_id: str) -> Operation | None:
        found = op_id or await self._book.operation(transaction, key)
        if not found:
            return None
        try:
            return await self._operations.look(transaction.place.caller, found)
        except OperationNotFound:
            return None

    async def _answer(self, operation: Operation) -> Answer:
        return await self._operations.answer_of(operation) if operation.answered else word_of(operation)

    def _unknown(self, transaction: Transaction, step: Step) -> Step:
        """A step that the ledger does not have."""
        if step.state is StepState.SENT and step.elsewhere:
            # Another gateway is about to send it.
            return step
        if step.state is StepState.SENT and self._book.remembered(transaction):
            return msgspec.structs.replace(step, state=StepState.FAILED, error="it was never sent")
        return msgspec.structs.replace(
            step, state=StepState.DOUBT, error="the ledger does not remember what became of it"
        )

    async def _asked_again(self, transaction: Transaction, step: Step, operation: Operation) -> Step:
        """A call that does no harm a second time, or that can be asked about, leaves no doubt."""
        if not operation.kind.repeatable and operation.kind is not ToolClass.PROBEABLE:
            return step
        request = Request(
            caller=transaction.place.caller,
            name=step.tool,
            params={"arguments": Raw(step.arguments)},
            client=step.client,
            ticket=Ticket(key=transaction.key(step), transaction=transaction.id),
        )
        try:
            _, answer = await self._use(request)
        except HeadgateError:
            # As little is known as before.
            return step
        if is_question(answer):
            return step
        return await self._ended(transaction, step, answer, operation)

    async def _ended(
        self, transaction: Transaction, step: Step, answer: Answer, operation: Operation
    ) -> Step:
        try:
            return await ended(transaction, step, answer, operation.kind)
        finally:
            close(answer)


async def ended(transaction: Transaction, step: Step, answer: Answer, kind: ToolClass) -> Step:
    """The step after its answer: done, with what takes it back; or refused, and so not done."""
    op_id = answer.receipt.op_id if answer.receipt is not None else ""
    step = msgspec.structs.replace(step, op_id=op_id or step.op_id)
    refused = refusal(answer)
    if refused is not None:
        state = StepState.DOUBT if is_doubted(answer) else StepState.FAILED
        return msgspec.structs.replace(step, state=state, error=refused)
    step = msgspec.structs.replace(step, state=StepState.DONE, error="")
    if step.remedy is Remedy.NONE and kind is ToolClass.READ:
        return msgspec.structs.replace(step, remedy=Remedy.NEEDLESS)
    return await with_remedy(step, transaction.key(step), step.op_id, answer)


def is_doubted(answer: Answer) -> bool:
    """Whether it only says that this attempt was refused, after one that may have been carried out."""
    return answer.receipt is not None and answer.receipt.state == State.DOUBT


def again(step: Step) -> Step:
    """The step whose compensation is made once more, as a call of its own."""
    return msgspec.structs.replace(
        step, state=StepState.UNDOING, undo_round=step.undo_round + 1, undo_op_id=""
    )
