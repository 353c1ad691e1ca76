"""Work on the event loop: background tasks with an owner, and time slices for long work."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

log = logging.getLogger("headgate")

T = TypeVar("T")

# Long enough for a hundred messages, short enough that other clients do not notice.
_SLICE_SECONDS = 0.005


class BackgroundTasks:
    """Owns tasks that run beside everything else: keeps them alive, logs their failures, and ends them.

    Use it as a block, which closes it; call `cancel` where the end of the tasks is not waited for.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run `work` in a task; a failure is logged under `name`."""
        # Kept by the set.
        _ = self.start_task(work, name=name)

    def start_task(self, work: Coroutine[Any, Any, None], *, name: str) -> "asyncio.Task[None]":
        """The same, for an owner that waits for the task or cancels it on its own."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)

    async def wait(self, seconds: float) -> None:
        """Wait at most so long for every task to end by itself."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    def cancel(self) -> None:
        """Cancel every task that still runs, without waiting for it."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Cancel every task that still runs, all at once, and wait for their end."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def finish_uncancelled(work: "asyncio.Future[T]", release: Callable[[T], object]) -> T:
    """The result of work that cannot be stopped; once its caller is cancelled, `release` gets the result."""

    def release_result(ended: "asyncio.Future[T]") -> None:
        if not ended.cancelled() and ended.exception() is None:
            release(ended.result())

    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(release_result)
        raise


class TimeSlice:
    """How long one piece of work may hold the event loop.

    Measured rather than counted, because the cost of a message depends on its receivers.
    """

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin a new slice."""
        self._until = time.monotonic() + _SLICE_SECONDS

    @property
    def expired(self) -> bool:
        """Whether other work is due."""
        return time.monotonic() > self._until

    async def yield_if_expired(self) -> None:
        """Yield to the event loop once the slice has expired, and begin a new one."""
        if self.expired:
            await asyncio.sleep(0)
            self.restart()
