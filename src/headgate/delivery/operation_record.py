"""Records outcomes of operations, keeps those that could not be written, and reads recorded answers."""

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
from headgate.event_loop import BackgroundTasks
from headgate.protocol.jsonrpc_errors import rejection_of
from headgate.protocol.result_conversion import is_input_required

log = logging.getLogger("headgate.delivery")

_RESOLVED_BY_TEXTS: Final = {
    "probe": "a probe says so",
    "operator": "an operator says so",
    "caller": "its caller says so",
}
# A disk that is full for a moment must not cost an answer.
_WRITE_RETRY_SECONDS = (0.05, 0.2, 1.0)
# The most outcomes kept in memory; an operation beyond it is in doubt when its lease ends.
_MAX_UNWRITTEN = 1000
# Larger answers are not kept in memory.
_MAX_UNWRITTEN_ANSWER_BYTES = 64 * 1024


class OperationRecorder:
    """Writes outcomes to the ledger as soon as it can be written."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._late_tasks = BackgroundTasks()
        # Outcomes that could not be written, oldest first.
        self.unwritten: dict[str, tuple[Operation, OperationOutcome]] = {}

    async def finish(self, operation: Operation, outcome: OperationOutcome) -> bool:
        """Record an outcome, with retries; False if it has another owner by now. Raises LedgerUnavailable."""
        for pause in (*_WRITE_RETRY_SECONDS, None):
            try:
                recorded = await self._ledger.finish(operation.op_id, operation.fence, outcome)
            except StoreFailed as failure:
                if pause is None or isinstance(failure, LedgerDamaged):
                    raise ledger_unavailable(failure, effect=effect_of(outcome.state)) from failure
                await asyncio.sleep(pause)
            else:
                # It replaces an earlier outcome that could not be written.
                self.unwritten.pop(operation.op_id, None)
                return recorded
        raise AssertionError("the last pause is None")

    async def try_to_finish(self, operation: Operation, outcome: OperationOutcome) -> None:
        """Record an outcome without an answer; raises nothing, because a left INTENT says the same."""
        try:
            await self.finish(operation, outcome)
        except LedgerUnavailable as away:
            self.keep_unwritten(operation, outcome)
            log.warning("operation not recorded", extra={"operation": operation.op_id, "reason": str(away)})

    def keep_unwritten(self, operation: Operation, outcome: OperationOutcome) -> None:
        answer = outcome.answer
        if answer is not None and not (
            isinstance(answer.result, bytes) and len(answer.result) <= _MAX_UNWRITTEN_ANSWER_BYTES
        ):
            # Its answer is lost, so that the outcome counts as unknown.
            outcome = doubt_outcome(operation)
        if len(self.unwritten) >= _MAX_UNWRITTEN:
            del self.unwritten[next(iter(self.unwritten))]
        self.unwritten[operation.op_id] = operation, outcome

    async def write_unwritten(self, op_id: str) -> bool:
        """Write a kept outcome; False when there is none. Raises LedgerUnavailable."""
        unwritten = self.unwritten.get(op_id)
        if unwritten is None:
            return False
        # `finish` removes it: the caller may be cancelled before that.
        await self.finish(*unwritten)
        return True

    async def write_all_unwritten(self, seconds: float) -> None:
        """Write all kept outcomes that can be written within so many seconds."""
        with suppress(LedgerUnavailable, TimeoutError):
            async with asyncio.timeout(seconds):
                for op_id in list(self.unwritten):
                    await self.write_unwritten(op_id)

    async def read_answer(self, op_id: str, tool: str) -> McpResponse:
        """The recorded answer of a call of that tool; raises LedgerUnavailable or RecordedResponseExpired."""
        try:
            answer = await self._ledger.read_answer(op_id)
        except StoreFailed as failure:
            raise ledger_unavailable(failure, effect=Effect.DONE) from failure
        if answer is None:
            raise RecordedResponseExpired(tool, op_id)
        return answer

    def record_late_answer(self, operation: Operation, answer: McpResponse) -> None:
        """Record an answer that came after the call was given up, in the background."""
        self._late_tasks.start(self._record_late_answer(operation, answer), name="late answer")

    async def wait_for_late_answers(self, seconds: float) -> None:
        """Wait at most so long for late answers to be recorded."""
        await self._late_tasks.wait(seconds)

    async def _record_late_answer(self, operation: Operation, answer: McpResponse) -> None:
        # A call that requests input was not executed, and no client is left to continue it.
        failed = was_not_executed(answer) or requests_input(answer)
        state = OperationState.FAILED if failed else OperationState.DONE
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

        A refused attempt settles a doubt only when no other attempt may have been executed.
        """
        try:
            found = await self._ledger.find(operation.op_id)
        except StoreFailed:
            return state is OperationState.DONE
        if state is OperationState.DONE:
            return found is None or found.state is not OperationState.DONE
        return not operation.doubted and found is not None and found.state is OperationState.DOUBT


def was_not_executed(answer: McpResponse) -> bool:
    """Whether the server refused the call before it began, so that a repeat is safe."""
    return bool(answer.error) and bool(rejection_of(answer.error).code)


def refusal_outcome(answer: McpResponse, attempts: int, resolved_by: str = "") -> OperationOutcome:
    """The outcome of a call that its server refused before it began."""
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
    return DeliveryStatus(
        op_id=operation.op_id,
        duplicate=duplicate,
        attempts=operation.attempts,
        state=state or operation.state,
        resolved_by=operation.resolved_by,
    )


def substitute_answer(operation: Operation) -> McpResponse:
    """An answer in place of that of the server, for a call that was executed and whose answer is lost."""
    why = _RESOLVED_BY_TEXTS.get(operation.resolved_by, "the ledger says so")
    left = "Its answer is no longer kept." if operation.dropped else "What the server answered is not known."
    text = f"This call was carried out ({why}). {left}"
    return McpResponse(msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": False}))


def requests_input(answer: McpResponse) -> bool:
    """Whether the answer is a request for input, with which the client continues the call."""
    return isinstance(answer.result, bytes) and answer.typed and is_input_required(answer.result)


def doubt_outcome(operation: Operation) -> OperationOutcome:
    """The outcome of an operation whose effect is unknown."""
    return OperationOutcome(
        state=OperationState.DOUBT, attempts=operation.attempts, error_code=operation.error_code
    )


def close_answer(answer: McpResponse) -> None:
    """Release an answer that no caller takes."""
    if not isinstance(answer.result, bytes):
        answer.result.close()
