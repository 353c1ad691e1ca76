"""A thread for blocking reads or writes that may never return; it never keeps the process alive."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class StreamThread:
    """Runs one blocking call after the other; a call that hangs ends with the process."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._work.get()()

    async def do(self, work: Callable[[], T]) -> T:
        """The result of `work`, done in the thread; raises OSError as `work` does."""
        done: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = work()
            except OSError as error:
                self._tell(done, done.set_exception, error)
            else:
                self._tell(done, done.set_result, result)

        self._work.put(run)
        return await done

    def _tell(self, done: "asyncio.Future[T]", settle: Callable[..., None], value: object) -> None:
        def tell() -> None:
            if not done.done():
                settle(value)

        try:
            self._loop.call_soon_threadsafe(tell)
        except RuntimeError:
            # The loop has ended: nobody waits any more.
            return
