"""An event loop on which nobody waits: when nothing is left to do, its clock goes on to the next timer."""

import asyncio
import selectors
from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

# Longer than any thread takes for what a test gives it.
_STUCK_SECONDS = 20.0


class HurriedLoop(asyncio.SelectorEventLoop):
    """Its seconds pass when everything waits, except for what is done in threads."""

    def __init__(self) -> None:
        self._seconds = 1000.0
        self._outside = 0
        super().__init__(_HurriedSelector(self))
        # That of the system, a nanosecond, is lost in the rounding of a clock that shows half a year: a timer
        # that is due would never be over.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Seconds of a clock that only this loop moves."""
        return self._seconds

    def skip(self, seconds: float) -> None:
        """Nothing happens for so long."""
        self._seconds += seconds

    @property
    def waits_outside(self) -> bool:
        """Whether a thread is at work, for which the clock stands still."""
        return self._outside > 0

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Something that a thread does."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1


class _HurriedSelector(selectors.DefaultSelector):
    def __init__(self, loop: HurriedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        if timeout is not None and not self._loop.waits_outside:
            ready = super().select(0)
            if not ready:
                self._loop.skip(timeout)
            return ready
        ready = super().select(_STUCK_SECONDS)
        if not ready:
            raise RuntimeError("everything waits, and nothing will ever happen")
        return ready


async def outside(work: Awaitable[T]) -> T:
    """What `work` comes to, during which the clock of a hurried loop stands still."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, HurriedLoop):
        return await work
    with loop.outside():
        return await work


def in_a_hurry(work: Coroutine[Any, Any, T]) -> T:
    """What `work` comes to on a hurried loop of its own."""
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        return runner.run(work)
