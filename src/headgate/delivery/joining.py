"""One operation under way, and everybody who waits for it."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from headgate.domain.call import Answer
from headgate.domain.errors import HeadgateError
from headgate.domain.item import Item
from headgate.domain.ticket import Receipt

_T = TypeVar("_T")


class Ended(msgspec.Struct, frozen=True):
    """How it ended: with an answer, or with the error that everybody gets."""

    receipt: Receipt
    answer: Answer | None = None
    error: HeadgateError | None = None


class Running:
    """The first caller starts it, others join, and the last one to leave takes the call with it."""

    def __init__(self, op_id: str, mark: bytes, item: Item) -> None:
        # Of the first call with its key, which may have been made before this one.
        self.op_id = op_id
        self.mark = mark
        self.item = item
        self.waiters = 0
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self._sending: asyncio.Task[Any] | None = None
        self._patience: asyncio.TimerHandle | None = None
        # Whether nobody waits any more, so that nothing need be sent.
        self.deserted = False
        self._taken = False

    def joined(self) -> None:
        """One more waits."""
        self.waiters += 1
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def left(self, patience_seconds: float | None) -> None:
        """One less waits; after the last one the call is cancelled, after a while; None is never."""
        self.waiters -= 1
        if self.waiters:
            return
        if self._ended.done():
            self._discard()
        elif patience_seconds is None:
            return
        elif patience_seconds <= 0:
            self.desert()
        elif self._patience is None:
            self._patience = self._loop.call_later(patience_seconds, self.desert)

    def desert(self) -> None:
        """Nobody waits: cancel what has been sent."""
        self.deserted = True
        if self._sending is not None:
            self._sending.cancel()

    async def send(self, work: Callable[[], "asyncio.Task[_T]"]) -> _T:
        """What the work comes to; raises HeadgateError, or CancelledError when everybody has left."""
        if self.deserted:
            raise asyncio.CancelledError
        self._sending = task = work()
        try:
            return await task
        finally:
            self._sending = None

    async def outcome(self, seconds: float | None) -> Ended | None:
        """How it ended; None when it does not within so many seconds."""
        await asyncio.wait({self._ended}, timeout=seconds)
        return self._ended.result() if self._ended.done() else None

    def end(self, ended: Ended) -> None:
        """Tell everybody."""
        if self._patience is not None:
            self._patience.cancel()
        self._ended.set_result(ended)
        if not self.waiters:
            self._discard()

    def take(self) -> None:
        """The answer as it came is somebody's now, who closes it."""
        self._taken = True

    def _discard(self) -> None:
        """Nobody waits any more: close an answer on disk that nobody took."""
        answer = self._ended.result().answer
        if not self._taken and answer is not None and not isinstance(answer.result, bytes):
            answer.result.close()
