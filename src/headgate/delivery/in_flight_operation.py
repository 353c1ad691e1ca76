"""One operation in flight, and the callers that wait for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec

from headgate.domain.delivery_request import DeliveryStatus
from headgate.domain.errors import HeadgateError
from headgate.domain.item import Item
from headgate.domain.mcp_request import McpResponse

_T = TypeVar("_T")


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
        self._answer_taken = False

    def add_waiter(self) -> None:
        """Count a caller that waits."""
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
        """Cancel the call."""
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
        """Give the result to all callers."""
        if self._abandon_timer is not None:
            self._abandon_timer.cancel()
        self._result.set_result(ended)
        if not self.waiters:
            self._close_untaken_answer()

    def take_answer(self) -> None:
        """Mark the answer as taken by a caller, which closes it."""
        self._answer_taken = True

    def _close_untaken_answer(self) -> None:
        answer = self._result.result().answer
        if not self._answer_taken and answer is not None and not isinstance(answer.result, bytes):
            answer.result.close()
