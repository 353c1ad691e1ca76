"""Everybody who wants to know that the tools have changed."""

import asyncio
from collections.abc import Callable

# Fifty servers that connect at once are one change, not fifty.
_SETTLE_SECONDS = 0.1


class Audience:
    """Tells each listener once, a moment after a change."""

    def __init__(self) -> None:
        self._listeners: set[Callable[[], None]] = set()
        self._endings: set[Callable[[], None]] = set()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.told = 0

    def join(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.add(listener)

    def leave(self, listener: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._listeners.discard(listener)

    def tools_changed(self) -> None:
        """Tell everybody, soon."""
        if self._timer is None:
            self._timer = self._loop.call_later(_SETTLE_SECONDS, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self.told += 1
        for listener in list(self._listeners):
            listener()

    # Streams that nobody but the client would end.

    def opened(self, end: Callable[[], None]) -> None:
        """A stream is open; `end` ends it when the gateway does."""
        self._endings.add(end)

    def closed(self, end: Callable[[], None]) -> None:
        """The stream has ended."""
        self._endings.discard(end)

    def dismiss(self) -> None:
        """The gateway ends: so do all streams."""
        if self._timer is not None:
            self._timer.cancel()
        for end in list(self._endings):
            end()
