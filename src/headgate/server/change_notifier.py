"""Notifies listeners of changed lists and resources, once per burst of changes."""

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Protocol

from headgate.domain.mcp_request import ClientSession

# Those whose list has changed; None is everybody.
VisibilityGroups = Container[str] | None

# Fifty servers that connect at once are one change, not fifty.
_DEBOUNCE_SECONDS = 0.1


class ChangeListener(Protocol):
    """Who wants to be told."""

    def list_changed(self, capability: str, visibility_groups: VisibilityGroups) -> None:
        """The tools, prompts or resources are no longer what they were, for these clients."""

    def resource_updated(self, uri: str, params: bytes, owner: ClientSession | None) -> None:
        """A resource has changed, for one client or for all; `params` are those of the notification."""


class _UnionOfGroups:
    """Whoever is in one of several groups."""

    def __init__(self, groups: Sequence[Container[str]]) -> None:
        self._groups = groups

    def __contains__(self, visibility_group: object) -> bool:
        return any(visibility_group in group for group in self._groups)


class ChangeNotifier:
    """Tells each listener once, a moment after a change."""

    def __init__(self) -> None:
        self._listeners: set[ChangeListener] = set()
        self._stream_endings: set[Callable[[], None]] = set()
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._visibility_groups: dict[str, list[VisibilityGroups]] = {}
        # How often the tools have changed.
        self.tool_list_changes = 0

    def add_listener(self, listener: ChangeListener) -> None:
        """Tell `listener` of every change."""
        self._listeners.add(listener)

    def remove_listener(self, listener: ChangeListener) -> None:
        """Do not tell it any more."""
        self._listeners.discard(listener)

    def list_changed(self, capability: str, visibility_groups: VisibilityGroups = None) -> None:
        """Tell everybody, or the clients of these circles, soon."""
        self._visibility_groups.setdefault(capability, []).append(visibility_groups)
        if capability not in self._timers:
            self._timers[capability] = self._loop.call_later(
                _DEBOUNCE_SECONDS, self._notify_debounced, capability
            )

    def _notify_debounced(self, capability: str) -> None:
        del self._timers[capability]
        told = self._visibility_groups.pop(capability)
        groups = [visibility_groups for visibility_groups in told if visibility_groups is not None]
        self.notify_now(capability, None if len(groups) < len(told) else _UnionOfGroups(groups))

    def notify_now(self, capability: str, visibility_groups: VisibilityGroups) -> None:
        """Tell everybody, or the clients of these circles, now."""
        if capability == "tools":
            self.tool_list_changes += 1
        for listener in list(self._listeners):
            listener.list_changed(capability, visibility_groups)

    def resource_updated(self, uri: str, params: bytes, owner: ClientSession | None) -> None:
        """Tell everybody who wants to hear of that resource, or the one client whom it concerns."""
        for listener in list(self._listeners):
            listener.resource_updated(uri, params, owner)

    # Streams that nobody but the client would end.

    def register_stream(self, end: Callable[[], None]) -> None:
        """A stream is open; `end` ends it when the gateway does."""
        self._stream_endings.add(end)

    def unregister_stream(self, end: Callable[[], None]) -> None:
        """The stream has ended."""
        self._stream_endings.discard(end)

    def end_streams(self) -> None:
        """The gateway ends: so do all streams."""
        for timer in self._timers.values():
            timer.cancel()
        for end in list(self._stream_endings):
            end()
