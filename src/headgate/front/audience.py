"""Everybody who wants to know that a list or a resource has changed."""

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from headgate.domain.call import Owner

# Those whose list has changed; None is everybody.
Circles = Collection[str] | None

# Fifty servers that connect at once are one change, not fifty.
_SETTLE_SECONDS = 0.1


class Listener(Protocol):
    """Who wants to be told."""

    def changed(self, capability: str, circles: Circles) -> None:
        """The tools, prompts or resources are no longer what they were, for these clients."""

    def updated(self, uri: str, params: bytes, owner: Owner | None) -> None:
        """A resource has changed, for one client or for all; `params` are those of the notification."""


class Audience:
    """Tells each listener once, a moment after a change."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._endings: set[Callable[[], None]] = set()
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._circles: dict[str, set[str] | None] = {}
        # How often the tools have changed.
        self.told = 0

    def join(self, listener: Listener) -> None:
        """Tell `listener` of every change."""
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Do not tell it any more."""
        self._listeners.discard(listener)

    def changed(self, capability: str, circles: Circles = None) -> None:
        """Tell everybody, or the clients of these circles, soon."""
        before = self._circles.setdefault(capability, set())
        self._circles[capability] = None if before is None or circles is None else {*before, *circles}
        if capability not in self._timers:
            self._timers[capability] = self._loop.call_later(_SETTLE_SECONDS, self._tell_soon, capability)

    def _tell_soon(self, capability: str) -> None:
        del self._timers[capability]
        self.tell(capability, self._circles.pop(capability))

    def tell(self, capability: str, circles: Circles) -> None:
        """Tell everybody, or the clients of these circles, now."""
        if capability == "tools":
            self.told += 1
        for listener in list(self._listeners):
            listener.changed(capability, circles)

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
