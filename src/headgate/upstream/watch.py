"""Subscribes wherever a change could be told: on the main connection, and on those of single clients."""

import asyncio
import logging
from collections.abc import Iterable

from headgate.domain.call import Answer
from headgate.domain.errors import UpstreamError, UpstreamUnreachable
from headgate.upstream.background import Background
from headgate.upstream.lines import Lines
from headgate.upstream.link import SessionGone
from headgate.upstream.mainline import Mainline
from headgate.upstream.peer import Peer
from headgate.upstream.subscriptions import Subscriptions

log = logging.getLogger("headgate.upstream")

# How long a subscription waits for the connections of single clients to take it too.
_LINES_SECONDS = 2.0


class Watch:
    """What clients want to hear of at one upstream, on all its connections."""

    def __init__(
        self,
        server: str,
        subscriptions: Subscriptions,
        mainline: Mainline,
        lines: Lines,
        background: Background,
    ) -> None:
        self._server = server
        self._subscriptions = subscriptions
        self._mainline = mainline
        self._lines = lines
        self._background = background

    async def subscribe(self, uri: str) -> Answer:
        """Hear of every change of a resource; the upstream's answer, raises UpstreamError."""
        peer = await self._mainline.connected()
        try:
            answer = await self._subscriptions.add(uri, peer)
        except SessionGone:
            self._mainline.drop(peer)
            answer = await self._subscribe_again(uri)
        if answer.error:
            return answer
        try:
            # Whoever has the answer relies on it.
            await self._subscriptions.taken()
            await self._subscribe_lines(uri)
        except asyncio.CancelledError:
            # Nobody will unsubscribe who does not know that it is subscribed.
            self._background.start(self._withdraw(uri))
            raise
        return answer

    async def _subscribe_lines(self, uri: str) -> None:
        """Hear of it also where the calls of single clients change it."""
        peers = self._lines.owned()
        if not peers:
            return
        told = asyncio.Event()
        self._background.start(self._subscribe_each(peers, uri, told))
        try:
            async with asyncio.timeout(_LINES_SECONDS):
                await told.wait()
        except TimeoutError:
            # One of them may be busy with a call for long, which is nothing to those who subscribe.
            return

    async def _subscribe_each(self, peers: list[Peer], uri: str, told: asyncio.Event) -> None:
        await asyncio.gather(*(self.restore(peer, (uri,)) for peer in peers))
        told.set()

    async def _withdraw(self, uri: str) -> None:
        try:
            await self.unsubscribe(uri)
        except UpstreamError as error:
            log.debug("not unsubscribed", extra={"server": self._server, "reason": error.message})

    async def _subscribe_again(self, uri: str) -> Answer:
        try:
            return await self._subscriptions.add(uri, await self._mainline.connected())
        except SessionGone as error:
            raise UpstreamUnreachable(self._server, "it forgets every session at once") from error

    async def unsubscribe(self, uri: str) -> Answer:
        """One client less wants to hear of it; raises UpstreamError."""
        try:
            return await self._subscriptions.remove(uri, self._mainline.peer)
        except SessionGone:
            # Then there is nothing to be unsubscribed from.
            return Answer(b"{}")

    async def restore(self, peer: Peer, uris: Iterable[str] | None = None) -> None:
        """Subscribe on a client's own connection to these, or to all, if that is possible."""
        try:
            await self._subscriptions.restore(peer, uris)
        except (UpstreamError, SessionGone) as error:
            log.debug("not subscribed", extra={"server": self._server, "reason": str(error)})
