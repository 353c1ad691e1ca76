"""Executes a call with an idempotency key once, and records its intent and its answer in the ledger."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.delivery.delivery_policy import DeliveryPolicy
from headgate.delivery.errors import IdempotencyKeyReused, OperationInProgress, OperationNotFound
from headgate.delivery.idempotency_key import fingerprint
from headgate.delivery.ledger import (
    Intent,
    Ledger,
    Operation,
    OperationOutcome,
    OperationState,
    ledger_unavailable,
)
from headgate.delivery.operation_record import OperationRecorder
from headgate.delivery.operation_runner import (
    LEASE_GRACE_SECONDS,
    InFlightOperation,
    OperationResult,
    OperationRunner,
    OperationServices,
    Prober,
    RetryingDelivery,
    describe_key_conflict,
)
from headgate.domain.delivery_request import DeliveryRequest, DeliveryStatus
from headgate.domain.errors import HeadgateError, InvalidArguments, StoreFailed
from headgate.domain.identity import Identity, recorded_identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.domain.upstream_policy import ToolClass
from headgate.event_loop import BackgroundTasks

log = logging.getLogger("headgate.delivery")

# Larger arguments are hashed in a thread.
_LARGE_BYTES = 64 * 1024
# How long a server remembers a key, unless it is configured.
_KEY_WINDOW_SECONDS = 86_400.0
# On close, operations in flight and unwritten outcomes get this long to be recorded.
_CLOSE_SECONDS = 5.0
# So many operations that another process left behind are sent again at a time.
_MAX_CONCURRENT_REDRIVES = 8

_OwnedKey = tuple[str, str, str]


class IdempotentDelivery:
    """Passes plain calls on, and records those with a key or of a recorded tool."""

    def __init__(
        self,
        delivery: RetryingDelivery,
        ledger: Ledger,
        delivery_policy: DeliveryPolicy,
        prober: Prober,
        *,
        now: Callable[[], float],
        longest_seconds: Callable[[str], float],
        rejoin_seconds: float,
    ) -> None:
        """`now` is the time of day, `longest_seconds` the longest that one call of a server may take.

        A disconnected client has `rejoin_seconds` to repeat its call before that is cancelled.
        """
        self._delivery = delivery
        self._ledger = ledger
        self._delivery_policy = delivery_policy
        self._now = now
        self._longest_seconds = longest_seconds
        self._rejoin_seconds = rejoin_seconds
        self._recorder = OperationRecorder(ledger)
        self._services = OperationServices(
            delivery, ledger, self._recorder, delivery_policy, prober, now, longest_seconds
        )
        self._in_flight: dict[_OwnedKey, InFlightOperation] = {}
        self._tasks = BackgroundTasks()
        self._redrive_slots = asyncio.Semaphore(_MAX_CONCURRENT_REDRIVES)
        # The tasks that wait for a server before they send a call again.
        self._waiting_redrives: set[asyncio.Task[None]] = set()
        # The operations of these tasks.
        self._redriven_ids: set[str] = set()

    def sends_requests_during_calls(self, server: str) -> bool:
        return self._delivery.sends_requests_during_calls(server)

    def send_recorded(self, call: UpstreamCall) -> Coroutine[Any, Any, McpResponse]:
        """The answer to this call, or to an earlier one with the same key; raises HeadgateError."""
        # Not a coroutine of its own, because every call passes here.
        delivery_request = call.request.delivery_request
        delivery_policy = self._delivery_policy
        if (delivery_request is None or not delivery_request.key) and not (
            delivery_policy.records_any_tool and delivery_policy.records_every_call(call.item)
        ):
            # The plain path: not recorded, at no cost.
            return self._delivery.send_with_retry(call)
        if call.item.kind is not ItemKind.TOOLS or call.request.method != "tools/call":
            # Prompts and resources are only read.
            return self._delivery.send_with_retry(call)
        return self._send_or_join(call, delivery_request or DeliveryRequest())

    async def _send_or_join(self, call: UpstreamCall, delivery_request: DeliveryRequest) -> McpResponse:
        parts = (call.item.server, call.item.name, bytes(call.request.params.get("arguments", b"")))
        large = len(parts[-1]) > _LARGE_BYTES
        call_fingerprint = await asyncio.to_thread(fingerprint, *parts) if large else fingerprint(*parts)
        seconds = self._timeout_seconds(call, delivery_request)
        op_id, caller = secrets.token_hex(16), call.request.caller
        owned_key = (caller.tenant, caller.principal, delivery_request.key or op_id)
        in_flight = self._in_flight.get(owned_key)
        if in_flight is not None and in_flight.is_abandoned:
            # It is being cancelled; the record shows its outcome in a moment.
            await in_flight.wait_result(seconds)
            in_flight = self._in_flight.get(owned_key)
        if in_flight is not None:
            if in_flight.call_fingerprint != call_fingerprint:
                first = in_flight.item
                difference = describe_key_conflict(call.item, first.server, first.name)
                raise IdempotencyKeyReused(delivery_request.key, difference)
            return await self._wait_with_others(in_flight, call, seconds, duplicate=True)
        intent = self._intent(call, delivery_request, op_id, call_fingerprint, seconds)
        in_flight = self._in_flight[owned_key] = InFlightOperation(op_id, call_fingerprint, call.item)
        runner = OperationRunner(self._services, in_flight, call, seconds)
        self._tasks.start(self._run(owned_key, in_flight, runner, intent), name="operation")
        return await self._wait_with_others(in_flight, call, None, duplicate=False)

    def _timeout_seconds(self, call: UpstreamCall, delivery_request: DeliveryRequest) -> float:
        """The longest that the caller waits."""
        policy = self._delivery_policy.configured_safety(call.item)
        limits = (
            delivery_request.timeout_seconds,
            policy.timeout_seconds if policy is not None else None,
            self._longest_seconds(call.item.server),
        )
        return min(limit for limit in limits if limit is not None)

    def _intent(
        self,
        call: UpstreamCall,
        delivery_request: DeliveryRequest,
        op_id: str,
        call_fingerprint: bytes,
        seconds: float,
    ) -> Intent:
        caller, item, params = call.request.caller, call.item, call.request.params
        kind = self._delivery_policy.tool_class(item)
        return Intent(
            op_id=op_id,
            tenant=caller.tenant,
            principal=caller.principal,
            key=delivery_request.key or op_id,
            fingerprint=call_fingerprint,
            server=item.server,
            tool=item.name,
            public_name=item.public_name,
            kind=kind,
            arguments=bytes(params.get("arguments", b"")),
            lease_until=self._now() + seconds + LEASE_GRACE_SECONDS,
            retries_doubt_since=0.0
            if delivery_request.retries_doubt
            else self._repeatable_since(item.server, item.name, kind),
            continues="requestState" in params,
            transaction=delivery_request.transaction,
        )

    def _repeatable_since(self, server: str, tool: str, kind: ToolClass) -> float | None:
        """The time since which an operation in doubt is safe to repeat; None for never."""
        if kind is not ToolClass.KEYED:
            return 0.0 if kind.repeatable else None
        window = self._delivery_policy.for_upstream(server).for_tool(tool).key_window_seconds
        return self._now() - (window or _KEY_WINDOW_SECONDS)

    async def _wait_with_others(
        self, in_flight: InFlightOperation, call: UpstreamCall, seconds: float | None, *, duplicate: bool
    ) -> McpResponse:
        """Wait for the result with all other callers; the call is cancelled when the last of them leaves."""
        in_flight.add_waiter()
        grace_seconds: float | None = None
        try:
            # The first caller has no timeout here: the operation itself ends at its deadline.
            result = await in_flight.wait_result(seconds)
            if not duplicate:
                in_flight.answer_taken = True
        except asyncio.CancelledError as cancelled:
            # With a message the client cancelled the call; without one it was disconnected.
            grace_seconds = 0.0 if cancelled.args else self._rejoin_seconds
            raise
        finally:
            in_flight.remove_waiter(grace_seconds)
        if result is None:
            error = OperationInProgress(in_flight.item.public_name, in_flight.op_id)
            error.delivery_status = DeliveryStatus(
                op_id=in_flight.op_id, duplicate=True, state=OperationState.INTENT
            )
            raise error
        if result.error is not None:
            raise result.error
        # The answer; the first caller gets one that is on disk, and the others get it from the ledger.
        answer, delivery_status = result.answer, result.delivery_status
        assert answer is not None
        if duplicate:
            if delivery_status.unrecorded and not isinstance(answer.result, bytes):
                # A call without a record has no copy of its answer, but is safe to repeat.
                return await self._delivery.send_with_retry(call)
            delivery_status = replace(delivery_status, duplicate=True)
            if not isinstance(answer.result, bytes):
                answer = await self._recorder.read_answer(delivery_status.op_id, call.item.public_name)
        return replace(answer, delivery_status=delivery_status)

    # An operation is a task of its own, because the caller that started it may leave before it ends.

    async def _run(
        self, owned_key: _OwnedKey, in_flight: InFlightOperation, runner: OperationRunner, intent: Intent
    ) -> None:
        self._end(owned_key, in_flight, await runner.run(intent))

    def _end(self, owned_key: _OwnedKey, in_flight: InFlightOperation, result: OperationResult) -> None:
        del self._in_flight[owned_key]
        in_flight.set_result(result)

    async def recover(self, tool: Callable[[Operation], Awaitable[Item]]) -> int:
        """Send again, or mark as in doubt, the operations of processes that ended; returns how many.

        Call it periodically: another gateway with the same ledger may end, and a server may start late.
        `tool` finds the tool of an operation once its server has started, and may raise HeadgateError.
        """
        await self._recorder.write_all_unwritten(_CLOSE_SECONDS)
        try:
            orphans = await self._ledger.list_orphans()
        except StoreFailed as failure:
            log.warning("ledger not read", extra={"reason": str(failure)})
            return 0
        doubted: list[Coroutine[Any, Any, None]] = []
        # Not those that run here or whose outcome is held here: a changed clock may have ended their lease.
        orphans = [
            orphan
            for orphan in orphans
            if orphan.op_id not in self._redriven_ids
            and _owned_key(orphan) not in self._in_flight
            and orphan.op_id not in self._recorder.unwritten
        ]
        for orphan in orphans:
            since = self._repeatable_since(orphan.server, orphan.tool, orphan.kind)
            if since is not None and orphan.created >= since:
                self._redriven_ids.add(orphan.op_id)
                redrive = self._tasks.start_task(self._redrive(orphan, tool), name="redrive")
                self._waiting_redrives.add(redrive)
                redrive.add_done_callback(self._waiting_redrives.discard)
            else:
                doubted.append(self._mark_in_doubt(orphan, "the gateway ended while it was under way"))
        # Concurrently, so that they share their commits.
        await asyncio.gather(*doubted)
        return len(orphans)

    async def _redrive(self, orphan: Operation, tool: Callable[[Operation], Awaitable[Item]]) -> None:
        try:
            async with self._redrive_slots:
                item = await tool(orphan)
                # Whether it is still the same tool, and still safe to repeat.
                same = (item.server, item.name) == (orphan.server, orphan.tool)
                since = self._repeatable_since(item.server, item.name, self._delivery_policy.tool_class(item))
                if same and since is not None and orphan.created >= since:
                    await self._resend(orphan, item)
                else:
                    await self._mark_in_doubt(orphan, "its tool is not what it was")
        except HeadgateError as error:
            # A server that starts late gets another attempt, for a bounded time.
            age = self._now() - orphan.updated
            if not error.retryable or age > self._longest_seconds(orphan.server):
                await self._mark_in_doubt(orphan, error.message)
        finally:
            self._redriven_ids.discard(orphan.op_id)

    async def _resend(self, orphan: Operation, item: Item) -> None:
        owned_key = _owned_key(orphan)
        if owned_key in self._in_flight:
            # Its caller has repeated the call meanwhile.
            return
        self._waiting_redrives -= {asyncio.current_task()}
        caller = recorded_identity(orphan.tenant, orphan.principal)
        params = {"arguments": msgspec.Raw(orphan.arguments)} if orphan.arguments else {}
        request = McpRequest(caller=caller, name=orphan.public_name, params=params)
        in_flight = self._in_flight[owned_key] = InFlightOperation(orphan.op_id, orphan.fingerprint, item)
        runner = OperationRunner(
            self._services, in_flight, UpstreamCall(request, item), self._longest_seconds(orphan.server)
        )
        self._end(owned_key, in_flight, await runner.redrive(orphan))

    async def _mark_in_doubt(self, orphan: Operation, reason: str) -> None:
        """Record that the outcome of an orphan is unknown; raises nothing."""
        try:
            fence = await self._ledger.adopt(orphan.op_id, orphan.fence, self._now())
            if fence is not None:
                outcome = OperationOutcome(state=OperationState.DOUBT, attempts=orphan.attempts, error=reason)
                await self._ledger.finish(orphan.op_id, fence, outcome)
        except StoreFailed as failure:
            log.warning("operation not recorded", extra={"operation": orphan.op_id, "reason": str(failure)})

    async def find_operation(self, caller: Identity, op_id: str) -> Operation:
        """The operation of that id, if it is the caller's; raises OperationNotFound or LedgerUnavailable."""
        try:
            await self._recorder.write_unwritten(op_id)
            found = await self._ledger.find(op_id)
        except StoreFailed as failure:
            raise ledger_unavailable(failure) from failure
        if found is None or (found.tenant, found.principal) != caller.owner:
            raise OperationNotFound(op_id)
        return found

    async def recorded_answer(self, operation: Operation) -> McpResponse:
        """The answer of an operation that is DONE; raises LedgerUnavailable or RecordedResponseExpired."""
        return await self._recorder.read_answer(operation.op_id, operation.public_name)

    async def resolve(self, caller: Identity, op_id: str, *, happened: bool, by: str) -> Operation:
        """Settle an operation in doubt; raises InvalidArguments for one that is not."""
        found = await self.find_operation(caller, op_id)
        state = OperationState.DONE if happened else OperationState.FAILED
        outcome = OperationOutcome(state=state, attempts=found.attempts, resolved_by=by)
        if found.state is not OperationState.DOUBT or not await self._recorder.finish(found, outcome):
            problem = f"operation {op_id} is not in doubt"
            raise InvalidArguments("resolve_operation", problem, hint="get_operation tells its state")
        return await self.find_operation(caller, op_id)

    async def close(self) -> None:
        """Cancel what is in flight, and record that."""
        for task in self._waiting_redrives:
            # Nothing was sent, so the next process finds the same record.
            task.cancel()
        for in_flight in list(self._in_flight.values()):
            in_flight.abandon()
        await self._tasks.wait(_CLOSE_SECONDS)
        await self._recorder.wait_for_late_answers(_CLOSE_SECONDS)
        await self._recorder.write_all_unwritten(_CLOSE_SECONDS)


def _owned_key(operation: Operation) -> _OwnedKey:
    return (operation.tenant, operation.principal, operation.key)
