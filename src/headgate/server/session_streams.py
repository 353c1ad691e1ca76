"""The event streams of one session: the standalone stream and those of requests in flight."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from headgate.domain.item import ItemKind
from headgate.protocol.jsonrpc import encode_notification
from headgate.server.event_streams import EventStore, EventStream, ReplayBuffer

# From this version on a stream begins with an event id, so that it can be resumed from the start.
_PRIMING_EVENT_SINCE = "2025-11-25"
# Calls that continue without a connection, until the client resumes their streams.
_MAX_DETACHED = 64
LISTED_CAPABILITIES = tuple(dict.fromkeys(kind.capability for kind in ItemKind))


def list_changed_method(capability: str) -> str:
    """The method of the notification that the lists of a capability have changed."""
    return f"notifications/{capability}/list_changed"


class InFlightExchange(Protocol):
    """One request being answered."""

    @property
    def live(self) -> bool:
        """Whether the client is connected."""

    def send_before_reply(self, message: bytes) -> None:
        """Send a message before the reply."""

    def cancel(self) -> None:
        """Cancel the request."""


class SessionStreams:
    """The streams of one session."""

    def __init__(self, replay_buffer: ReplayBuffer) -> None:
        self.version = ""
        # By the ids of the requests, in the order in which they came.
        self.exchanges: dict[bytes, InFlightExchange] = {}
        # The standalone stream, once the client has opened one.
        self.standalone: EventStream | None = None
        self._replay_buffer = replay_buffer
        self._store: EventStore | None = None
        self._stale_lists: dict[str, None] = {}
        # Subscribed resources that the client has to be notified of.
        self._stale_resources: dict[str, None] = {}

    @property
    def live(self) -> bool:
        return self.standalone is not None and self.standalone.live

    def try_send(self, message: bytes) -> bool:
        """Send a message on the standalone stream, or with the newest request in flight."""
        if self.standalone is not None and self.standalone.live:
            self.standalone.add(message)
            return True
        for exchange in reversed(self.exchanges.values()):
            if exchange.live:
                exchange.send_before_reply(message)
                return True
        return False

    def retain_or_drop(self, message: bytes) -> None:
        if self.standalone is not None:
            self.standalone.add(message)

    def notify_list_changed(self, capability: str) -> None:
        """Notify the client of changed lists, now or once it opens a stream."""
        self.mark_lists_stale((capability,))
        self.flush_stale()

    def mark_lists_stale(self, capabilities: Iterable[str]) -> None:
        self._stale_lists.update(dict.fromkeys(capabilities))

    def mark_resource_stale(self, uri: str) -> None:
        """Notify the client of a changed resource, now or once it opens a stream."""
        self._stale_resources[uri] = None
        self.flush_stale()

    def flush_stale(self) -> None:
        if self.standalone is not None and self.live:
            for capability in self._stale_lists:
                self.standalone.add(encode_notification(list_changed_method(capability)))
            self._stale_lists.clear()
            for uri in self._stale_resources:
                params = msgspec.json.encode({"uri": uri})
                self.standalone.add(encode_notification("notifications/resources/updated", params))
            self._stale_resources.clear()

    def open_stream(self) -> EventStream:
        """A new stream that can be resumed."""
        if self._store is None:
            self._store = EventStore(self._replay_buffer)
        stream = self._store.open()
        if self.version >= _PRIMING_EVENT_SINCE:
            stream.prime()
        return stream

    def find_event(self, id: bytes) -> tuple[EventStream, int] | None:
        """The stream and position to resume from; None if they are not known any more."""
        found = self._store.find(id) if self._store is not None else None
        if found is None or (found[0].standalone and found[0] is not self.standalone):
            return None
        return found

    def open_standalone(self) -> EventStream:
        if self.standalone is not None:
            self.standalone.end()
        self.standalone = self.open_stream()
        self.standalone.standalone = True
        return self.standalone

    def discard_stream(self, stream: EventStream) -> None:
        if self._store is not None:
            self._store.discard_stream(stream)

    def may_run_detached(self) -> bool:
        """Whether one more call may continue without a connection."""
        return sum(not exchange.live for exchange in self.exchanges.values()) <= _MAX_DETACHED

    def expire(self) -> None:
        if self._store is not None:
            self._store.expire()

    def close(self) -> None:
        if self.standalone is not None:
            self.standalone.end()
        if self._store is not None:
            self._store.close()
        for exchange in list(self.exchanges.values()):
            if not exchange.live:
                exchange.cancel()
