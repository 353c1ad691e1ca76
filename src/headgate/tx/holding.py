"""A client of the SDK that is held open in a task of its own, so that what ends it ends no call with it.

The SDK cancels whoever opened a client when its transport fails, which would be the program itself.
"""

import asyncio
import logging
from typing import Any

from headgate.domain.errors import Effect
from headgate.tx.errors import TxNetworkError

log = logging.getLogger("headgate.tx")

# For a child process to be ended, first with patience.
_CLOSING_SECONDS = 15.0


class Held:
    """One client, open from `open` to `close` or until its transport fails."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._leaving = asyncio.Event()
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether its transport has failed, or it was closed."""
        return self._task is None or self._task.done()

    @property
    def is_open(self) -> bool:
        """Whether it has been opened, and nothing has ended it since."""
        return self._opened.is_set() and not self.is_over

    async def open(self) -> None:
        """Open it; raises what the SDK raises, or TxNetworkError when that was cancelled."""
        task = self._task = asyncio.create_task(self._hold())
        opened = asyncio.create_task(self._opened.wait())
        try:
            await asyncio.wait({task, opened}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            task.cancel()
            raise
        finally:
            opened.cancel()
        if self._opened.is_set():
            # Each call says for itself how it ended; this only keeps asyncio from saying it again.
            task.add_done_callback(_retrieve)
            return
        if task.cancelled():
            raise TxNetworkError(
                "the connection could not be opened", "CONNECTION_ERROR", retryable=True, effect=Effect.NONE
            )
        await task

    async def close(self) -> None:
        """Close it, whatever state it is in."""
        self._leaving.set()
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=_CLOSING_SECONDS)
            self._task.cancel()

    async def _hold(self) -> None:
        async with self._client:
            self._opened.set()
            await self._leaving.wait()


def _retrieve(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("the connection was lost", exc_info=error)
