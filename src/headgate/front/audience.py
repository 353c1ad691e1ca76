"""Everybody who wants to know that a list or a resource has changed."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from headgate.domain.call import Owner

# Fifty servers that connect at once are one change, not fifty.
_SETTLE_SECONDS = 0.1


class Listener(Protocol):
    """Who wants to be told."""

    def changed(self, capability: str) -> None:
        """The tools, prompts or resources are no longer what they were."""

    def updated(self, uri: str, params: bytes, owner: Owner | None) -> None:
        """A resource has changed, for one client or for all; `params` are those of the notification."""


class Audience:
    """Tells each listener once, a moment after a change."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._endings: set[Callable[[], None]] = set()
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # How often the tools have changed.
        self.told = 0

    def join(self, listener: Listener) -> None:
        """Tell `listener` of every change."""
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Do not tell it any more."""
        self._listeners.discard(listener)

    def changed(self, capability: str) -> None:
        """Tell everybody, soon."""
        if capability not in self._timers:
            self._timers[capability] = self._loop.call_later(_SETTLE_SECONDS, self._tell, capability)

    def _tell(self, capability: str) -> None:
        del self._timers[capability]
        if capability == "tools":
            self.told += 1
        for listener in list(self._listeners):
            listener.changed(capability)

    def updated(self, uri: str, params: bytes, owner: Owner | None) -> None:
        """Tell everybody who wants to hear of that resource, or the one client whom it concerns."""
        for listener in list(self._listeners):
            listener.updated(uri, params, owner)

    # Streams that nobody but the client would end.

    def opened(self, end: Callable[[], None]) -> None:
        """A stream is open; `end` ends it when the gateway does."""
        self._endings.add(end)

    def closed(self, end: Callable[[], None]) -> None:
        """The stream has ended."""
        self._endings.discard(end)

    def dismiss(self) -> None:
        """The gateway ends: so do all streams."""
        for timer in self._timers.values():
            timer.cancel()
        for end in list(self._endings):
            end()
