"""One operation in flight, and the callers that wait for it."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from headgate.domain.delivery_request import DeliveryStatus
from headgate.domain.errors import HeadgateError
from headgate.domain.item import Item
from headgate.domain.mcp_request import McpResponse

_T = TypeVar("_T")


class OperationResult(msgspec.Struct, frozen=True):
    """How it ended: with an answer, or with the error that everybody gets."""

    delivery_status: DeliveryStatus
    answer: McpResponse | None = None
    error: HeadgateError | None = None


class InFlightOperation:
    """The first caller starts it, others join, and the last one to leave takes the call with it."""

    def __init__(self, op_id: str, call_fingerprint: bytes, item: Item) -> None:
        # Of the first call with its key, which may have been made before this one.
        self.op_id = op_id
        self.call_fingerprint = call_fingerprint
        self.item = item
        self.waiters = 0
        self._loop = asyncio.get_running_loop()
        self._result: asyncio.Future[OperationResult] = self._loop.create_future()
        self._send_task: asyncio.Task[Any] | None = None
        self._abandon_timer: asyncio.TimerHandle | None = None
        # Whether nobody waits any more, so that nothing need be sent.
        self.is_abandoned = False
        self._answer_taken = False

    def add_waiter(self) -> None:
        """One more waits."""
        self.waiters += 1
        if self._abandon_timer is not None:
            self._abandon_timer.cancel()
            self._abandon_timer = None

    def remove_waiter(self, grace_seconds: float | None) -> None:
        """One less waits; after the last one the call is cancelled, after a while; None is never."""
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
        """Nobody waits: cancel what has been sent."""
        self.is_abandoned = True
        if self._send_task is not None:
            self._send_task.cancel()

    async def run_until_abandoned(self, work: Callable[[], "asyncio.Task[_T]"]) -> _T:
        """What the work comes to; raises HeadgateError, or CancelledError when everybody has left."""
        if self.is_abandoned:
            raise asyncio.CancelledError
        self._send_task = task = work()
        try:
            return await task
        finally:
            self._send_task = None

    async def wait_result(self, seconds: float | None) -> OperationResult | None:
        """How it ended; None when it does not within so many seconds."""
        await asyncio.wait({self._result}, timeout=seconds)
        return self._result.result() if self._result.done() else None

    def set_result(self, ended: OperationResult) -> None:
        """Tell everybody."""
        if self._abandon_timer is not None:
            self._abandon_timer.cancel()
        self._result.set_result(ended)
        if not self.waiters:
            self._close_untaken_answer()

    def take_answer(self) -> None:
        """The answer as it came is somebody's now, who closes it."""
        self._answer_taken = True

    def _close_untaken_answer(self) -> None:
        """Nobody waits any more: close an answer on disk that nobody took."""
        answer = self._result.result().answer
        if not self._answer_taken and answer is not None and not isinstance(answer.result, bytes):
            answer.result.close()
