"""Virtual time: a loop whose clock jumps to the next timer when all else is done, and clocks set by hand."""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
Arguments = ParamSpec("Arguments")

# Longer than any thread takes for what a test gives it.
_STUCK_SECONDS = 20.0


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its seconds pass when everything waits, except while a thread is at work.

    For conversations in memory: a real socket would be given no time at all.
    """

    def __init__(self) -> None:
        self._seconds = 1000.0
        self._threads = 0
        super().__init__(_SkippingSelector(self))
        # That of the system, a nanosecond, is lost in the rounding of a clock that shows half a year: a timer
        # that is due would never be over.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Seconds of a clock that only this loop moves."""
        return self._seconds

    def skip(self, seconds: float) -> None:
        """Let so much time pass."""
        self._seconds += seconds

    @property
    def waits_for_thread(self) -> bool:
        """Whether a thread is at work, for which the clock stands still."""
        return self._threads > 0

    @contextmanager
    def thread_at_work(self) -> Iterator[None]:
        """Stop the clock while a thread does something."""
        self._threads += 1
        try:
            yield
        finally:
            self._threads -= 1


class _SkippingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        if timeout is not None and not self._loop.waits_for_thread:
            ready = super().select(0)
            if not ready:
                self._loop.skip(timeout)
            return ready
        ready = super().select(_STUCK_SECONDS)
        if not ready:
            raise RuntimeError("everything waits, and nothing will ever happen")
        return ready


async def in_real_time(work: Awaitable[T]) -> T:
    """What `work` comes to, during which the clock of a virtual loop stands still."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualTimeLoop):
        return await work
    with loop.thread_at_work():
        return await work


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """What `work` comes to on a virtual loop of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def virtual_time(test: Callable[Arguments, Coroutine[Any, Any, None]]) -> Callable[Arguments, None]:
    """Run a test on a virtual loop of its own."""

    @functools.wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        run_in_virtual_time(test(*args, **kwargs))

    return run


class ManualClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.seconds


class RecordingSleep:
    """Remembers how long it was to sleep, and does not."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        """Return at once."""
        self.slept.append(seconds)


def no_jitter() -> float:
    """A random number that leaves every delay as it is."""
    return 0.5
