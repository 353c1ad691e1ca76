"""What the client of a transaction is told: the answer to a step, or the error, and what follows from it."""

from headgate.delivery.transactions.answers import noted
from headgate.delivery.transactions.plan import Phase, Remedy, StepState, shown, unsettled
from headgate.delivery.transactions.record import Step, Transaction
from headgate.domain.call import Answer
from headgate.domain.errors import Effect, HeadgateError, StillRunning, TransactionFailed
from headgate.domain.redaction import cleaned


def told(transaction: Transaction, step: Step, answer: Answer, *, spoken: bool) -> Answer:
    """The answer to a step, with what follows from it; raises TransactionFailed where there is no room.

    `spoken` says that a model reads it.
    """
    if step.state is StepState.SENT:
        # A question, with whose answer the step goes on.
        return answer
    if answer.error and transaction.phase is not Phase.RUNNING:
        raise failure(transaction, step, None)
    note = {
        "id": transaction.id,
        "step": step.number,
        "state": shown(transaction.phase, transaction.steps, timed_out=transaction.timed_out),
        "undoable": step.remedy is not Remedy.NONE,
    }
    if transaction.reason:
        note["reason"] = cleaned(transaction.reason)
    return noted(answer, note, cleaned(_words(transaction, step)) if spoken else "")


def _words(transaction: Transaction, step: Step) -> str:
    """What a model should know beyond the answer itself."""
    if transaction.phase is Phase.COMPENSATING and transaction.timed_out and step.state is StepState.DONE:
        return (
            f"The time limit of transaction {transaction.id} is over: it is being rolled back, "
            f"and step {step.number} with it."
        )
    if transaction.phase is Phase.RUNNING and step.state is StepState.DONE and step.remedy is Remedy.NONE:
        why = step.error or "it has no compensation"
        return f"Step {step.number} cannot be undone ({why}): a rollback stops there and waits for a person."
    if step.state is not StepState.FAILED:
        return ""
    return f"Step {step.number} of transaction {transaction.id} failed; {_consequence(transaction)}."


def _consequence(transaction: Transaction) -> str:
    match transaction.phase:
        case Phase.RUNNING:
            return "the transaction goes on without it"
        case Phase.COMPENSATED:
            return "the transaction was rolled back"
        case Phase.STUCK:
            return f"its rollback waits for a person: {transaction.reason}"
        case Phase.LEFT:
            return f"its rollback was given up: {transaction.reason}"
        case _:
            return "the transaction is being rolled back"


def failure(transaction: Transaction, step: Step, error: HeadgateError | None) -> HeadgateError:
    """The error of a step, with what follows from it for the transaction."""
    if error is not None and step.state is StepState.FAILED and transaction.phase is Phase.RUNNING:
        return error
    what = f"step {step.number} of transaction {transaction.id!r}"
    if step.state is StepState.DOUBT:
        failed = TransactionFailed(
            f"{what} may have been carried out (operation {step.op_id or 'unknown'}): {step.error}",
            hint="check whether it was, settle it with resolve_operation, then go on or roll back",
            effect=Effect.UNKNOWN,
        )
    else:
        stuck = transaction.phase in (Phase.STUCK, Phase.LEFT)
        failed = TransactionFailed(
            f"{what} failed: {step.error}; {_consequence(transaction)}",
            hint="get_transaction shows every step" if stuck else "mend the cause and begin another one",
            effect=Effect.DONE if stuck else Effect.NONE,
        )
    failed.receipt = error.receipt if error is not None else None
    return failed


def not_running(transaction: Transaction) -> TransactionFailed:
    """The transaction takes no step and no commit any more."""
    state = shown(transaction.phase, transaction.steps, timed_out=transaction.timed_out)
    why = f" ({transaction.reason})" if transaction.reason else ""
    return TransactionFailed(
        f"transaction {transaction.id!r} is {state}{why}",
        hint="get_transaction shows every step; begin another one to go on",
    )


def blocked(transaction: Transaction) -> HeadgateError:
    """A step is under way or in doubt, and everything else has to wait for it."""
    open_step = unsettled(transaction.steps)
    assert open_step is not None
    step = transaction.step(open_step.number)
    if step.state is StepState.SENT:
        return StillRunning(step.tool, step.op_id or "unknown")
    return TransactionFailed(
        f"step {step.number} of transaction {transaction.id!r} may have been carried out "
        f"(operation {step.op_id or 'unknown'}), which decides what may follow",
        hint="check whether it was, and settle it with resolve_operation",
        effect=Effect.UNKNOWN,
    )
