"""A transaction of the client: its steps, their compensations, and its history."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self
from uuid import uuid4

from headgate.delivery.transactions import saga_rules
from headgate.delivery.transactions.saga_rules import (
    Phase,
    Remedy,
    RollbackAction,
    StepState,
    TransactionStatus,
)
from headgate.domain.errors import Effect, quoted
from headgate.domain.redaction import redact
from headgate.domain.upstream_policy import ToolClass
from headgate.tx import peer_session
from headgate.tx.config import RetryPolicy, TxConfig, check_arguments, check_key, check_policy, check_timeout
from headgate.tx.errors import TxError, TxTimeoutError
from headgate.tx.failures import exception_failure
from headgate.tx.peer_session import is_error, text_of
from headgate.tx.tool_call import RequestState, TxRequest, TxResult

log = logging.getLogger("headgate.tx")

# What undoes a step: a tool, and its arguments or a function that makes them of the step's answer.
Compensation = tuple[str, Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] | None]


class SagaEvent(NamedTuple):
    """An entry of the history of a transaction; step 0 is the transaction as a whole."""

    seconds: float
    what: str
    step: int = 0
    detail: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class SagaStep:
    """One call of a transaction, and how it is undone."""

    number: int
    tool: str
    compensate: Compensation | None
    state: StepState = StepState.SENT
    remedy: Remedy = Remedy.NONE
    answer: Any = None
    # Attempts of its compensation that are known to have failed.
    failed_undos: int = 0

    def compensation(self) -> tuple[str, dict[str, Any]]:
        """Tool and arguments of the compensation; raises what the program's own function raises."""
        if self.compensate is None:
            raise ValueError(f"step {self.number} has no compensation")
        tool, given = self.compensate
        arguments = given(self.answer) if callable(given) else given
        return tool, dict(arguments or {})


def checked_compensation(given: Compensation | str | None) -> Compensation | None:
    """The compensation in its normal form; raises ValueError."""
    if given is None:
        return None
    if isinstance(given, str):
        return (given, None)
    match given:
        case (str(tool), None | Mapping() as arguments):
            return (tool, arguments)
        case (str(tool), arguments) if callable(arguments):
            return (tool, arguments)
    raise ValueError("compensate must be (tool, arguments): a dict, or a function of the step's result")


class RequestSender(Protocol):
    config: TxConfig

    async def deliver(self, request: TxRequest) -> TxResult:
        """The result of the call; raises TxError."""

    @property
    def features(self) -> frozenset[str]:
        """The rmcp features that both sides have."""


class ToolClassifier(Protocol):
    async def kind_of(self, tool: str) -> ToolClass:
        """The class according to the annotations; raises what the session raises."""


class Transaction:
    """A group of steps under one id, for `async with`.

    The end of the block commits the steps; an exception undoes them, last first, and propagates.
    """

    def __init__(
        self, session: RequestSender, tools: ToolClassifier, *, clock: Callable[[], float], timeout_ms: float
    ) -> None:
        self.transaction_id = str(uuid4())
        self._session = session
        self._tools = tools
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._began = clock()
        self._phase = Phase.RUNNING
        self._timed_out = False
        # Whether it has begun on the peer.
        self._is_begun = False
        self._steps: list[SagaStep] = []
        self._history: list[SagaEvent] = []
        self._step_lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._began = self._clock()
        self._add_event("begun")
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._phase is not Phase.RUNNING:
            return
        if error is None:
            await self.commit()
            return
        # A cancellation of the program must not cancel the compensations.
        with _shielded():
            await self._undo(f"{type(error).__name__} in the block", cause=error)

    @property
    def state(self) -> TransactionStatus:
        """initiated, in_progress, waiting_ack, completed, failed, timeout or rolled_back."""
        return saga_rules.transaction_status(self._phase, self._steps, timed_out=self._timed_out)

    @property
    def history(self) -> tuple[SagaEvent, ...]:
        """The events so far."""
        return tuple(self._history)

    @property
    def not_undone(self) -> tuple[str, ...]:
        """The steps that a rollback could not undo, each as one sentence."""
        if self._phase is not Phase.STUCK:
            return ()
        blocking = [step for step in self._steps if step.state in (StepState.SENT, StepState.DOUBT)]
        left = [self._steps[number - 1] for number in saga_rules.steps_not_undone(self._steps)]
        return tuple(map(_unresolved_reason, blocking + left))

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        compensate: Compensation | str | None = None,
        idempotency_key: str | None = None,
        timeout_ms: float | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> TxResult:
        """Execute one step, which `compensate` undoes: a tool, and its arguments or a function for them.

        Raises TxError when the step fails, when its tool answers with `isError`, or when the transaction has
        ended; and ValueError or TypeError for an invalid parameter.
        """
        remedy, key = checked_compensation(compensate), check_key(idempotency_key)
        arguments = check_arguments(arguments)
        if retry_policy is not None:
            check_policy(retry_policy)
        async with self._step_lock:
            self._check_open()
            await self._register()
            step = SagaStep(number=saga_rules.next_step_number(self._steps), tool=name, compensate=remedy)
            step.remedy = Remedy.NONE if remedy is None else Remedy.COMPENSATION
            request = self._request(name, arguments, f"step/{step.number}", timeout_ms, retry_policy)
            request.idempotency_key = key or request.idempotency_key
            request.transaction_id, request.sequence = self.transaction_id, step.number
            self._steps.append(step)
            return await self._send_step(step, request)

    async def commit(self) -> None:
        """Keep all steps; raises TxTimeoutError, after a rollback, when the time limit has passed."""
        if self._phase is Phase.RUNNING and self._remaining_ms() <= 0:
            self._timed_out = True
            await self._undo("the time is over")
            raise self._timeout_error()
        if self._phase is not Phase.RUNNING:
            raise self._ended_error()
        if (open_step := saga_rules.unsettled_step(self._steps)) is not None:
            complaint = _unresolved_reason(self._steps[open_step.number - 1])
            raise TxError(complaint, "TRANSACTION_ERROR", effect=Effect.UNKNOWN)
        self._set_phase(Phase.DONE, "committed")
        await self._close()

    async def rollback(self) -> None:
        """Undo all steps, last first; raises TxError with the steps that could not be undone."""
        if self._phase in (Phase.DONE, Phase.COMPENSATED):
            raise self._ended_error()
        await self._undo("asked for")

    def resolve(self, number: int, *, happened: bool) -> None:
        """Settle a step or a compensation in doubt, so that a rollback can continue; raises ValueError."""
        step = next((step for step in self._steps if step.number == number), None)
        resolved = {
            StepState.DOUBT: StepState.DONE if happened else StepState.FAILED,
            StepState.UNDO_DOUBT: StepState.UNDONE if happened else StepState.UNDOING,
            StepState.UNDO_FAILED: StepState.UNDONE if happened else StepState.UNDOING,
        }
        if step is None or step.state not in resolved:
            raise ValueError(f"step {number} of this transaction is not in doubt")
        step.state = resolved[step.state]
        step.failed_undos += step.state is StepState.UNDOING
        self._add_event("resolved", step, "it happened" if happened else "it did not happen")

    async def _send_step(self, step: SagaStep, request: TxRequest) -> TxResult:
        self._add_event("step sent", step, step.tool)
        try:
            answer = await self._session.deliver(request)
        except TxError as error:
            self._set_step_state(step, _STEP_AFTER[error.effect], error.message)
            raise
        except BaseException:
            self._set_step_state(step, StepState.DOUBT if request.sent else StepState.FAILED, "cancelled")
            raise
        if answer.final_status is not RequestState.COMPLETED:
            # An error of the server means that it did not execute the step, as with `isError`.
            state = StepState.FAILED if answer.answered else _STEP_AFTER[answer.effect]
            self._set_step_state(step, state, answer.error_message or "")
            not_found = step.state is StepState.FAILED and answer.error_code == "TOOL_NOT_FOUND"
            if not_found and self._peer_keeps_transactions:
                # The peer refused it before it became a step, and expects its number with the next one.
                self._steps.remove(step)
            answer.unwrap()
        if is_error(answer.result):
            text = redact(text_of(answer.result))
            self._set_step_state(step, StepState.FAILED, text)
            problem = f"step {step.number} ({step.tool!r}) failed"
            detail = f"{problem}: {text}"
            raise TxError(f"{problem}: {quoted(text)}", "TRANSACTION_ERROR", detail=detail)
        step.answer = answer.result
        self._set_step_state(step, StepState.DONE)
        return answer

    async def _undo(self, why: str, *, cause: BaseException | None = None) -> None:
        self._set_phase(Phase.COMPENSATING, "rolling back", why)
        # Mark the steps that only read, which need no compensation.
        for step in self._steps:
            if step.state is StepState.DONE and step.remedy is Remedy.NONE:
                try:
                    kind = await self._tools.kind_of(step.tool)
                except Exception:
                    log.info("what %r says of itself is not known", step.tool, exc_info=True)
                    continue
                if kind is ToolClass.READ:
                    step.remedy = Remedy.NEEDLESS
        while True:
            action, number = saga_rules.next_rollback_action(self._steps)
            if action is RollbackAction.END:
                self._set_phase(Phase.COMPENSATED, "rolled back")
                await self._close()
                return
            if action is not RollbackAction.UNDO:
                self._set_phase(Phase.STUCK, "stuck", _unresolved_reason(self._steps[number - 1]))
                raise TxError(
                    f"transaction {self.transaction_id} could not be undone: {'; '.join(self.not_undone)}",
                    "TRANSACTION_ERROR",
                    effect=Effect.UNKNOWN,
                ) from cause
            await self._compensate(self._steps[number - 1])

    async def _compensate(self, step: SagaStep) -> None:
        step.state = StepState.UNDOING
        try:
            tool, arguments = step.compensation()
            self._add_event("compensation sent", step, tool)
            # A new key after a failed attempt, whose failure the old key would only replay.
            part = f"undo/{step.number}/{step.failed_undos}"
            answer = await self._session.deliver(self._request(tool, arguments, part))
        except Exception as error:
            log.warning("the compensation of step %d failed", step.number, exc_info=True)
            # Other errors come from the program's own function, before anything was sent.
            effect = error.effect if isinstance(error, TxError) else Effect.NONE
            self._set_step_state(step, _UNDO_AFTER[effect], exception_failure(error).display_message)
            return
        if answer.final_status is not RequestState.COMPLETED:
            state = StepState.UNDO_FAILED if answer.answered else _UNDO_AFTER[answer.effect]
            self._set_step_state(step, state, answer.error_message or "")
        elif is_error(answer.result):
            self._set_step_state(step, StepState.UNDO_FAILED, redact(text_of(answer.result)))
        else:
            self._set_step_state(step, StepState.UNDONE)

    def _request(
        self,
        tool: str,
        arguments: dict[str, Any] | None,
        part: str,
        timeout_ms: float | None = None,
        policy: RetryPolicy | None = None,
    ) -> TxRequest:
        config = self._session.config
        limit = config.default_timeout_ms if timeout_ms is None else check_timeout(timeout_ms)
        if self._phase is Phase.RUNNING:
            # Not for compensations, which often run after the time limit.
            limit = min(limit, self._remaining_ms())
        return TxRequest(
            request_id=str(uuid4()),
            tool=tool,
            arguments=arguments,
            timeout_ms=limit,
            retry_policy=policy or config.retry_policy,
            idempotency_key=f"{self.transaction_id}/{part}",
        )

    async def _register(self) -> None:
        """Begin the transaction on a peer that keeps transactions, and use its id."""
        if not self._is_begun and self._peer_keeps_transactions:
            begin = peer_session.begin_peer_transaction(self._call_peer_tool, self._remaining_ms())
            self.transaction_id = await begin or self.transaction_id
            self._is_begun = True

    @property
    def _peer_keeps_transactions(self) -> bool:
        return "transactions" in self._session.features

    async def _close(self) -> None:
        if self._is_begun and self._peer_keeps_transactions:
            with _shielded():
                await peer_session.close_peer_transaction(self._call_peer_tool, self.transaction_id)

    async def _call_peer_tool(self, tool: str, arguments: dict[str, Any]) -> TxResult:
        return await self._session.deliver(self._request(tool, arguments, tool))

    def _check_open(self) -> None:
        if self._phase is not Phase.RUNNING:
            raise self._ended_error()
        if self._remaining_ms() <= 0:
            self._timed_out = True
            raise self._timeout_error()
        if (open_step := saga_rules.unsettled_step(self._steps)) is not None:
            complaint = _unresolved_reason(self._steps[open_step.number - 1])
            raise TxError(f"no step can follow: {complaint}", "TRANSACTION_ERROR", effect=Effect.UNKNOWN)

    def _remaining_ms(self) -> float:
        return self._timeout_ms - (self._clock() - self._began) * 1000

    def _ended_error(self) -> TxError:
        return TxError(f"transaction {self.transaction_id} is over: {self.state}", "TRANSACTION_ERROR")

    def _timeout_error(self) -> TxError:
        return TxTimeoutError(
            f"transaction {self.transaction_id} took longer than {self._timeout_ms:g} ms", "TIMEOUT"
        )

    def _set_phase(self, phase: Phase, what: str, detail: str = "") -> None:
        self._phase = phase
        self._add_event(what, detail=detail)

    def _set_step_state(self, step: SagaStep, state: StepState, detail: str = "") -> None:
        step.state = state
        self._add_event(state.value, step, detail)

    def _add_event(self, what: str, step: SagaStep | None = None, detail: str = "") -> None:
        seconds = self._clock() - self._began
        self._history.append(SagaEvent(seconds, what, step.number if step is not None else 0, detail[:200]))


_STEP_AFTER = {Effect.NONE: StepState.FAILED, Effect.UNKNOWN: StepState.DOUBT, Effect.DONE: StepState.DONE}
_UNDO_AFTER = {
    Effect.NONE: StepState.UNDO_FAILED,
    Effect.UNKNOWN: StepState.UNDO_DOUBT,
    Effect.DONE: StepState.UNDONE,
}


def _unresolved_reason(step: SagaStep) -> str:
    what = {
        StepState.SENT: "is still under way",
        StepState.DOUBT: "may have been carried out",
        StepState.UNDO_DOUBT: "has a compensation that may have been carried out",
        StepState.UNDO_FAILED: "has a compensation that failed",
        StepState.UNDOING: "has a compensation that did not end",
    }
    reason = what.get(step.state)
    if reason is None:
        reason = "has nothing that undoes it" if step.remedy is Remedy.NONE else "was not undone"
    return f"step {step.number} ({step.tool!r}) {reason}"


def _shielded() -> AbstractContextManager[Any]:
    """A block that cancel scopes of anyio do not reach; asyncio alone cancels once, and has done so."""
    try:
        # Part of the SDK, which may be missing.
        from anyio import CancelScope  # noqa: PLC0415
    except ModuleNotFoundError:
        return nullcontext()
    return CancelScope(shield=True)
