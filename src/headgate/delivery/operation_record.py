"""Records the outcome of operations, keeps those that the ledger did not take, and reads recorded answers."""

import asyncio
import logging
from contextlib import suppress
from typing import Final

import msgspec

from headgate.delivery.errors import LedgerUnavailable, RecordedResponseExpired
from headgate.delivery.ledger import (
    Ledger,
    LedgerDamaged,
    Operation,
    OperationOutcome,
    OperationState,
    effect_of,
    ledger_unavailable,
)
from headgate.domain.delivery_request import DeliveryStatus
from headgate.domain.errors import Effect, StoreFailed, quoted
from headgate.domain.mcp_request import McpResponse
from headgate.protocol.jsonrpc_errors import rejection_of
from headgate.protocol.result_conversion import is_input_required

_RESOLVED_BY_TEXTS: Final = {
    "probe": "a probe says so",
    "operator": "an operator says so",
    "caller": "its caller says so",
}


def was_not_executed(answer: McpResponse) -> bool:
    """Whether an answer says that the call was not carried out, so that a repeat may be."""
    return bool(answer.error) and bool(rejection_of(answer.error).code)


def refusal_outcome(answer: McpResponse, attempts: int, resolved_by: str = "") -> OperationOutcome:
    """What is recorded of a call that its server did not begin: nothing happened, and why."""
    refusal = rejection_of(answer.error)
    return OperationOutcome(
        state=OperationState.FAILED,
        answer=answer,
        attempts=attempts,
        error_code=refusal.code,
        error=quoted(refusal.message),
        resolved_by=resolved_by,
    )


def delivery_status_of(
    operation: Operation, *, state: OperationState | None = None, duplicate: bool = False
) -> DeliveryStatus:
    """What the client is told of an operation."""
    return DeliveryStatus(
        op_id=operation.op_id,
        duplicate=duplicate,
        attempts=operation.attempts,
        state=state or operation.state,
        resolved_by=operation.resolved_by,
    )


def substitute_answer(operation: Operation) -> McpResponse:
    """The answer to a call that was carried out, of which the server's own answer is not known."""
    why = _RESOLVED_BY_TEXTS.get(operation.resolved_by, "the ledger says so")
    left = "Its answer is no longer kept." if operation.dropped else "What the server answered is not known."
    text = f"This call was carried out ({why}). {left}"
    return McpResponse(msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": False}))


log = logging.getLogger("headgate.delivery")

# A disk that is full for a moment need not cost an answer.
_WRITE_RETRY_SECONDS = (0.05, 0.2, 1.0)
# Of operations that could not be written down; what is beyond it is in doubt when its lease is over.
_MAX_UNWRITTEN = 1000
# Larger answers are not kept for a ledger that may take them later.
_MAX_UNWRITTEN_ANSWER_BYTES = 64 * 1024


class OperationRecorder:
    """How operations ended, in the ledger as soon as it can be written."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._late_tasks: set[asyncio.Task[None]] = set()
        # How operations ended that the ledger did not take, oldest first.
        self._unwritten: dict[str, tuple[Operation, OperationOutcome]] = {}

    async def finish(self, operation: Operation, outcome: OperationOutcome) -> bool:
        """Write down how it ended, if need be again; False when it is not ours any more.

        Raises LedgerAway.
        """
        for pause in (*_WRITE_RETRY_SECONDS, None):
            try:
                recorded = await self._ledger.finish(operation.op_id, operation.fence, outcome)
            except StoreFailed as failure:
                if pause is None or isinstance(failure, LedgerDamaged):
                    raise ledger_unavailable(failure, effect=effect_of(outcome.state)) from failure
                await asyncio.sleep(pause)
            else:
                # What was owed before is of no interest any more.
                self._unwritten.pop(operation.op_id, None)
                return recorded
        raise AssertionError("the last pause is None")

    async def try_to_finish(self, operation: Operation, outcome: OperationOutcome) -> None:
        """Write down that there is no answer; without it the INTENT says the same."""
        try:
            await self.finish(operation, outcome)
        except LedgerUnavailable as away:
            self.keep_unwritten(operation, outcome)
            log.warning("operation not recorded", extra={"operation": operation.op_id, "reason": str(away)})

    def keep_unwritten(self, operation: Operation, outcome: OperationOutcome) -> None:
        """Keep what the ledger did not take, until somebody asks for it."""
        answer = outcome.answer
        if answer is not None and not _is_small_answer(answer):
            # Nobody can tell what it was answered, so that it is as good as unknown.
            outcome = doubt_outcome(operation)
        if len(self._unwritten) >= _MAX_UNWRITTEN:
            del self._unwritten[next(iter(self._unwritten))]
        self._unwritten[operation.op_id] = operation, outcome

    async def write_unwritten(self, op_id: str) -> bool:
        """Write down what could not be written when it happened; False when nothing is owed.

        Raises LedgerAway.
        """
        owed = self._unwritten.get(op_id)
        if owed is None:
            return False
        # Owed until it is written: whoever asks may leave meanwhile.
        await self.finish(*owed)
        return True

    async def write_all_unwritten(self, seconds: float) -> None:
        """Write down everything that is owed, as far as the ledger takes it within so many seconds."""
        with suppress(LedgerUnavailable, TimeoutError):
            async with asyncio.timeout(seconds):
                for op_id in list(self._unwritten):
                    await self.write_unwritten(op_id)

    def has_unwritten(self, op_id: str) -> bool:
        """Whether it has ended and the ledger did not take that yet."""
        return op_id in self._unwritten

    def discard_unwritten(self, op_id: str) -> None:
        """It is carried out anew, so that how it ended before is of no interest."""
        self._unwritten.pop(op_id, None)

    async def read_answer(self, op_id: str, tool: str) -> McpResponse:
        """The recorded answer of a call of that tool; raises LedgerAway or AnswerNotKept."""
        try:
            answer = await self._ledger.read_answer(op_id)
        except StoreFailed as failure:
            raise ledger_unavailable(failure, effect=Effect.DONE) from failure
        if answer is None:
            raise RecordedResponseExpired(tool, op_id)
        return answer

    # Answers after a call was given up.

    def record_late_answer(self, operation: Operation, answer: McpResponse) -> None:
        """An answer after the call was given up: whoever asks again gets it."""
        task = asyncio.get_running_loop().create_task(
            self._record_late_answer(operation, answer), name="late"
        )
        self._late_tasks.add(task)
        task.add_done_callback(self._late_tasks.discard)

    async def wait_for_late_answers(self, seconds: float) -> None:
        """Give late answers so long to be recorded."""
        if self._late_tasks:
            await asyncio.wait(self._late_tasks, timeout=seconds)

    async def _record_late_answer(self, operation: Operation, answer: McpResponse) -> None:
        # What asks something has not been carried out, and nobody is there any more to go on with it.
        state = (
            OperationState.FAILED
            if was_not_executed(answer) or requests_input(answer)
            else OperationState.DONE
        )
        attempts = max(1, operation.attempts)
        outcome = OperationOutcome(state=state, answer=answer, attempts=attempts, resolved_by="late")
        if was_not_executed(answer):
            outcome = refusal_outcome(answer, attempts, "late")
        try:
            if await self._late_answer_counts(operation, state):
                await self.try_to_finish(operation, outcome)
        finally:
            close_answer(answer)

    async def _late_answer_counts(self, operation: Operation, state: OperationState) -> bool:
        """Whether a late answer says more than the ledger does.

        That this attempt came to nothing settles a doubt only where no other attempt may have happened.
        """
        try:
            found = await self._ledger.find(operation.op_id)
        except StoreFailed:
            return state is OperationState.DONE
        if state is OperationState.DONE:
            return found is None or found.state is not OperationState.DONE
        return not operation.doubted and found is not None and found.state is OperationState.DOUBT


def requests_input(answer: McpResponse) -> bool:
    """Whether the server waits for the call to go on."""
    return isinstance(answer.result, bytes) and answer.typed and is_input_required(answer.result)


def doubt_outcome(operation: Operation) -> OperationOutcome:
    """Nobody knows how it ended."""
    return OperationOutcome(
        state=OperationState.DOUBT, attempts=operation.attempts, error_code=operation.error_code
    )


def close_answer(answer: McpResponse) -> None:
    """Nobody takes it."""
    if not isinstance(answer.result, bytes):
        answer.result.close()


def _is_small_answer(answer: McpResponse) -> bool:
    return isinstance(answer.result, bytes) and len(answer.result) <= _MAX_UNWRITTEN_ANSWER_BYTES
