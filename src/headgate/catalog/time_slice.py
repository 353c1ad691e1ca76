"""A time slice of the event loop: long work yields to others when its slice has expired."""

import asyncio
import time

# Long enough for a hundred messages, short enough that nobody else notices.
_SLICE_SECONDS = 0.005


class TimeSlice:
    """One upstream's turn; measured, because what a message costs depends on who wants to hear it."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """From now on."""
        self._until = time.monotonic() + _SLICE_SECONDS

    @property
    def expired(self) -> bool:
        """Whether it is time that others get theirs."""
        return time.monotonic() > self._until

    async def yield_if_expired(self) -> None:
        """Let others have their turn if this one is over."""
        if self.expired:
            await asyncio.sleep(0)
            self.restart()
