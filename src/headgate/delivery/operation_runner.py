"""Runs one operation from its claim in the ledger to its recorded outcome."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from headgate.delivery.delivery_policy import DeliveryPolicy
from headgate.delivery.errors import (
    IdempotencyKeyReused,
    LedgerUnavailable,
    OperationInDoubt,
    OperationInProgress,
    RecordedResponseExpired,
)
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

_T = TypeVar("_T")

# How often the state of an operation of another gateway is read.
_FIRST_POLL_SECONDS = 0.05
_MAX_POLL_SECONDS = 1.0
# The lease outlasts the call, so that an answer at the last moment counts.
LEASE_GRACE_SECONDS = 30.0
# Bounds the attempts of a call whose probe answers no each time.
_MAX_RESENDS = 2
_CANCELLED = "CANCELLED"
# The codes of calls that their server may still execute.
_MAY_STILL_RUN_CODES = (UpstreamTimeout.code, _CANCELLED)


class RetryingDelivery(Protocol):
    def send_with_retry(self, call: UpstreamCall) -> Coroutine[Any, Any, McpResponse]:
        """The upstream's answer; raises HeadgateError, whose effect says what may have happened."""

    def sends_requests_during_calls(self, server: str) -> bool:
        """Whether the server sends its own requests while it executes a call."""

    def is_ready(self, server: str) -> bool:
        """Whether a call would be sent without waiting for the server to start."""

    async def await_ready(self, server: str) -> None:
        """Wait until the server has started; raises HeadgateError with the cause."""


class Prober(Protocol):
    """Finds out from a server whether it executed a call."""

    async def was_executed(self, operation: Operation, policy: ToolSafety) -> bool | None:
        """Whether it did; None when that cannot be found out."""


class OperationResult(msgspec.Struct, frozen=True):
    """The answer of an operation, or the error that every caller gets."""

    delivery_status: DeliveryStatus
    answer: McpResponse | None = None
    error: HeadgateError | None = None


class InFlightOperation:
    """Started by the first caller and joined by others; cancelled when the last of them leaves."""

    def __init__(self, op_id: str, call_fingerprint: bytes, item: Item) -> None:
        # The id of the first call with the key, which may be an earlier one.
        self.op_id = op_id
        self.call_fingerprint = call_fingerprint
        self.item = item
        self.waiters = 0
        self._loop = asyncio.get_running_loop()
        self._result: asyncio.Future[OperationResult] = self._loop.create_future()
        self._send_task: asyncio.Task[Any] | None = None
        self._abandon_timer: asyncio.TimerHandle | None = None
        # Whether all callers have left.
        self.is_abandoned = False
        # Whether a caller has taken the answer, which it closes.
        self.answer_taken = False

    def add_waiter(self) -> None:
        self.waiters += 1
        if self._abandon_timer is not None:
            self._abandon_timer.cancel()
            self._abandon_timer = None

    def remove_waiter(self, grace_seconds: float | None) -> None:
        """Count a caller that left; the call is cancelled so long after the last one, or never for None."""
        self.waiters -= 1
        if self.waiters:
            return
        if self._result.done():
            self._close_untaken_answer()
        elif grace_seconds is None:
            return
        elif grace_seconds <= 0:
            self.abandon()
        elif self._abandon_timer is None:
            self._abandon_timer = self._loop.call_later(grace_seconds, self.abandon)

    def abandon(self) -> None:
        self.is_abandoned = True
        if self._send_task is not None:
            self._send_task.cancel()

    async def run_until_abandoned(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of the work; raises HeadgateError, or CancelledError when all callers have left."""
        if self.is_abandoned:
            work.close()
            raise asyncio.CancelledError
        self._send_task = task = self._loop.create_task(work, name="sending")
        try:
            return await task
        finally:
            self._send_task = None

    async def wait_result(self, seconds: float | None) -> OperationResult | None:
        """The result; None when it takes longer than so many seconds."""
        await asyncio.wait({self._result}, timeout=seconds)
        return self._result.result() if self._result.done() else None

    def set_result(self, ended: OperationResult) -> None:
        if self._abandon_timer is not None:
            self._abandon_timer.cancel()
        self._result.set_result(ended)
        if not self.waiters:
            self._close_untaken_answer()

    def _close_untaken_answer(self) -> None:
        answer = self._result.result().answer
        if not self.answer_taken and answer is not None and not isinstance(answer.result, bytes):
            answer.result.close()


class OperationServices(NamedTuple):
    """What every operation uses; `now` is the time of day."""

    delivery: RetryingDelivery
    ledger: Ledger
    recorder: OperationRecorder
    delivery_policy: DeliveryPolicy
    prober: Prober
    now: Callable[[], float]
    longest_seconds: Callable[[str], float]


class OperationRunner:
    """Runs one operation until its deadline, and records its outcome."""

    def __init__(
        self, services: OperationServices, in_flight: InFlightOperation, call: UpstreamCall, seconds: float
    ) -> None:
        self._services = services
        self._ledger = services.ledger
        self._recorder = services.recorder
        self._in_flight = in_flight
        self._call = call
        self._seconds = seconds
        self._deadline = asyncio.get_running_loop().time() + seconds

    async def run(self, intent: Intent) -> OperationResult:
        """Claim the key and send the call, or return the result of the earlier call; raises nothing."""
        return await self._captured_result(self._claim_and_run(intent))

    async def redrive(self, orphan: Operation) -> OperationResult:
        """Send a call again that another process left behind; raises nothing."""
        return await self._captured_result(self._adopt_and_send(orphan))

    async def _captured_result(self, work: Awaitable[OperationResult]) -> OperationResult:
        try:
            return await work
        except HeadgateError as error:
            status = error.delivery_status or DeliveryStatus(op_id=self._in_flight.op_id)
            return OperationResult(status, error=error)
        except StoreFailed as failure:
            problem: HeadgateError = ledger_unavailable(failure, effect=Effect.UNKNOWN)
        except asyncio.CancelledError:
            # All callers left before it was claimed; this result is not read.
            problem = OperationInDoubt(self._call.item.public_name, self._in_flight.op_id)
        except Exception:
            entry = secrets.token_hex(6)
            log.exception("internal error", extra={"entry": entry, "operation": self._in_flight.op_id})
            problem = InternalError(entry)
        return OperationResult(DeliveryStatus(op_id=self._in_flight.op_id), error=problem)

    async def _claim_and_run(self, intent: Intent) -> OperationResult:
        await self._await_server(intent)
        # A probe comes before the retry of a doubt that a caller asks for.
        first = replace(intent, retries_doubt_since=None) if intent.kind is ToolClass.PROBEABLE else intent
        pause = _FIRST_POLL_SECONDS
        while True:
            try:
                claim = await self._ledger.claim(first)
            except StoreFailed as failure:
                return await self._send_unrecorded(intent, failure)
            operation = claim.operation
            self._in_flight.op_id = operation.op_id
            match claim.verdict:
                case ClaimVerdict.CONFLICT:
                    difference = describe_key_conflict(self._call.item, operation.server, operation.tool)
                    raise IdempotencyKeyReused(intent.key, difference)
                case ClaimVerdict.GRANTED:
                    # It is executed again.
                    self._recorder.unwritten.pop(operation.op_id, None)
                    return await self._send_and_record(operation)
            if await self._recorder.write_unwritten(operation.op_id):
                continue
            if operation.state is OperationState.INTENT:
                # Another gateway runs it; the next claim also detects when that one is gone.
                left = self._deadline - asyncio.get_running_loop().time()
                if left <= 0 or self._in_flight.is_abandoned:
                    error = OperationInProgress(operation.public_name, operation.op_id)
                    raise _with_status(error, delivery_status_of(operation, duplicate=True))
                await asyncio.sleep(min(pause, left))
                pause = min(2 * pause, _MAX_POLL_SECONDS)
                continue
            if operation.state is not OperationState.DOUBT or operation.kind is not ToolClass.PROBEABLE:
                return await self._known_result(operation)
            ended = await self._resolve_by_probe(intent, operation)
            if ended is not None:
                return ended

    async def _await_server(self, intent: Intent) -> None:
        """Wait for the server before the intent is recorded, so that a crash meanwhile leaves no doubt.

        A repeat of a known call does not wait. Raises HeadgateError.
        """
        server, delivery = self._call.item.server, self._services.delivery
        if delivery.is_ready(server):
            return
        try:
            known = await self._ledger.find_by_key(intent.tenant, intent.principal, intent.key)
        except StoreFailed:
            # The claim reports the same failure.
            return
        if known is not None and known.state not in (OperationState.FAILED, OperationState.ASKED):
            return
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._in_flight.run_until_abandoned(delivery.await_ready(server))
        except TimeoutError as error:
            raise UpstreamUnavailable(server, "it is still starting", retry_after_seconds=1.0) from error

    async def _adopt_and_send(self, orphan: Operation) -> OperationResult:
        lease_until = self._services.now() + self._seconds + LEASE_GRACE_SECONDS
        fence = await self._ledger.adopt(orphan.op_id, orphan.fence, lease_until)
        if fence is None:
            return await self._known_result(await self._ledger.find(orphan.op_id) or orphan)
        return await self._send_and_record(replace(orphan, fence=fence, doubted=True))

    async def _send_unrecorded(self, intent: Intent, failure: StoreFailed) -> OperationResult:
        """Send a READ call although the ledger cannot be written; raises LedgerUnavailable for any other."""
        if intent.kind is not ToolClass.READ:
            raise ledger_unavailable(failure) from failure
        answer = await self._send(DeliveryOptions(deadline=self._deadline))
        return OperationResult(DeliveryStatus(attempts=_attempts(answer), unrecorded=True), answer)

    async def _send(self, delivery_options: DeliveryOptions) -> McpResponse:
        call = replace(self._call, delivery_options=delivery_options)
        return await self._in_flight.run_until_abandoned(self._services.delivery.send_with_retry(call))

    async def _known_result(self, operation: Operation) -> OperationResult:
        """The result of an operation that has ended; raises OperationInDoubt or RecordedResponseExpired."""
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

    @property
    def _safety(self) -> ToolSafety:
        item = self._call.item
        return self._services.delivery_policy.for_upstream(item.server).for_tool(item.name)

    async def _resolve_by_probe(self, intent: Intent, operation: Operation) -> OperationResult | None:
        """The result of an operation in doubt after a probe or another send; None to claim it again."""
        policy = self._safety
        happened = await self._services.prober.was_executed(operation, policy)
        if happened:
            outcome = OperationOutcome(
                state=OperationState.DONE, attempts=operation.attempts, resolved_by="probe"
            )
            await self._recorder.finish(operation, outcome)
            operation = await self._ledger.find(operation.op_id) or operation
        over = happened is False and self._cannot_still_run(operation, policy)
        if happened or (not over and intent.retries_doubt_since is None):
            return await self._known_result(operation)
        again = await self._ledger.claim(replace(intent, retries_doubt_since=0.0))
        if again.verdict is not ClaimVerdict.GRANTED:
            return None
        if again.operation.fence != operation.fence + 1:
            # Another gateway has sent it since the probe, whose answer does not cover that.
            await self._recorder.try_to_finish(again.operation, doubt_outcome(again.operation))
            return None
        # A retry that the caller insists on does not settle the earlier attempt.
        operation = replace(again.operation, doubted=not over, error_code=operation.error_code)
        return await self._send_and_record(operation)

    def _cannot_still_run(self, operation: Operation, policy: ToolSafety) -> bool:
        """Whether the server cannot still execute the call, so that a probe that answers no is final."""
        age = self._services.now() - operation.updated
        settle = policy.probe.settle_seconds if policy.probe is not None else None
        if settle is None or operation.error_code in _MAY_STILL_RUN_CODES:
            return age > self._services.longest_seconds(operation.server)
        return age >= settle

    async def _send_and_record(self, operation: Operation, resent: int = 0) -> OperationResult:
        sent = asyncio.Event()
        delivery_options = DeliveryOptions(
            key=operation.op_id,
            deadline=self._deadline,
            retry_count=operation.attempts,
            on_send=sent.set,
            # Reads the variable late, when `operation` has the attempts.
            on_late_response=lambda answer: self._recorder.record_late_answer(operation, answer),
        )
        try:
            answer = await self._send(delivery_options)
        except asyncio.CancelledError:
            operation = replace(operation, attempts=operation.attempts + sent.is_set())
            return await self._record_abandoned(operation, sent=sent.is_set())
        except HeadgateError as error:
            tried = error.delivery_status.attempts if error.delivery_status is not None else 1
            # A late answer to the last attempt says nothing about the earlier ones.
            doubted = tried > 1 and operation.kind.repeatable and error.effect is not Effect.NONE
            operation = replace(
                operation, attempts=operation.attempts + tried, doubted=operation.doubted or doubted
            )
            return await self._record_failure(operation, error, resent)
        except Exception:
            # A bug: how far the call came is unknown.
            await self._recorder.try_to_finish(operation, doubt_outcome(operation))
            raise
        doubted = answer.delivery_status is not None and answer.delivery_status.doubted
        operation = replace(
            operation, attempts=operation.attempts + _attempts(answer), doubted=operation.doubted or doubted
        )
        return await self._record_answer(operation, answer)

    async def _record_abandoned(self, operation: Operation, *, sent: bool) -> OperationResult:
        """Record a call that all its callers left; raises OperationInDoubt."""
        outcome = OperationOutcome(
            state=OperationState.DOUBT if sent or operation.doubted else OperationState.FAILED,
            attempts=operation.attempts,
            error_code=_CANCELLED,
            error="its caller left",
        )
        await self._recorder.try_to_finish(operation, outcome)
        error = OperationInDoubt(self._call.item.public_name, operation.op_id)
        raise _with_status(error, delivery_status_of(operation, state=outcome.state))

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
                # It was not executed, so nothing depends on the record.
                return OperationResult(DeliveryStatus(attempts=operation.attempts, unrecorded=True), answer)
            # An answer must be durable before the client gets it.
            close_answer(answer)
            raise _with_status(away, delivery_status_of(operation, state=OperationState.DOUBT)) from away
        if not recorded:
            # Another gateway took it over, and its record counts.
            close_answer(answer)
            return await self._known_result(await self._ledger.find(operation.op_id) or operation)
        return OperationResult(delivery_status_of(operation, state=state), answer)

    async def _record_failure(
        self, operation: Operation, error: HeadgateError, resent: int
    ) -> OperationResult:
        """Record a call without an answer: not executed, executed according to a probe, or in doubt."""
        if operation.doubted and error.effect is Effect.NONE:
            # This attempt had no effect, but an earlier one may have had.
            error.effect = Effect.UNKNOWN
        state = OperationState.FAILED if error.effect is Effect.NONE else OperationState.DOUBT
        if isinstance(error, ResponseNotStored) and error.effect is Effect.DONE:
            # The answer arrived and was lost: the call is done, and is never sent again.
            state = OperationState.DONE
        if state is OperationState.DOUBT and operation.kind is ToolClass.PROBEABLE:
            policy = self._safety
            happened = await self._probe_before_deadline(operation, policy)
            if happened:
                outcome = OperationOutcome(
                    state=OperationState.DONE, attempts=operation.attempts, resolved_by="probe"
                )
                try:
                    await self._recorder.finish(operation, outcome)
                except LedgerUnavailable:
                    self._recorder.keep_unwritten(operation, outcome)
                    raise
                operation = replace(operation, resolved_by="probe")
                return OperationResult(
                    delivery_status_of(operation, state=OperationState.DONE), substitute_answer(operation)
                )
            # After a timeout the server may still be executing it, so that a no is not final; one that
            # lost its connection has finished after `settle_seconds`, if they are known.
            settles = policy.probe is not None and policy.probe.settle_seconds is not None
            gone = isinstance(error, UpstreamError) and not error.may_still_run and settles
            if happened is False and gone and not operation.doubted and resent < _MAX_RESENDS:
                return await self._send_and_record(operation, resent + 1)
        # The server may still be executing an earlier attempt.
        code = operation.error_code
        if code not in _MAY_STILL_RUN_CODES:
            still_at_work = isinstance(error, UpstreamError) and error.may_still_run
            code = UpstreamTimeout.code if still_at_work else error.code
        outcome = OperationOutcome(
            state=state, attempts=operation.attempts, error_code=code, error=error.message
        )
        await self._recorder.try_to_finish(operation, outcome)
        raise _with_status(error, delivery_status_of(operation, state=state))

    async def _probe_before_deadline(self, operation: Operation, policy: ToolSafety) -> bool | None:
        """The answer of the probe, after the time that the server needs to finish the call."""
        try:
            async with asyncio.timeout_at(self._deadline):
                await asyncio.sleep((policy.probe.settle_seconds or 0.0) if policy.probe is not None else 0.0)
                return await self._services.prober.was_executed(operation, policy)
        except TimeoutError:
            return None


def _attempts(answer: McpResponse) -> int:
    return answer.delivery_status.attempts if answer.delivery_status is not None else 1


def _with_status(error: HeadgateError, delivery_status: DeliveryStatus) -> HeadgateError:
    error.delivery_status = delivery_status
    return error


def describe_key_conflict(item: Item, server: str, tool: str) -> str:
    """How the call that a key was first used for differs."""
    if item.server != server:
        return f"another server ({server!r})"
    return f"another tool ({tool!r})" if item.name != tool else "other arguments"
