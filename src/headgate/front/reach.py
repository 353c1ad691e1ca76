"""How one client of streamable HTTP is reached: on its own stream, or with the answers under way."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from headgate.domain.kind import Kind
from headgate.front.streams import EventStore, Room, Stream
from headgate.wire.envelope import encode_notification

# From this version on a stream begins with an id, so that the client can come back to it from the start.
_PRIMED_SINCE = "2025-11-25"
# Calls that go on although their client has left, until it comes back for the answers.
_MOST_LEFT_ALONE = 64
EVERY_LIST = tuple(dict.fromkeys(kind.capability for kind in Kind))


def list_changed(capability: str) -> str:
    """The notification that says that the lists of a capability are out of date."""
    return f"notifications/{capability}/list_changed"


class Answering(Protocol):
    """One request being answered."""

    @property
    def live(self) -> bool:
        """Whether the client is there for the answer."""

    def emit(self, message: bytes) -> None:
        """Say something before the answer."""

    def cancel(self) -> None:
        """Nobody wants the answer any more."""


class Reach:
    """The streams of one session."""

    def __init__(self, room: Room) -> None:
        self.version = ""
        # By the ids of the requests, in the order in which they came.
        self.exchanges: dict[bytes, Answering] = {}
        # The stream for what comes unasked, once the client has opened one.
        self.listening: Stream | None = None
        self._room = room
        self._store: EventStore | None = None
        self._missed: dict[str, None] = {}
        # The resources that the client has subscribed to and may not know the latest of.
        self._outdated: dict[str, None] = {}

    @property
    def live(self) -> bool:
        """Whether the client listens."""
        return self.listening is not None and self.listening.live

    def send(self, message: bytes) -> bool:
        """Send a message on the client's own stream, or with the newest answer under way."""
        if self.listening is not None and self.listening.live:
            self.listening.add(message)
            return True
        for exchange in reversed(self.exchanges.values()):
            if exchange.live:
                exchange.emit(message)
                return True
        return False

    def keep(self, message: bytes) -> None:
        """Keep a message for a client that had a stream and may come back to it."""
        if self.listening is not None:
            self.listening.add(message)

    def changed(self, capability: str) -> None:
        """Tell the client that its tools, prompts or resources are out of date, once it listens."""
        self.missed((capability,))
        self.catch_up()

    def missed(self, capabilities: Iterable[str]) -> None:
        """The client may not know that these lists are out of date."""
        self._missed.update(dict.fromkeys(capabilities))

    def outdated(self, uri: str) -> None:
        """Tell the client that a resource may have changed, once it listens."""
        self._outdated[uri] = None
        self.catch_up()

    def catch_up(self) -> None:
        """Tell the client what it may not know, if it listens."""
        if self.listening is not None and self.listening.live:
            for capability in self._missed:
                self.listening.add(encode_notification(list_changed(capability)))
            self._missed.clear()
            for uri in self._outdated:
                params = msgspec.json.encode({"uri": uri})
                self.listening.add(encode_notification("notifications/resources/updated", params))
            self._outdated.clear()

    def open(self) -> Stream:
        """A new stream that the client can come back to."""
        if self._store is None:
            self._store = EventStore(self._room)
        stream = self._store.open()
        if self.version >= _PRIMED_SINCE:
            stream.prime()
        return stream

    def find(self, id: bytes) -> tuple[Stream, int] | None:
        """The stream and the position that the client wants to go on from; None when it cannot."""
        found = self._store.find(id) if self._store is not None else None
        if found is None or (found[0].unasked and found[0] is not self.listening):
            return None
        return found

    def open_listening(self) -> Stream:
        """A new stream for what comes unasked, in place of the one before."""
        if self.listening is not None:
            self.listening.end()
        self.listening = self.open()
        self.listening.unasked = True
        return self.listening

    def forget(self, stream: Stream) -> None:
        """Nobody will come back to this stream."""
        if self._store is not None:
            self._store.forget(stream)

    def may_be_left_alone(self) -> bool:
        """Whether one more call may go on without its client."""
        return sum(not exchange.live for exchange in self.exchanges.values()) <= _MOST_LEFT_ALONE

    def expire(self) -> None:
        """Drop what nobody came back for."""
        if self._store is not None:
            self._store.expire()

    def close(self) -> None:
        """The session is over."""
        if self.listening is not None:
            self.listening.end()
        if self._store is not None:
            self._store.close()
        for exchange in list(self.exchanges.values()):
            if not exchange.live:
                exchange.cancel()
