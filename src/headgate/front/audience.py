"""Everybody who wants to know that a list or a resource has changed."""

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Protocol

from headgate.domain.call import Owner

# Those whose list has changed; None is everybody.
Circles = Container[str] | None

# Fifty servers that connect at once are one change, not fifty.
_SETTLE_SECONDS = 0.1


class Listener(Protocol):
    """Who wants to be told."""

    def changed(self, capability: str, circles: Circles) -> None:
        """The tools, prompts or resources are no longer what they were, for these clients."""

    def updated(self, uri: str, params: bytes, owner: Owner | None) -> None:
        """A resource has changed, for one client or for all; `params` are those of the notification."""


class _AnyOf:
    """Whoever is in one of several groups."""

    def __init__(self, groups: Sequence[Container[str]]) -> None:
        self._groups = groups

    def __contains__(self, circle: object) -> bool:
        return any(circle in group for group in self._groups)


class Audience:
    """Tells each listener once, a moment after a change."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._endings: set[Callable[[], None]] = set()
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._circles: dict[str, list[Circles]] = {}
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
        self._circles.setdefault(capability, []).append(circles)
        if capability not in self._timers:
            self._timers[capability] = self._loop.call_later(_SETTLE_SECONDS, self._tell_soon, capability)

    def _tell_soon(self, capability: str) -> None:
        del self._timers[capability]
        told = self._circles.pop(capability)
        groups = [circles for circles in told if circles is not None]
        self.tell(capability, None if len(groups) < len(told) else _AnyOf(groups))

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
