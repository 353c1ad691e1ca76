"""Makes the steps of a transaction: recorded before they are sent, and followed by what they come to."""

from collections.abc import Callable

import msgspec
from msgspec import Raw

from headgate.delivery.fingerprint import canonical
from headgate.delivery.settled import receipt_of
from headgate.delivery.transactions.answers import close, is_question
from headgate.delivery.transactions.book import Book
from headgate.delivery.transactions.calls import Calls, Use, ended
from headgate.delivery.transactions.plan import (
    OnFailure,
    Phase,
    Remedy,
    StepState,
    next_number,
    unsettled,
)
from headgate.delivery.transactions.record import Event, Place, Step, Transaction
from headgate.delivery.transactions.telling import blocked, failure, not_running, told
from headgate.delivery.transactions.undoing import OVERDUE, Undoing, turned
from headgate.domain.call import Answer, Call, Caller, Request
from headgate.domain.care import ToolClass
from headgate.domain.errors import (
    Effect,
    HeadgateError,
    SequenceBroken,
    StepReused,
    StillRunning,
    TransactionFailed,
)
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.domain.ticket import Ticket

# Raises ToolNotFound or ServerNotFound when nobody has a tool of that name for the caller.
Find = Callable[[str, Caller], object]

# Of a client that goes on with a call whose server has asked something.
_CONTINUES = "requestState"
_MOST_STEPS = 1000


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A step as a client wants it."""

    tool: str
    arguments: bytes
    undo_tool: str = ""
    undo_template: bytes = b"{}"
    sequence: int | None = None
    # The client's own name for it.
    key: str = ""
    # How many seconds a transaction may take that begins with this step; None when it has to be there.
    begins_seconds: float | None = None
    # Whether a model reads the answer.
    spoken: bool = False


class _Made(msgspec.Struct, frozen=True):
    """A step that was made, with the answer or the error that it got."""

    transaction: Transaction
    step: Step
    call: Call | None = None
    answer: Answer | None = None
    error: HeadgateError | None = None


class Steps:
    """Makes steps."""

    def __init__(
        self, book: Book, calls: Calls, undoing: Undoing, kind: Callable[[Item], ToolClass], find: Find
    ) -> None:
        self._book = book
        self._calls = calls
        self._undoing = undoing
        self._kind = kind
        self._find = find

    async def make(self, place: Place, wish: Wish, request: Request, use: Use) -> tuple[Call, Answer]:
        """The answer to a step, after what follows from it; raises HeadgateError."""
        made = await self._made(place, wish, request, use)
        transaction = made.transaction
        if transaction.phase is Phase.COMPENSATING and made.step.state is StepState.FAILED:
            transaction = await self._undoing.run(place)
        elif transaction.phase is Phase.COMPENSATING:
            self._undoing.start(place)
        if made.error is not None:
            raise failure(transaction, made.step, made.error) from made.error
        assert made.call is not None
        assert made.answer is not None
        return made.call, told(transaction, made.step, made.answer, spoken=wish.spoken)

    async def _made(self, place: Place, wish: Wish, request: Request, use: Use) -> _Made:
        async with self._book.alone(place):
            transaction = await self._found(place, wish)
            known = _known(transaction, wish, request)
            if known is not None:
                return await self._again(transaction, known, wish, request, use)
            transaction = await self._ready(transaction)
            number = next_number(transaction.steps)
            if wish.sequence not in (None, number):
                raise SequenceBroken(transaction.id, number, wish.sequence or 0)
            self._check_tools(wish, place.caller)
            step = _new(number, wish, request)
            transaction = await self._book.write(transaction, f"step {number}: sent ({step.tool})", step)
            return await self._carried(transaction, step, request, use)

    async def _found(self, place: Place, wish: Wish) -> Transaction:
        if wish.begins_seconds is None:
            return await self._book.read(place)
        found = await self._book.find(place)
        if found is not None:
            return found
        if wish.sequence not in (None, 1):
            raise SequenceBroken(place.id, 1, wish.sequence or 0)
        self._check_tools(wish, place.caller)
        await self._book.begin(begun(place, self._book.now, wish.begins_seconds, OnFailure.ROLLBACK))
        return await self._book.read(place)

    def _check_tools(self, wish: Wish, caller: Caller) -> None:
        """Raises HeadgateError for a tool that nobody has: found out later, it would cost the other steps."""
        self._find(wish.tool, caller)
        if wish.undo_tool:
            self._find(wish.undo_tool, caller)

    async def _ready(self, transaction: Transaction) -> Transaction:
        """The transaction, if it can take a step now; raises HeadgateError."""
        if transaction.phase is Phase.RUNNING:
            transaction = await self._undoing.settled(transaction)
        if transaction.phase is Phase.COMPENSATING:
            self._undoing.start(transaction.place)
        if transaction.phase is not Phase.RUNNING:
            raise not_running(transaction)
        if unsettled(transaction.steps) is not None:
            raise blocked(transaction)
        if transaction.deadline <= self._book.now:
            raise TransactionFailed(
                f"transaction {transaction.id!r} is past its time limit and is rolled back",
                hint="begin another one, with a longer timeout_ms if need be",
            )
        if len(transaction.steps) >= _MOST_STEPS:
            raise TransactionFailed(
                f"transaction {transaction.id!r} has {_MOST_STEPS} steps, which is the most",
                hint="commit it and begin another one",
            )
        return transaction

    # A step that was made before.

    async def _again(
        self, transaction: Transaction, step: Step, wish: Wish, request: Request, use: Use
    ) -> _Made:
        if step.tool != wish.tool:
            raise StepReused(transaction.id, step.number, "another tool")
        if canonical(step.arguments) != canonical(wish.arguments):
            raise StepReused(transaction.id, step.number, "other arguments")
        last = step.number == len(transaction.steps)
        not_done = step.state in (StepState.SENT, StepState.DOUBT, StepState.FAILED)
        if transaction.phase is Phase.RUNNING and last and not_done and self._book.remembered(transaction):
            # The ledger knows whether it has to be carried out.
            is_open = step.state is not StepState.FAILED
            return await self._carried(
                *await self._reopened(transaction, step), request, use, repeats=is_open
            )
        if not step.op_id or step.state in (StepState.SENT, StepState.DOUBT):
            raise not_running(transaction) if transaction.phase is not Phase.RUNNING else blocked(transaction)
        operation, answer = await self._calls.replay(transaction, step)
        if answer is None:
            raise not_running(transaction)
        answer = msgspec.structs.replace(answer, receipt=receipt_of(operation, duplicate=True))
        tool = Item(Kind.TOOLS, operation.server, operation.tool, operation.public_name)
        return _Made(transaction, step, Call(_sent(transaction, step, request), tool), answer)

    async def _reopened(self, transaction: Transaction, step: Step) -> tuple[Transaction, Step]:
        """A step that failed is recorded as sent once more: a rollback passes over what has failed."""
        if step.state is not StepState.FAILED:
            return transaction, step
        step = msgspec.structs.replace(step, state=StepState.SENT, error="")
        return await self._book.write(transaction, f"step {step.number}: sent again", step), step

    # A step that is made now.

    async def _carried(
        self, transaction: Transaction, step: Step, request: Request, use: Use, *, repeats: bool = False
    ) -> _Made:
        """The step after its call; `repeats` says that it may have been carried out before."""
        try:
            call, answer = await use(_sent(transaction, step, request))
        except StillRunning:
            raise
        except HeadgateError as error:
            if repeats and error.effect is Effect.NONE and await self._may_have_happened(transaction, step):
                # It did not even get to the ledger, and says nothing of the attempt before.
                raise blocked(transaction) from error
            return await self._failed(transaction, step, error)
        if is_question(answer):
            # It goes on when the client has answered.
            return _Made(transaction, step, call, answer)
        step = await ended(transaction, step, answer, self._kind(call.item))
        try:
            transaction = await self._recorded(transaction, step, Effect.DONE)
        except HeadgateError:
            close(answer)
            raise
        return _Made(transaction, step, call, answer)

    async def _may_have_happened(self, transaction: Transaction, step: Step) -> bool:
        return (await self._calls.settled(transaction, step)).state is not StepState.FAILED

    async def _failed(self, transaction: Transaction, step: Step, error: HeadgateError) -> _Made:
        op_id = error.receipt.op_id if error.receipt is not None else ""
        step = msgspec.structs.replace(
            step,
            state=StepState.FAILED if error.effect is Effect.NONE else StepState.DOUBT,
            op_id=op_id or step.op_id,
            error=error.message,
        )
        transaction = await self._recorded(transaction, step, error.effect)
        return _Made(transaction, step, error=error)

    async def _recorded(self, transaction: Transaction, step: Step, effect: Effect) -> Transaction:
        text = f"step {step.number}: {step.state}" + (f" ({step.error})" if step.error else "")
        changes = turned(transaction, step)
        if not changes and self._is_late(transaction, step):
            changes = OVERDUE
        return await self._book.write(transaction, text, step, effect=effect, **changes)

    def _is_late(self, transaction: Transaction, step: Step) -> bool:
        """Whether the step has ended, and the time of its transaction before it."""
        has_ended = step.state in (StepState.DONE, StepState.FAILED)
        return has_ended and transaction.phase is Phase.RUNNING and transaction.deadline <= self._book.now


def begun(place: Place, now: float, seconds: float, on_failure: OnFailure) -> Transaction:
    """A new transaction."""
    return Transaction(
        tenant=place.tenant,
        principal=place.principal,
        id=place.id,
        created=now,
        updated=now,
        deadline=now + seconds,
        on_failure=on_failure,
        history=(Event(now, "begun"),),
    )


def _known(transaction: Transaction, wish: Wish, request: Request) -> Step | None:
    """The step that the wish repeats."""
    if wish.sequence is not None:
        return transaction.steps[wish.sequence - 1] if 0 < wish.sequence <= len(transaction.steps) else None
    if _CONTINUES in request.params and transaction.steps:
        return transaction.steps[-1]
    named = (step for step in transaction.steps if wish.key and step.named == wish.key)
    return next(named, None)


def _new(number: int, wish: Wish, request: Request) -> Step:
    return Step(
        number=number,
        tool=wish.tool,
        arguments=wish.arguments,
        remedy=Remedy.COMPENSATION if wish.undo_tool else Remedy.NONE,
        named=wish.key,
        client=request.client,
        undo_tool=wish.undo_tool,
        undo_template=wish.undo_template if wish.undo_tool else b"",
    )


def _sent(transaction: Transaction, step: Step, request: Request) -> Request:
    """The call of a step."""
    ticket = msgspec.structs.replace(
        request.ticket or Ticket(), key=transaction.key(step), transaction=transaction.id
    )
    params = {**request.params, "arguments": Raw(step.arguments)}
    return msgspec.structs.replace(request, name=step.tool, params=params, ticket=ticket)
