"""Writes down what became of operations, and keeps for later what the ledger does not take."""

import asyncio
import logging
from contextlib import suppress

from headgate.delivery.ledger import (
    Ledger,
    LedgerDamaged,
    Operation,
    Outcome,
    State,
    StoreFailed,
    effect_of,
    unavailable,
)
from headgate.delivery.settled import not_begun, refused
from headgate.domain.call import Answer
from headgate.domain.errors import AnswerNotKept, Effect, LedgerAway
from headgate.protocol.result_conversion import is_input_required

log = logging.getLogger("headgate.delivery")

# A disk that is full for a moment need not cost an answer.
_WRITE_AGAIN_SECONDS = (0.05, 0.2, 1.0)
# Of operations that could not be written down; what is beyond it is in doubt when its lease is over.
_MOST_UNWRITTEN = 1000
# Larger answers are not kept for a ledger that may take them later.
_LARGEST_UNWRITTEN_BYTES = 64 * 1024


class Record:
    """How operations ended, in the ledger as soon as it can be written."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._late: set[asyncio.Task[None]] = set()
        # How operations ended that the ledger did not take, oldest first.
        self._unwritten: dict[str, tuple[Operation, Outcome]] = {}

    async def finish(self, operation: Operation, outcome: Outcome) -> bool:
        """Write down how it ended, if need be again; False when it is not ours any more.

        Raises LedgerAway.
        """
        for pause in (*_WRITE_AGAIN_SECONDS, None):
            try:
                recorded = await self._ledger.finish(operation.op_id, operation.fence, outcome)
            except StoreFailed as failure:
                if pause is None or isinstance(failure, LedgerDamaged):
                    raise unavailable(failure, effect=effect_of(outcome.state)) from failure
                await asyncio.sleep(pause)
            else:
                # What was owed before is of no interest any more.
                self._unwritten.pop(operation.op_id, None)
                return recorded
        raise AssertionError("the last pause is None")

    async def try_to_finish(self, operation: Operation, outcome: Outcome) -> None:
        """Write down that there is no answer; without it the INTENT says the same."""
        try:
            await self.finish(operation, outcome)
        except LedgerAway as away:
            self.owe(operation, outcome)
            log.warning("operation not recorded", extra={"operation": operation.op_id, "reason": str(away)})

    def owe(self, operation: Operation, outcome: Outcome) -> None:
        """Keep what the ledger did not take, until somebody asks for it."""
        answer = outcome.answer
        if answer is not None and not _is_small(answer):
            # Nobody can tell what it was answered, so that it is as good as unknown.
            outcome = in_doubt(operation)
        if len(self._unwritten) >= _MOST_UNWRITTEN:
            del self._unwritten[next(iter(self._unwritten))]
        self._unwritten[operation.op_id] = operation, outcome

    async def catch_up(self, op_id: str) -> bool:
        """Write down what could not be written when it happened; False when nothing is owed.

        Raises LedgerAway.
        """
        owed = self._unwritten.get(op_id)
        if owed is None:
            return False
        # Owed until it is written: whoever asks may leave meanwhile.
        await self.finish(*owed)
        return True

    async def catch_up_with_all(self, seconds: float) -> None:
        """Write down everything that is owed, as far as the ledger takes it within so many seconds."""
        with suppress(LedgerAway, TimeoutError):
            async with asyncio.timeout(seconds):
                for op_id in list(self._unwritten):
                    await self.catch_up(op_id)

    def owes(self, op_id: str) -> bool:
        """Whether it has ended and the ledger did not take that yet."""
        return op_id in self._unwritten

    def forgive(self, op_id: str) -> None:
        """It is carried out anew, so that how it ended before is of no interest."""
        self._unwritten.pop(op_id, None)

    async def answer(self, op_id: str, tool: str) -> Answer:
        """The recorded answer of a call of that tool; raises LedgerAway or AnswerNotKept."""
        try:
            answer = await self._ledger.answer(op_id)
        except StoreFailed as failure:
            raise unavailable(failure, effect=Effect.DONE) from failure
        if answer is None:
            raise AnswerNotKept(tool, op_id)
        return answer

    # Answers after a call was given up.

    def finish_late(self, operation: Operation, answer: Answer) -> None:
        """An answer after the call was given up: whoever asks again gets it."""
        task = asyncio.get_running_loop().create_task(self._finish_late(operation, answer), name="late")
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def settle(self, seconds: float) -> None:
        """Give late answers so long to be recorded."""
        if self._late:
            await asyncio.wait(self._late, timeout=seconds)

    async def _finish_late(self, operation: Operation, answer: Answer) -> None:
        # What asks something has not been carried out, and nobody is there any more to go on with it.
        state = State.FAILED if not_begun(answer) or asks_something(answer) else State.DONE
        attempts = max(1, operation.attempts)
        outcome = Outcome(state=state, answer=answer, attempts=attempts, resolved_by="late")
        if not_begun(answer):
            outcome = refused(answer, attempts, "late")
        try:
            if await self._settles(operation, state):
                await self.try_to_finish(operation, outcome)
        finally:
            close(answer)

    async def _settles(self, operation: Operation, state: State) -> bool:
        """Whether a late answer says more than the ledger does.

        That this attempt came to nothing settles a doubt only where no other attempt may have happened.
        """
        try:
            found = await self._ledger.find(operation.op_id)
        except StoreFailed:
            return state is State.DONE
        if state is State.DONE:
            return found is None or found.state is not State.DONE
        return not operation.doubted and found is not None and found.state is State.DOUBT


def asks_something(answer: Answer) -> bool:
    """Whether the server waits for the call to go on."""
    return isinstance(answer.result, bytes) and answer.typed and is_input_required(answer.result)


def in_doubt(operation: Operation) -> Outcome:
    """Nobody knows how it ended."""
    return Outcome(state=State.DOUBT, attempts=operation.attempts, error_code=operation.error_code)


def close(answer: Answer) -> None:
    """Nobody takes it."""
    if not isinstance(answer.result, bytes):
        answer.result.close()


def _is_small(answer: Answer) -> bool:
    return isinstance(answer.result, bytes) and len(answer.result) <= _LARGEST_UNWRITTEN_BYTES
