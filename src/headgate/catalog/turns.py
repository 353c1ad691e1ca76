"""How long one upstream may keep the event loop to itself, however much it has to say."""

import asyncio
import time

# Long enough for a hundred messages, short enough that nobody else notices.
_TURN_SECONDS = 0.005


class Turn:
    """One upstream's turn; measured, because what a message costs depends on who wants to hear it."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """From now on."""
        self._until = time.monotonic() + _TURN_SECONDS

    @property
    def over(self) -> bool:
        """Whether it is time that others get theirs."""
        return time.monotonic() > self._until

    async def pass_on(self) -> None:
        """Let others have their turn if this one is over."""
        if self.over:
            await asyncio.sleep(0)
            self.begin()
