"""What an upstream tells of its resources, and what may have been missed while nobody listened."""

import asyncio
import logging
from collections.abc import Callable
from typing import Never

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.call import Owner
from headgate.domain.errors import UpstreamError
from headgate.upstream.link import SessionGone
from headgate.upstream.peer import Peer
from headgate.upstream.subscriptions import Subscriptions
from headgate.wire.envelope import encode_object
from headgate.wire.eras import Era

log = logging.getLogger("headgate.upstream")

# Before a subscription that has ended is opened again.
_LISTEN_AGAIN_SECONDS = 2.0
_LISTS = ("tools", "prompts", "resources")

# Told the server, the resource that has changed, the params of the message, and for which client or for all.
Tell = Callable[[str, str, bytes, Owner | None], None]


class _Updated(msgspec.Struct):
    uri: str = ""


class Hearing:
    """Listens to one upstream, whatever connection stands."""

    def __init__(
        self, server: str, subscriptions: Subscriptions, tell: Tell, list_again: Callable[[str], None]
    ) -> None:
        """`list_again` is told which list may have changed while nobody listened."""
        self._server = server
        self._subscriptions = subscriptions
        self._tell = tell
        self._list_again = list_again
        # Whether changes may have been missed since somebody last listened.
        self._deaf = False
        # Another keeper speaks for the server, and what this one hears is of no interest.
        self.muted = False

    def begin(self, peer: Peer, *, again: bool) -> None:
        """A connection stands; the first one, or one more after a time without."""
        self._deaf = again
        if peer.era is Era.HANDSHAKE:
            self._tell_what_was_missed()

    def updated(self, params: bytes, owner: Owner | None) -> bool:
        """A resource has changed, for one client or for all; False when it is not said which."""
        try:
            uri = msgspec.json.decode(params or b"{}", type=_Updated).uri
        except (DecodeError, UnicodeDecodeError):
            return False
        if not self.muted:
            self._tell(self._server, uri, params, owner)
        return True

    def acknowledged(self) -> None:
        """The stateless upstream tells from now on what changes."""
        self._subscriptions.acknowledge()
        self._tell_what_was_missed()

    def _tell_what_was_missed(self) -> None:
        """Nobody knows what became of resources while nobody was told, so they count as changed."""
        if self._deaf and not self.muted:
            for uri in self._subscriptions.wanted:
                params = encode_object({"uri": Raw(msgspec.json.encode(uri))})
                self._tell(self._server, uri, params, None)
        self._deaf = False

    async def listen(self, peer: Peer) -> Never:
        """Subscribe to what changes at a stateless upstream, again and again."""
        while True:
            try:
                await self._subscriptions.listen(peer)
            except (UpstreamError, SessionGone) as error:
                log.debug("subscription ended", extra={"server": self._server, "reason": str(error)})
            except Exception:
                # The next subscription may go better, and nobody else would hear of this.
                log.exception("subscription failed", extra={"server": self._server})
            await asyncio.sleep(_LISTEN_AGAIN_SECONDS)
            # Something may have changed while nobody listened.
            self._deaf = True
            for capability in _LISTS:
                if peer.greeting.tells_changes(capability):
                    self._list_again(capability)
