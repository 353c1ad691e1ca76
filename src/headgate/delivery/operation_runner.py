"""Runs one operation from its claim in the ledger to its recorded outcome."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import msgspec

from headgate.delivery.delivery_policy import DeliveryPolicy
from headgate.delivery.errors import (
    IdempotencyKeyReused,
    LedgerUnavailable,
    OperationInDoubt,
    OperationInProgress,
    RecordedResponseExpired,
)
from headgate.delivery.in_flight_operation import InFlightOperation, OperationResult
from headgate.delivery.ledger import (
    ClaimVerdict,
    Intent,
    Ledger,
    Operation,
    OperationOutcome,
    OperationState,
    ledger_unavailable,
)
from headgate.delivery.operation_record import (
    OperationRecorder,
    close_answer,
    delivery_status_of,
    doubt_outcome,
    refusal_outcome,
    requests_input,
    substitute_answer,
    was_not_executed,
)
from headgate.domain.delivery_request import DeliveryStatus
from headgate.domain.errors import (
    Effect,
    HeadgateError,
    InternalError,
    ResponseNotStored,
    StoreFailed,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from headgate.domain.item import Item
from headgate.domain.mcp_request import DeliveryOptions, McpResponse, UpstreamCall
from headgate.domain.upstream_policy import ToolClass, ToolSafety

log = logging.getLogger("headgate.delivery")

# An operation of another gateway is looked at so often.
_FIRST_POLL_SECONDS = 0.05
_MAX_POLL_SECONDS = 1.0
# The record is held for a while longer than the call may take, so that an answer at the last moment counts.
LEASE_GRACE_SECONDS = 30.0
# A probe that says no each time does not make a call try for ever.
_MAX_RESENDS = 2
_CANCELLED = "CANCELLED"
# Why a call was given up whose server may go on with it.
_MAY_STILL_RUN_CODES = (UpstreamTimeout.code, _CANCELLED)


class RetryingDelivery(Protocol):
    """Whatever carries a call out."""

    def send_with_retry(self, call: UpstreamCall) -> Coroutine[Any, Any, McpResponse]:
        """The upstream's answer; raises HeadgateError saying what may have happened."""

    def sends_requests_during_calls(self, server: str) -> bool:
        """Whether the server puts its questions while a call is under way."""

    def is_ready(self, server: str) -> bool:
        """Whether a call would be sent at once."""

    async def await_ready(self, server: str) -> None:
        """Wait until the server is there; raises HeadgateError with the cause."""


class Prober(Protocol):
    """Asks a server whether a call has happened."""

    async def was_executed(self, operation: Operation, policy: ToolSafety) -> bool | None:
        """Whether it did; None when nobody can tell."""


class OperationRunner:
    """Carries operations out and writes down what became of them."""

    def __init__(
        self,
        delivery: RetryingDelivery,
        ledger: Ledger,
        record: OperationRecorder,
        delivery_policy: DeliveryPolicy,
        prober: Prober,
        now: Callable[[], float],
        longest_seconds: Callable[[str], float],
    ) -> None:
        self._delivery = delivery
        self._ledger = ledger
        self._delivery_policy = delivery_policy
        self._prober = prober
        self._now = now
        self._longest_seconds = longest_seconds
        self._recorder = record

    async def run(
        self, in_flight: InFlightOperation, call: UpstreamCall, intent: Intent, deadline: float
    ) -> OperationResult:
        """Claim the key and carry the call out, or tell what became of the one before; raises nothing."""
        return await _captured_result(in_flight, self._claim_and_run(in_flight, call, intent, deadline))

    async def redrive(
        self, in_flight: InFlightOperation, call: UpstreamCall, orphan: Operation, seconds: float
    ) -> OperationResult:
        """Make a call again that a gateway left behind; raises nothing."""
        return await _captured_result(in_flight, self._redrive(in_flight, call, orphan, seconds))

    async def mark_in_doubt(self, orphan: Operation, reason: str) -> None:
        """Nobody knows what became of it."""
        try:
            fence = await self._ledger.adopt(orphan.op_id, orphan.fence, self._now())
            if fence is not None:
                outcome = OperationOutcome(state=OperationState.DOUBT, attempts=orphan.attempts, error=reason)
                await self._ledger.finish(orphan.op_id, fence, outcome)
        except StoreFailed as failure:
            log.warning("operation not recorded", extra={"operation": orphan.op_id, "reason": str(failure)})

    async def _claim_and_run(
        self, in_flight: InFlightOperation, call: UpstreamCall, intent: Intent, deadline: float
    ) -> OperationResult:
        await self._await_server(in_flight, call.item.server, intent, deadline)
        pause = _FIRST_POLL_SECONDS
        while True:
            try:
                claim = await self._ledger.claim(_without_doubt_retry(intent))
            except StoreFailed as failure:
                return await self._send_unrecorded(in_flight, call, intent, deadline, failure)
            operation = claim.operation
            in_flight.op_id = operation.op_id
            match claim.verdict:
                case ClaimVerdict.CONFLICT:
                    raise IdempotencyKeyReused(
                        intent.key, describe_key_conflict(call.item, operation.server, operation.tool)
                    )
                case ClaimVerdict.GRANTED:
                    self._recorder.discard_unwritten(operation.op_id)
                    return await self._send_and_record(in_flight, call, operation, deadline)
            if await self._recorder.write_unwritten(operation.op_id):
                continue
            if operation.state is OperationState.INTENT:
                # Another gateway has it under way; a claim also finds out when that one is gone.
                await _pause(in_flight, operation, pause, deadline)
                pause = min(2 * pause, _MAX_POLL_SECONDS)
                continue
            if operation.state is not OperationState.DOUBT or operation.kind is not ToolClass.PROBEABLE:
                return await self._known_result(operation)
            ended = await self._resolve_by_probe(in_flight, call, intent, operation, deadline)
            if ended is not None:
                return ended

    async def _await_server(
        self, in_flight: InFlightOperation, server: str, intent: Intent, deadline: float
    ) -> None:
        """Let the server start before the intent is recorded: a gateway that ends meanwhile leaves no doubt.

        Whoever repeats a call that is known need not wait for it. Raises HeadgateError.
        """
        if self._delivery.is_ready(server):
            return
        try:
            known = await self._ledger.find_by_key(intent.tenant, intent.principal, intent.key)
        except StoreFailed:
            # The claim is going to say what is wrong.
            return
        if known is not None and known.state in (
            OperationState.INTENT,
            OperationState.DONE,
            OperationState.DOUBT,
        ):
            return
        try:
            async with asyncio.timeout_at(deadline):
                await in_flight.run_until_abandoned(
                    lambda: asyncio.create_task(_await_ready(self._delivery, server))
                )
        except TimeoutError as error:
            raise UpstreamUnavailable(server, "it is still starting", retry_after_seconds=1.0) from error

    async def _redrive(
        self, in_flight: InFlightOperation, call: UpstreamCall, orphan: Operation, seconds: float
    ) -> OperationResult:
        fence = await self._ledger.adopt(
            orphan.op_id, orphan.fence, self._now() + seconds + LEASE_GRACE_SECONDS
        )
        if fence is None:
            return await self._known_result(await self._ledger.find(orphan.op_id) or orphan)
        operation = msgspec.structs.replace(orphan, fence=fence, doubted=True)
        deadline = asyncio.get_running_loop().time() + seconds
        return await self._send_and_record(in_flight, call, operation, deadline)

    async def _send_unrecorded(
        self,
        in_flight: InFlightOperation,
        call: UpstreamCall,
        intent: Intent,
        deadline: float,
        failure: StoreFailed,
    ) -> OperationResult:
        """The ledger cannot be written: what must not happen twice does not happen."""
        if intent.kind is not ToolClass.READ:
            raise ledger_unavailable(failure) from failure
        # To read twice does no harm, so reading goes on.
        answer = await in_flight.run_until_abandoned(
            lambda: self._start_send(call, DeliveryOptions(deadline=deadline))
        )
        return OperationResult(DeliveryStatus(attempts=_attempts(answer), unrecorded=True), answer)

    # A call that was made before.

    async def _known_result(self, operation: Operation) -> OperationResult:
        """What an operation that is not ours to make says; raises InDoubt or AnswerNotKept."""
        delivery_status = delivery_status_of(operation, duplicate=True)
        if operation.state is not OperationState.DONE:
            raise _with_status(OperationInDoubt(operation.public_name, operation.op_id), delivery_status)
        if operation.dropped:
            raise _with_status(
                RecordedResponseExpired(operation.public_name, operation.op_id), delivery_status
            )
        if not operation.answered:
            return OperationResult(delivery_status, substitute_answer(operation))
        return OperationResult(
            delivery_status, await self._recorder.read_answer(operation.op_id, operation.public_name)
        )

    async def _resolve_by_probe(
        self,
        in_flight: InFlightOperation,
        call: UpstreamCall,
        intent: Intent,
        operation: Operation,
        deadline: float,
    ) -> OperationResult | None:
        """An operation in doubt after its server was asked: told, or sent again; None to claim it anew."""
        policy = self._delivery_policy.for_upstream(call.item.server).for_tool(call.item.name)
        happened = await self._prober.was_executed(operation, policy)
        if happened:
            outcome = OperationOutcome(
                state=OperationState.DONE, attempts=operation.attempts, resolved_by="probe"
            )
            await self._recorder.finish(operation, outcome)
            operation = await self._ledger.find(operation.op_id) or operation
        over = happened is False and self._cannot_still_run(operation, policy)
        if happened or (not over and intent.retries_doubt_since is None):
            return await self._known_result(operation)
        again = await self._ledger.claim(msgspec.structs.replace(intent, retries_doubt_since=0.0))
        if again.verdict is not ClaimVerdict.GRANTED:
            return None
        if again.operation.fence != operation.fence + 1:
            # Another gateway has sent it since the probe, which says nothing of that.
            await self._recorder.try_to_finish(again.operation, doubt_outcome(again.operation))
            return None
        # A caller who wants it sent all the same does not end the doubt about what was sent before.
        operation = msgspec.structs.replace(
            again.operation, doubted=not over, error_code=operation.error_code
        )
        return await self._send_and_record(in_flight, call, operation, deadline)

    def _cannot_still_run(self, operation: Operation, policy: ToolSafety) -> bool:
        """Whether the server can be at it no more, so that what has not happened is not going to."""
        age = self._now() - operation.updated
        settle = policy.probe.settle_seconds if policy.probe is not None else None
        if settle is None or operation.error_code in _MAY_STILL_RUN_CODES:
            return age > self._longest_seconds(operation.server)
        return age >= settle

    # A call that is made now.

    async def _send_and_record(
        self,
        in_flight: InFlightOperation,
        call: UpstreamCall,
        operation: Operation,
        deadline: float,
        resent: int = 0,
    ) -> OperationResult:
        sent = asyncio.Event()
        delivery_options = DeliveryOptions(
            key=operation.op_id,
            deadline=deadline,
            retry_count=operation.attempts,
            on_send=sent.set,
            # Of the variable, not of its value: by then it knows the attempts.
            on_late_response=lambda answer: self._recorder.record_late_answer(operation, answer),
        )
        try:
            answer = await in_flight.run_until_abandoned(lambda: self._start_send(call, delivery_options))
        except asyncio.CancelledError:
            operation = msgspec.structs.replace(operation, attempts=operation.attempts + sent.is_set())
            return await self._record_abandoned(call, operation, sent=sent.is_set())
        except HeadgateError as error:
            tried = error.delivery_status.attempts if error.delivery_status is not None else 1
            # What a late answer says of the last attempt says nothing of those before it.
            doubted = tried > 1 and operation.kind.repeatable and error.effect is not Effect.NONE
            operation = msgspec.structs.replace(
                operation, attempts=operation.attempts + tried, doubted=operation.doubted or doubted
            )
            return await self._record_failure(in_flight, call, operation, error, deadline, resent)
        except Exception:
            # A bug, whose caller is told so; nobody knows how far the call came.
            await self._recorder.try_to_finish(operation, doubt_outcome(operation))
            raise
        doubted = answer.delivery_status is not None and answer.delivery_status.doubted
        operation = msgspec.structs.replace(
            operation,
            attempts=operation.attempts + _attempts(answer),
            doubted=operation.doubted or doubted,
        )
        return await self._record_answer(operation, answer)

    async def _record_abandoned(
        self, call: UpstreamCall, operation: Operation, *, sent: bool
    ) -> OperationResult:
        """Everybody has left."""
        outcome = OperationOutcome(
            state=OperationState.DOUBT if sent or operation.doubted else OperationState.FAILED,
            attempts=operation.attempts,
            error_code=_CANCELLED,
            error="its caller left",
        )
        await self._recorder.try_to_finish(operation, outcome)
        error = OperationInDoubt(call.item.public_name, operation.op_id)
        raise _with_status(error, delivery_status_of(operation, state=outcome.state))

    def _start_send(
        self, call: UpstreamCall, delivery_options: DeliveryOptions
    ) -> "asyncio.Task[McpResponse]":
        sent = msgspec.structs.replace(call, delivery_options=delivery_options)
        return asyncio.get_running_loop().create_task(self._delivery.send_with_retry(sent), name="sending")

    async def _record_answer(self, operation: Operation, answer: McpResponse) -> OperationResult:
        state = OperationState.DONE
        if was_not_executed(answer):
            state = OperationState.DOUBT if operation.doubted else OperationState.FAILED
        elif requests_input(answer):
            state = OperationState.ASKED
        outcome = OperationOutcome(state=state, answer=answer, attempts=operation.attempts)
        if state is OperationState.DOUBT:
            outcome = doubt_outcome(operation)
        elif state is OperationState.FAILED:
            outcome = refusal_outcome(answer, operation.attempts)
        try:
            recorded = await self._recorder.finish(operation, outcome)
        except LedgerUnavailable as away:
            self._recorder.keep_unwritten(operation, outcome)
            if state is OperationState.FAILED:
                # Nothing happened, so that nothing depends on the record.
                return OperationResult(DeliveryStatus(attempts=operation.attempts, unrecorded=True), answer)
            # The promise is that an answer is recorded before anybody sees it.
            close_answer(answer)
            raise _with_status(away, delivery_status_of(operation, state=OperationState.DOUBT)) from away
        if not recorded:
            # Another gateway has taken it over, and what it recorded counts.
            close_answer(answer)
            return await self._known_result(await self._ledger.find(operation.op_id) or operation)
        return OperationResult(delivery_status_of(operation, state=state), answer)

    async def _record_failure(
        self,
        in_flight: InFlightOperation,
        call: UpstreamCall,
        operation: Operation,
        error: HeadgateError,
        deadline: float,
        resent: int,
    ) -> OperationResult:
        """No answer came: nothing happened, or a probe tells what did, or nobody knows."""
        if operation.doubted and error.effect is Effect.NONE:
            # Nothing came of this attempt, but of one before it something may have.
            error.effect = Effect.UNKNOWN
        state = OperationState.FAILED if error.effect is Effect.NONE else OperationState.DOUBT
        if isinstance(error, ResponseNotStored) and error.effect is Effect.DONE:
            # The server's answer has come and is lost: the call is done, and is never sent again.
            state = OperationState.DONE
        if state is OperationState.DOUBT and operation.kind is ToolClass.PROBEABLE:
            policy = self._delivery_policy.for_upstream(call.item.server).for_tool(call.item.name)
            happened = await self._probe_before_deadline(operation, policy, deadline)
            if happened:
                return await self._record_probed_done(operation)
            # After a timeout it may still be at work, so that it has not happened yet means nothing.
            gone = isinstance(error, UpstreamError) and not error.may_still_run and _has_settle_time(policy)
            if happened is False and gone and not operation.doubted and resent < _MAX_RESENDS:
                return await self._send_and_record(in_flight, call, operation, deadline, resent + 1)
        # Whatever this attempt came to, the server may still be at the one before it.
        code = operation.error_code if operation.error_code in _MAY_STILL_RUN_CODES else _recorded_code(error)
        outcome = OperationOutcome(
            state=state, attempts=operation.attempts, error_code=code, error=error.message
        )
        await self._recorder.try_to_finish(operation, outcome)
        raise _with_status(error, delivery_status_of(operation, state=state))

    async def _record_probed_done(self, operation: Operation) -> OperationResult:
        """Its answer is lost, but a probe says that it was carried out."""
        outcome = OperationOutcome(
            state=OperationState.DONE, attempts=operation.attempts, resolved_by="probe"
        )
        try:
            await self._recorder.finish(operation, outcome)
        except LedgerUnavailable:
            self._recorder.keep_unwritten(operation, outcome)
            raise
        operation = msgspec.structs.replace(operation, resolved_by="probe")
        return OperationResult(
            delivery_status_of(operation, state=OperationState.DONE), substitute_answer(operation)
        )

    async def _probe_before_deadline(
        self, operation: Operation, policy: ToolSafety, deadline: float
    ) -> bool | None:
        """What the probe says, once the server has had the time to finish what it was at."""
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.sleep((policy.probe.settle_seconds or 0.0) if policy.probe is not None else 0.0)
                return await self._prober.was_executed(operation, policy)
        except TimeoutError:
            return None


async def _captured_result(in_flight: InFlightOperation, work: Awaitable[OperationResult]) -> OperationResult:
    """How it ended, whatever it raised."""
    try:
        return await work
    except HeadgateError as error:
        return OperationResult(error.delivery_status or DeliveryStatus(op_id=in_flight.op_id), error=error)
    except StoreFailed as failure:
        away = ledger_unavailable(failure, effect=Effect.UNKNOWN)
        return OperationResult(DeliveryStatus(op_id=in_flight.op_id), error=away)
    except asyncio.CancelledError:
        # Everybody has left before it was claimed, so nobody is there to be told.
        doubt = OperationInDoubt(in_flight.item.public_name, in_flight.op_id)
        return OperationResult(DeliveryStatus(op_id=in_flight.op_id), error=doubt)
    except Exception:
        entry = secrets.token_hex(6)
        log.exception("internal error", extra={"entry": entry, "operation": in_flight.op_id})
        return OperationResult(DeliveryStatus(op_id=in_flight.op_id), error=InternalError(entry))


def _without_doubt_retry(intent: Intent) -> Intent:
    """As it is claimed first: where a server can be asked, it is, whatever the caller thinks of the doubt."""
    if intent.kind is not ToolClass.PROBEABLE:
        return intent
    return msgspec.structs.replace(intent, retries_doubt_since=None)


async def _pause(in_flight: InFlightOperation, operation: Operation, seconds: float, deadline: float) -> None:
    """Wait before the next look at an operation that is under way elsewhere; raises StillRunning."""
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0 or in_flight.is_abandoned:
        error = OperationInProgress(operation.public_name, operation.op_id)
        raise _with_status(error, delivery_status_of(operation, duplicate=True))
    await asyncio.sleep(min(seconds, left))


async def _await_ready(delivery: RetryingDelivery, server: str) -> None:
    await delivery.await_ready(server)


def _has_settle_time(policy: ToolSafety) -> bool:
    """Whether a server whose connection is gone can be at it no more after a while."""
    return policy.probe is not None and policy.probe.settle_seconds is not None


def _recorded_code(error: HeadgateError) -> str:
    """What the record says of it: who gave up waiting for a server that may go on does not matter."""
    still_at_work = isinstance(error, UpstreamError) and error.may_still_run
    return UpstreamTimeout.code if still_at_work else error.code


def _attempts(answer: McpResponse) -> int:
    return answer.delivery_status.attempts if answer.delivery_status is not None else 1


def _with_status(error: HeadgateError, delivery_status: DeliveryStatus) -> HeadgateError:
    error.delivery_status = delivery_status
    return error


def describe_key_conflict(item: Item, server: str, tool: str) -> str:
    """What is different about the call that a key was first used for."""
    if item.server != server:
        return f"another server ({server!r})"
    return f"another tool ({tool!r})" if item.name != tool else "other arguments"
