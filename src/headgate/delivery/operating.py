"""One operation from its claim to its record, whatever happens in between."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import msgspec

from headgate.delivery.joining import Ended, Running
from headgate.delivery.ledger import (
    Intent,
    Ledger,
    Operation,
    Outcome,
    State,
    StoreFailed,
    Verdict,
    unavailable,
)
from headgate.delivery.promises import Promises
from headgate.delivery.record import Record, asks_something, close, in_doubt
from headgate.delivery.settled import not_begun, receipt_of, refused, word_of
from headgate.domain.call import Answer, Call, Errand
from headgate.domain.care import Care, ToolClass
from headgate.domain.errors import (
    AnswerNotKept,
    AnswerNotStored,
    Effect,
    HeadgateError,
    InDoubt,
    InternalError,
    KeyReused,
    LedgerAway,
    StillRunning,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from headgate.domain.item import Item
from headgate.domain.ticket import Receipt

log = logging.getLogger("headgate.delivery")

# An operation of another gateway is looked at so often.
_FIRST_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 1.0
# The record is held for a while longer than the call may take, so that an answer at the last moment counts.
LEASE_SECONDS = 30.0
# A probe that says no each time does not make a call try for ever.
_MOST_RESENT = 2
_CANCELLED = "CANCELLED"
# Why a call was given up whose server may go on with it.
_STILL_AT_WORK = (UpstreamTimeout.code, _CANCELLED)


class Delivery(Protocol):
    """Whatever carries a call out."""

    def deliver(self, call: Call) -> Coroutine[Any, Any, Answer]:
        """The upstream's answer; raises HeadgateError saying what may have happened."""

    def sends_requests_during_calls(self, server: str) -> bool:
        """Whether the server puts its questions while a call is under way."""

    def is_ready(self, server: str) -> bool:
        """Whether a call would be sent at once."""

    async def await_ready(self, server: str) -> None:
        """Wait until the server is there; raises HeadgateError with the cause."""


class Prober(Protocol):
    """Asks a server whether a call has happened."""

    async def happened(self, operation: Operation, care: Care) -> bool | None:
        """Whether it did; None when nobody can tell."""


class Operating:
    """Carries operations out and writes down what became of them."""

    def __init__(
        self,
        delivery: Delivery,
        ledger: Ledger,
        record: Record,
        promises: Promises,
        prober: Prober,
        now: Callable[[], float],
        longest_seconds: Callable[[str], float],
    ) -> None:
        self._delivery = delivery
        self._ledger = ledger
        self._promises = promises
        self._prober = prober
        self._now = now
        self._longest_seconds = longest_seconds
        self._record = record

    async def operate(self, running: Running, call: Call, intent: Intent, deadline: float) -> Ended:
        """Claim the key and carry the call out, or tell what became of the one before; raises nothing."""
        return await _ended(running, self._operate(running, call, intent, deadline))

    async def redrive(self, running: Running, call: Call, orphan: Operation, seconds: float) -> Ended:
        """Make a call again that a gateway left behind; raises nothing."""
        return await _ended(running, self._redrive(running, call, orphan, seconds))

    async def doubt(self, orphan: Operation, reason: str) -> None:
        """Nobody knows what became of it."""
        try:
            fence = await self._ledger.adopt(orphan.op_id, orphan.fence, self._now())
            if fence is not None:
                outcome = Outcome(state=State.DOUBT, attempts=orphan.attempts, error=reason)
                await self._ledger.finish(orphan.op_id, fence, outcome)
        except StoreFailed as failure:
            log.warning("operation not recorded", extra={"operation": orphan.op_id, "reason": str(failure)})

    async def _operate(self, running: Running, call: Call, intent: Intent, deadline: float) -> Ended:
        await self._await_server(running, call.item.server, intent, deadline)
        pause = _FIRST_LOOK_SECONDS
        while True:
            try:
                claim = await self._ledger.claim(_cautious(intent))
            except StoreFailed as failure:
                return await self._without_record(running, call, intent, deadline, failure)
            operation = claim.operation
            running.op_id = operation.op_id
            match claim.verdict:
                case Verdict.CONFLICT:
                    raise KeyReused(intent.key, difference(call.item, operation.server, operation.tool))
                case Verdict.GRANTED:
                    self._record.forgive(operation.op_id)
                    return await self._carry_out(running, call, operation, deadline)
            if await self._record.catch_up(operation.op_id):
                continue
            if operation.state is State.INTENT:
                # Another gateway has it under way; a claim also finds out when that one is gone.
                await _pause(running, operation, pause, deadline)
                pause = min(2 * pause, _LONGEST_LOOK_SECONDS)
                continue
            if operation.state is not State.DOUBT or operation.kind is not ToolClass.PROBEABLE:
                return await self._told(operation)
            ended = await self._probed(running, call, intent, operation, deadline)
            if ended is not None:
                return ended

    async def _await_server(self, running: Running, server: str, intent: Intent, deadline: float) -> None:
        """Let the server start before the intent is recorded: a gateway that ends meanwhile leaves no doubt.

        Whoever repeats a call that is known need not wait for it. Raises HeadgateError.
        """
        if self._delivery.is_ready(server):
            return
        try:
            known = await self._ledger.find_key(intent.tenant, intent.principal, intent.key)
        except StoreFailed:
            # The claim is going to say what is wrong.
            return
        if known is not None and known.state in (State.INTENT, State.DONE, State.DOUBT):
            return
        try:
            async with asyncio.timeout_at(deadline):
                await running.send(lambda: asyncio.create_task(_ready(self._delivery, server)))
        except TimeoutError as error:
            raise UpstreamUnavailable(server, "it is still starting", retry_after_seconds=1.0) from error

    async def _redrive(self, running: Running, call: Call, orphan: Operation, seconds: float) -> Ended:
        fence = await self._ledger.adopt(orphan.op_id, orphan.fence, self._now() + seconds + LEASE_SECONDS)
        if fence is None:
            return await self._told(await self._ledger.find(orphan.op_id) or orphan)
        operation = msgspec.structs.replace(orphan, fence=fence, doubted=True)
        deadline = asyncio.get_running_loop().time() + seconds
        return await self._carry_out(running, call, operation, deadline)

    async def _without_record(
        self, running: Running, call: Call, intent: Intent, deadline: float, failure: StoreFailed
    ) -> Ended:
        """The ledger cannot be written: what must not happen twice does not happen."""
        if intent.kind is not ToolClass.READ:
            raise unavailable(failure) from failure
        # To read twice does no harm, so reading goes on.
        answer = await running.send(lambda: self._sending(call, Errand(deadline=deadline)))
        return Ended(Receipt(attempts=_attempts(answer), unrecorded=True), answer)

    # A call that was made before.

    async def _told(self, operation: Operation) -> Ended:
        """What an operation that is not ours to make says; raises InDoubt or AnswerNotKept."""
        receipt = receipt_of(operation, duplicate=True)
        if operation.state is not State.DONE:
            raise _with_receipt(InDoubt(operation.public_name, operation.op_id), receipt)
        if operation.dropped:
            raise _with_receipt(AnswerNotKept(operation.public_name, operation.op_id), receipt)
        if not operation.answered:
            return Ended(receipt, word_of(operation))
        return Ended(receipt, await self._record.answer(operation.op_id, operation.public_name))

    async def _probed(
        self, running: Running, call: Call, intent: Intent, operation: Operation, deadline: float
    ) -> Ended | None:
        """An operation in doubt after its server was asked: told, or sent again; None to claim it anew."""
        care = self._promises.of_server(call.item.server).of(call.item.name)
        happened = await self._prober.happened(operation, care)
        if happened:
            outcome = Outcome(state=State.DONE, attempts=operation.attempts, resolved_by="probe")
            await self._record.finish(operation, outcome)
            operation = await self._ledger.find(operation.op_id) or operation
        over = happened is False and self._is_over(operation, care)
        if happened or (not over and intent.retries_doubt_since is None):
            return await self._told(operation)
        again = await self._ledger.claim(msgspec.structs.replace(intent, retries_doubt_since=0.0))
        if again.verdict is not Verdict.GRANTED:
            return None
        if again.operation.fence != operation.fence + 1:
            # Another gateway has sent it since the probe, which says nothing of that.
            await self._record.try_to_finish(again.operation, in_doubt(again.operation))
            return None
        # A caller who wants it sent all the same does not end the doubt about what was sent before.
        operation = msgspec.structs.replace(
            again.operation, doubted=not over, error_code=operation.error_code
        )
        return await self._carry_out(running, call, operation, deadline)

    def _is_over(self, operation: Operation, care: Care) -> bool:
        """Whether the server can be at it no more, so that what has not happened is not going to."""
        age = self._now() - operation.updated
        settle = care.probe.settle_seconds if care.probe is not None else None
        if settle is None or operation.error_code in _STILL_AT_WORK:
            return age > self._longest_seconds(operation.server)
        return age >= settle

    # A call that is made now.

    async def _carry_out(
        self, running: Running, call: Call, operation: Operation, deadline: float, resent: int = 0
    ) -> Ended:
        sent = asyncio.Event()
        errand = Errand(
            key=operation.op_id,
            deadline=deadline,
            retry_count=operation.attempts,
            on_send=sent.set,
            # Of the variable, not of its value: by then it knows the attempts.
            on_late=lambda answer: self._record.finish_late(operation, answer),
        )
        try:
            answer = await running.send(lambda: self._sending(call, errand))
        except asyncio.CancelledError:
            operation = msgspec.structs.replace(operation, attempts=operation.attempts + sent.is_set())
            return await self._abandoned(call, operation, sent=sent.is_set())
        except HeadgateError as error:
            tried = error.receipt.attempts if error.receipt is not None else 1
            # What a late answer says of the last attempt says nothing of those before it.
            doubted = tried > 1 and operation.kind.repeatable and error.effect is not Effect.NONE
            operation = msgspec.structs.replace(
                operation, attempts=operation.attempts + tried, doubted=operation.doubted or doubted
            )
            return await self._failed(running, call, operation, error, deadline, resent)
        except Exception:
            # A bug, whose caller is told so; nobody knows how far the call came.
            await self._record.try_to_finish(operation, in_doubt(operation))
            raise
        doubted = answer.receipt is not None and answer.receipt.doubted
        operation = msgspec.structs.replace(
            operation,
            attempts=operation.attempts + _attempts(answer),
            doubted=operation.doubted or doubted,
        )
        return await self._answered(operation, answer)

    async def _abandoned(self, call: Call, operation: Operation, *, sent: bool) -> Ended:
        """Everybody has left."""
        outcome = Outcome(
            state=State.DOUBT if sent or operation.doubted else State.FAILED,
            attempts=operation.attempts,
            error_code=_CANCELLED,
            error="its caller left",
        )
        await self._record.try_to_finish(operation, outcome)
        error = InDoubt(call.item.public_name, operation.op_id)
        raise _with_receipt(error, receipt_of(operation, state=outcome.state))

    def _sending(self, call: Call, errand: Errand) -> "asyncio.Task[Answer]":
        sent = msgspec.structs.replace(call, errand=errand)
        return asyncio.get_running_loop().create_task(self._delivery.deliver(sent), name="sending")

    async def _answered(self, operation: Operation, answer: Answer) -> Ended:
        state = State.DONE
        if not_begun(answer):
            state = State.DOUBT if operation.doubted else State.FAILED
        elif asks_something(answer):
            state = State.ASKED
        outcome = Outcome(state=state, answer=answer, attempts=operation.attempts)
        if state is State.DOUBT:
            outcome = in_doubt(operation)
        elif state is State.FAILED:
            outcome = refused(answer, operation.attempts)
        try:
            recorded = await self._record.finish(operation, outcome)
        except LedgerAway as away:
            self._record.owe(operation, outcome)
            if state is State.FAILED:
                # Nothing happened, so that nothing depends on the record.
                return Ended(Receipt(attempts=operation.attempts, unrecorded=True), answer)
            # The promise is that an answer is recorded before anybody sees it.
            close(answer)
            raise _with_receipt(away, receipt_of(operation, state=State.DOUBT)) from away
        if not recorded:
            # Another gateway has taken it over, and what it recorded counts.
            close(answer)
            return await self._told(await self._ledger.find(operation.op_id) or operation)
        return Ended(receipt_of(operation, state=state), answer)

    async def _failed(
        self,
        running: Running,
        call: Call,
        operation: Operation,
        error: HeadgateError,
        deadline: float,
        resent: int,
    ) -> Ended:
        """No answer came: nothing happened, or a probe tells what did, or nobody knows."""
        if operation.doubted and error.effect is Effect.NONE:
            # Nothing came of this attempt, but of one before it something may have.
            error.effect = Effect.UNKNOWN
        state = State.FAILED if error.effect is Effect.NONE else State.DOUBT
        if isinstance(error, AnswerNotStored) and error.effect is Effect.DONE:
            # The server's answer has come and is lost: the call is done, and is never sent again.
            state = State.DONE
        if state is State.DOUBT and operation.kind is ToolClass.PROBEABLE:
            care = self._promises.of_server(call.item.server).of(call.item.name)
            happened = await self._asked_in_time(operation, care, deadline)
            if happened:
                return await self._probed_as_done(operation)
            # After a timeout it may still be at work, so that it has not happened yet means nothing.
            gone = isinstance(error, UpstreamError) and not error.at_work and _settles(care)
            if happened is False and gone and not operation.doubted and resent < _MOST_RESENT:
                return await self._carry_out(running, call, operation, deadline, resent + 1)
        # Whatever this attempt came to, the server may still be at the one before it.
        code = operation.error_code if operation.error_code in _STILL_AT_WORK else _code(error)
        outcome = Outcome(state=state, attempts=operation.attempts, error_code=code, error=error.message)
        await self._record.try_to_finish(operation, outcome)
        raise _with_receipt(error, receipt_of(operation, state=state))

    async def _probed_as_done(self, operation: Operation) -> Ended:
        """Its answer is lost, but a probe says that it was carried out."""
        outcome = Outcome(state=State.DONE, attempts=operation.attempts, resolved_by="probe")
        try:
            await self._record.finish(operation, outcome)
        except LedgerAway:
            self._record.owe(operation, outcome)
            raise
        operation = msgspec.structs.replace(operation, resolved_by="probe")
        return Ended(receipt_of(operation, state=State.DONE), word_of(operation))

    async def _asked_in_time(self, operation: Operation, care: Care, deadline: float) -> bool | None:
        """What the probe says, once the server has had the time to finish what it was at."""
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.sleep((care.probe.settle_seconds or 0.0) if care.probe is not None else 0.0)
                return await self._prober.happened(operation, care)
        except TimeoutError:
            return None


async def _ended(running: Running, work: Awaitable[Ended]) -> Ended:
    """How it ended, whatever it raised."""
    try:
        return await work
    except HeadgateError as error:
        return Ended(error.receipt or Receipt(op_id=running.op_id), error=error)
    except StoreFailed as failure:
        away = unavailable(failure, effect=Effect.UNKNOWN)
        return Ended(Receipt(op_id=running.op_id), error=away)
    except asyncio.CancelledError:
        # Everybody has left before it was claimed, so nobody is there to be told.
        doubt = InDoubt(running.item.public_name, running.op_id)
        return Ended(Receipt(op_id=running.op_id), error=doubt)
    except Exception:
        entry = secrets.token_hex(6)
        log.exception("internal error", extra={"entry": entry, "operation": running.op_id})
        return Ended(Receipt(op_id=running.op_id), error=InternalError(entry))


def _cautious(intent: Intent) -> Intent:
    """As it is claimed first: where a server can be asked, it is, whatever the caller thinks of the doubt."""
    if intent.kind is not ToolClass.PROBEABLE:
        return intent
    return msgspec.structs.replace(intent, retries_doubt_since=None)


async def _pause(running: Running, operation: Operation, seconds: float, deadline: float) -> None:
    """Wait before the next look at an operation that is under way elsewhere; raises StillRunning."""
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0 or running.deserted:
        error = StillRunning(operation.public_name, operation.op_id)
        raise _with_receipt(error, receipt_of(operation, duplicate=True))
    await asyncio.sleep(min(seconds, left))


async def _ready(delivery: Delivery, server: str) -> None:
    await delivery.await_ready(server)


def _settles(care: Care) -> bool:
    """Whether a server whose connection is gone can be at it no more after a while."""
    return care.probe is not None and care.probe.settle_seconds is not None


def _code(error: HeadgateError) -> str:
    """What the record says of it: who gave up waiting for a server that may go on does not matter."""
    still_at_work = isinstance(error, UpstreamError) and error.at_work
    return UpstreamTimeout.code if still_at_work else error.code


def _attempts(answer: Answer) -> int:
    return answer.receipt.attempts if answer.receipt is not None else 1


def _with_receipt(error: HeadgateError, receipt: Receipt) -> HeadgateError:
    error.receipt = receipt
    return error


def difference(item: Item, server: str, tool: str) -> str:
    """What is different about the call that a key was first used for."""
    if item.server != server:
        return f"another server ({server!r})"
    return f"another tool ({tool!r})" if item.name != tool else "other arguments"
