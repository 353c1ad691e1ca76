"""Which resources of one upstream somebody wants to hear of, kept up whatever connection stands."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from headgate.domain.call import Answer
from headgate.upstream.greeting import Greeting
from headgate.upstream.peer import FOREVER, Peer
from headgate.upstream.spool import discard
from headgate.wire.eras import Era
from headgate.wire.violations import METHOD_NOT_FOUND

_DONE = Answer(b"{}")
_UNKNOWN = Answer(
    error=msgspec.json.encode({"code": METHOD_NOT_FOUND, "message": "This server takes no subscriptions"})
)
# A new subscription takes the place of the old one when it is acknowledged, or after this long.
_OVERLAP_SECONDS = 2.0


class Subscriptions:
    """Counts who wants each resource: the first subscribes, the last one leaving unsubscribes."""

    def __init__(self, wanted: Mapping[str, int] | None = None) -> None:
        """`wanted` says how many want each resource already."""
        self._wanted: Counter[str] = Counter(wanted)
        self._changed = asyncio.Event()
        self._acknowledged = asyncio.Event()
        # Who waits for a subscription of the stateless era that is yet to begin, and for the latest one.
        self._waiting: set[asyncio.Future[None]] = set()
        self._begun: set[asyncio.Future[None]] = set()

    @property
    def wanted(self) -> Mapping[str, int]:
        """How many want each resource."""
        return self._wanted

    async def add(self, uri: str, peer: Peer) -> Answer:
        """One more wants to hear of it: the upstream's answer; raises UpstreamError or SessionGone."""
        if not peer.greeting.takes_subscriptions:
            return _UNKNOWN
        self._wanted[uri] += 1
        if self._wanted[uri] > 1:
            return _DONE
        if peer.era is Era.STATELESS:
            self._changed.set()
            return _DONE
        try:
            answer = await _ask(peer, "resources/subscribe", uri)
        except BaseException:
            self._leave(uri)
            raise
        if answer.error:
            self._leave(uri)
        return answer

    async def taken(self) -> None:
        """Wait until a stateless upstream has acknowledged what was added last, but not for long."""
        if not self._changed.is_set():
            return
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(acknowledged)
        try:
            async with asyncio.timeout(_OVERLAP_SECONDS):
                await acknowledged
        except TimeoutError:
            return
        finally:
            self._waiting.discard(acknowledged)
            self._begun.discard(acknowledged)

    async def remove(self, uri: str, peer: Peer | None) -> Answer:
        """One does not want to hear of it any more; raises UpstreamError or SessionGone."""
        if uri not in self._wanted or not self._leave(uri) or peer is None:
            return _DONE
        if peer.era is Era.STATELESS:
            self._changed.set()
            return _DONE
        return await _ask(peer, "resources/unsubscribe", uri)

    def _leave(self, uri: str) -> bool:
        """Whether that was the last one."""
        self._wanted[uri] -= 1
        if self._wanted[uri] <= 0:
            del self._wanted[uri]
            return True
        return False

    async def restore(self, peer: Peer, uris: Iterable[str] | None = None) -> None:
        """Subscribe on one more connection to these, or to all; raises UpstreamError or SessionGone."""
        if peer.era is Era.HANDSHAKE and peer.greeting.takes_subscriptions:
            for uri in list(self._wanted) if uris is None else uris:
                discard((await _ask(peer, "resources/subscribe", uri)).result)

    def acknowledge(self) -> None:
        """The upstream has taken the latest subscription."""
        self._acknowledged.set()
        for waiting in self._begun:
            if not waiting.done():
                waiting.set_result(None)

    async def listen(self, peer: Peer) -> None:
        """Hold the subscription of the stateless era until it ends; raises UpstreamError or SessionGone."""
        listening: asyncio.Task[Answer] | None = None
        try:
            while True:
                self._changed.clear()
                self._acknowledged.clear()
                before, listening = listening, self._start(peer)
                if before is not None:
                    await self._take_over(before)
                if await self._ended(listening):
                    return
        finally:
            if listening is not None:
                listening.cancel()

    def _start(self, peer: Peer) -> "asyncio.Task[Answer] | None":
        wanted = self._filter(peer.greeting)
        self._begun |= self._waiting
        if not wanted:
            return None
        params = {"notifications": Raw(msgspec.json.encode(wanted))}
        listening = asyncio.ensure_future(peer.ask("subscriptions/listen", params, seconds=FOREVER))
        listening.add_done_callback(_heed)
        return listening

    async def _take_over(self, before: "asyncio.Task[Answer]") -> None:
        """Nothing may be missed between two subscriptions, so the old one ends when the new one stands."""
        try:
            async with asyncio.timeout(_OVERLAP_SECONDS):
                await self._acknowledged.wait()
        except TimeoutError:
            pass
        finally:
            before.cancel()

    async def _ended(self, listening: "asyncio.Task[Answer] | None") -> bool:
        """Wait for the subscription to end, or for somebody to want another one."""
        changed = asyncio.ensure_future(self._changed.wait())
        waiting: set[asyncio.Future[Any]] = {changed} if listening is None else {changed, listening}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        if listening is not None and listening.done():
            discard(listening.result().result)
            return True
        return False

    def _filter(self, greeting: Greeting) -> dict[str, object]:
        wanted: dict[str, object] = {
            f"{capability}ListChanged": True
            for capability in ("tools", "prompts", "resources")
            if greeting.tells_changes(capability)
        }
        if self._wanted and greeting.takes_subscriptions:
            wanted["resourceSubscriptions"] = list(self._wanted)
        return wanted


def _heed(listening: "asyncio.Task[Answer]") -> None:
    """Why a subscription ended that has been replaced is of no interest."""
    if not listening.cancelled():
        listening.exception()


async def _ask(peer: Peer, method: str, uri: str) -> Answer:
    return await peer.ask(method, {"uri": Raw(msgspec.json.encode(uri))})
