"""Notifies listeners of changed lists and resources, once per burst of changes."""

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Protocol

from headgate.domain.identity import Identity, Visibility, VisibilityRule
from headgate.domain.mcp_request import ClientSession

# The groups of clients whose list has changed; None is all of them.
VisibilityGroups = Container[str] | None

# Whether clients with that visibility see a change.
SeenBy = Callable[[Visibility], bool]


def _seen_by_all(visibility: Visibility) -> bool:
    return True


# Fifty servers that connect at once are one change, not fifty.
_DEBOUNCE_SECONDS = 0.1


class ChangeListener(Protocol):
    """A client that is notified of changes."""

    @property
    def identity(self) -> Identity:
        """The identity of the client."""

    def list_changed(self, capability: str, visibility_groups: VisibilityGroups) -> None:
        """The tools, prompts or resources of these clients have changed."""

    def resource_updated(self, uri: str, params: bytes, owner: ClientSession | None) -> None:
        """A resource has changed, for one client or for all; `params` are those of the notification."""


def _union(changes: Sequence[VisibilityGroups]) -> VisibilityGroups:
    groups = [one for one in changes if one is not None]
    if len(groups) < len(changes):
        return None
    return groups[0] if len(groups) == 1 else _UnionOfGroups(groups)


class _UnionOfGroups:
    """The groups that are in one of several containers."""

    def __init__(self, groups: Sequence[Container[str]]) -> None:
        self._groups = groups

    def __contains__(self, visibility_group: object) -> bool:
        return any(visibility_group in group for group in self._groups)


class ChangeNotifier:
    """Notifies each listener that sees a change, once and a moment after it."""

    def __init__(self, visible: VisibilityRule) -> None:
        self._visible = visible
        self._listeners: set[ChangeListener] = set()
        self._stream_endings: set[Callable[[], None]] = set()
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pending: dict[str, list[tuple[VisibilityGroups, SeenBy]]] = {}
        # How often the tools have changed.
        self.tool_list_changes = 0

    def add_listener(self, listener: ChangeListener) -> None:
        self._listeners.add(listener)

    def remove_listener(self, listener: ChangeListener) -> None:
        self._listeners.discard(listener)

    def list_changed(
        self, capability: str, visibility_groups: VisibilityGroups = None, seen_by: SeenBy = _seen_by_all
    ) -> None:
        """Notify the clients of these groups, or all, soon; only those that see the change."""
        self._pending.setdefault(capability, []).append((visibility_groups, seen_by))
        if capability not in self._timers:
            self._timers[capability] = self._loop.call_later(
                _DEBOUNCE_SECONDS, self._notify_debounced, capability
            )

    def _notify_debounced(self, capability: str) -> None:
        del self._timers[capability]
        self._notify(capability, self._pending.pop(capability))

    def notify_now(self, capability: str, visibility_groups: VisibilityGroups) -> None:
        """Notify the clients of these groups, or all, at once."""
        self._notify(capability, [(visibility_groups, _seen_by_all)])

    def _notify(self, capability: str, changes: Sequence[tuple[VisibilityGroups, SeenBy]]) -> None:
        if capability == "tools":
            self.tool_list_changes += 1
        for listener in list(self._listeners):
            visibility = self._visible(listener.identity)
            seen = [groups for groups, seen_by in changes if seen_by(visibility)]
            if seen:
                listener.list_changed(capability, _union(seen))

    def resource_updated(
        self, uri: str, params: bytes, owner: ClientSession | None, seen_by: SeenBy = _seen_by_all
    ) -> None:
        """Notify all that subscribed to that resource and see it, or the one client that it concerns."""
        for listener in list(self._listeners):
            if seen_by(self._visible(listener.identity)):
                listener.resource_updated(uri, params, owner)

    # Streams that stay open until the client or the gateway ends.

    def register_stream(self, end: Callable[[], None]) -> None:
        """A stream is open; `end` ends it when the gateway does."""
        self._stream_endings.add(end)

    def unregister_stream(self, end: Callable[[], None]) -> None:
        self._stream_endings.discard(end)

    def end_streams(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for end in list(self._stream_endings):
            end()
