"""Resource subscriptions of one server, kept on every connection, and the change notifications that come of
them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Never

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.errors import UpstreamError, UpstreamUnreachable
from headgate.domain.mcp_request import ClientSession, McpResponse
from headgate.event_loop import BackgroundTasks
from headgate.protocol.jsonrpc import encode_object
from headgate.protocol.jsonrpc_errors import METHOD_NOT_FOUND
from headgate.protocol.protocol_version import Era
from headgate.upstream.connection_pool import ConnectionPool
from headgate.upstream.handshake import NegotiationResult
from headgate.upstream.main_connection import MainConnection
from headgate.upstream.mcp_peer import McpPeer
from headgate.upstream.message_assembly import discard_payload
from headgate.upstream.transport import UpstreamSessionExpired

_DONE = McpResponse(b"{}")
_UNKNOWN = McpResponse(
    error=msgspec.json.encode({"code": METHOD_NOT_FOUND, "message": "This server takes no subscriptions"})
)
# A new subscription takes the place of the old one when it is acknowledged, or after this long.
_OVERLAP_SECONDS = 2.0


class ResourceSubscriptions:
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

    async def add(self, uri: str, peer: McpPeer) -> McpResponse:
        """One more wants to hear of it: the upstream's answer; raises UpstreamError or SessionGone."""
        if not peer.negotiated.supports_subscribe:
            return _UNKNOWN
        self._wanted[uri] += 1
        if self._wanted[uri] > 1:
            return _DONE
        if peer.era is Era.STATELESS:
            self._changed.set()
            return _DONE
        try:
            answer = await _send_for_uri(peer, "resources/subscribe", uri)
        except BaseException:
            self._release_uri(uri)
            raise
        if answer.error:
            self._release_uri(uri)
        return answer

    async def wait_acknowledged(self) -> None:
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

    async def remove(self, uri: str, peer: McpPeer | None) -> McpResponse:
        """One does not want to hear of it any more; raises UpstreamError or SessionGone."""
        if uri not in self._wanted or not self._release_uri(uri) or peer is None:
            return _DONE
        if peer.era is Era.STATELESS:
            self._changed.set()
            return _DONE
        return await _send_for_uri(peer, "resources/unsubscribe", uri)

    def _release_uri(self, uri: str) -> bool:
        """Whether that was the last one."""
        self._wanted[uri] -= 1
        if self._wanted[uri] <= 0:
            del self._wanted[uri]
            return True
        return False

    async def restore(self, peer: McpPeer, uris: Iterable[str] | None = None) -> None:
        """Subscribe on one more connection to these, or to all; raises UpstreamError or SessionGone."""
        if peer.era is Era.HANDSHAKE and peer.negotiated.supports_subscribe:
            for uri in list(self._wanted) if uris is None else uris:
                discard_payload((await _send_for_uri(peer, "resources/subscribe", uri)).result)

    def acknowledge(self) -> None:
        """The upstream has taken the latest subscription."""
        self._acknowledged.set()
        for waiting in self._begun:
            if not waiting.done():
                waiting.set_result(None)

    async def listen(self, peer: McpPeer) -> None:
        """Hold the subscription of the stateless era until it ends; raises UpstreamError or SessionGone."""
        listening: asyncio.Task[McpResponse] | None = None
        try:
            while True:
                self._changed.clear()
                self._acknowledged.clear()
                before, listening = listening, self._start(peer)
                if before is not None:
                    await self._replace_subscription(before)
                if await self._ended(listening):
                    return
        finally:
            if listening is not None:
                listening.cancel()

    def _start(self, peer: McpPeer) -> "asyncio.Task[McpResponse] | None":
        wanted = self._filter(peer.negotiated)
        self._begun |= self._waiting
        if not wanted:
            return None
        params = {"notifications": Raw(msgspec.json.encode(wanted))}
        listening = asyncio.ensure_future(
            peer.send_gateway_request("subscriptions/listen", params, seconds=_FOREVER_SECONDS)
        )
        listening.add_done_callback(_retrieve_exception)
        return listening

    async def _replace_subscription(self, before: "asyncio.Task[McpResponse]") -> None:
        """Nothing may be missed between two subscriptions, so the old one ends when the new one stands."""
        try:
            async with asyncio.timeout(_OVERLAP_SECONDS):
                await self._acknowledged.wait()
        except TimeoutError:
            pass
        finally:
            before.cancel()

    async def _ended(self, listening: "asyncio.Task[McpResponse] | None") -> bool:
        """Wait for the subscription to end, or for somebody to want another one."""
        changed = asyncio.ensure_future(self._changed.wait())
        waiting: set[asyncio.Future[Any]] = {changed} if listening is None else {changed, listening}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        if listening is not None and listening.done():
            discard_payload(listening.result().result)
            return True
        return False

    def _filter(self, negotiated: NegotiationResult) -> dict[str, object]:
        wanted: dict[str, object] = {
            f"{capability}ListChanged": True
            for capability in ("tools", "prompts", "resources")
            if negotiated.notifies_list_changed(capability)
        }
        if self._wanted and negotiated.supports_subscribe:
            wanted["resourceSubscriptions"] = list(self._wanted)
        return wanted


def _retrieve_exception(listening: "asyncio.Task[McpResponse]") -> None:
    """Why a subscription ended that has been replaced is of no interest."""
    if not listening.cancelled():
        listening.exception()


async def _send_for_uri(peer: McpPeer, method: str, uri: str) -> McpResponse:
    return await peer.send_gateway_request(method, {"uri": Raw(msgspec.json.encode(uri))})


log = logging.getLogger("headgate.upstream")

# A subscription lasts as long as its connection.
_FOREVER_SECONDS = 10 * 365 * 86400.0

# Before a subscription that has ended is opened again.
_LISTEN_AGAIN_SECONDS = 2.0
_LISTS = ("tools", "prompts", "resources")

# Told the server, the resource that has changed, the params of the message, and for which client or for all.
NotifyUpdated = Callable[[str, str, bytes, ClientSession | None], None]


class _ResourceUpdatedParams(msgspec.Struct):
    uri: str = ""


class ResourceChangeListener:
    """Listens to one upstream, whatever connection stands."""

    def __init__(
        self,
        server: str,
        subscriptions: ResourceSubscriptions,
        tell: NotifyUpdated,
        list_again: Callable[[str], None],
    ) -> None:
        """`list_again` is told which list may have changed while nobody listened."""
        self._server = server
        self._subscriptions = subscriptions
        self._notify_updated = tell
        self._relist = list_again
        # Whether changes may have been missed since somebody last listened.
        self._may_have_missed = False
        # Another keeper speaks for the server, and what this one hears is of no interest.
        self.muted = False

    def connection_opened(self, peer: McpPeer, *, again: bool) -> None:
        """A connection stands; the first one, or one more after a time without."""
        self._may_have_missed = again
        if peer.era is Era.HANDSHAKE:
            self._notify_missed()

    def resource_updated(self, params: bytes, owner: ClientSession | None) -> bool:
        """A resource has changed, for one client or for all; False when it is not said which."""
        try:
            uri = msgspec.json.decode(params or b"{}", type=_ResourceUpdatedParams).uri
        except (DecodeError, UnicodeDecodeError):
            return False
        if not self.muted:
            self._notify_updated(self._server, uri, params, owner)
        return True

    def subscription_acknowledged(self) -> None:
        """The stateless upstream tells from now on what changes."""
        self._subscriptions.acknowledge()
        self._notify_missed()

    def _notify_missed(self) -> None:
        """Nobody knows what became of resources while nobody was told, so they count as changed."""
        if self._may_have_missed and not self.muted:
            for uri in self._subscriptions.wanted:
                params = encode_object({"uri": Raw(msgspec.json.encode(uri))})
                self._notify_updated(self._server, uri, params, None)
        self._may_have_missed = False

    async def listen(self, peer: McpPeer) -> Never:
        """Subscribe to what changes at a stateless upstream, again and again."""
        while True:
            try:
                await self._subscriptions.listen(peer)
            except (UpstreamError, UpstreamSessionExpired) as error:
                log.debug("subscription ended", extra={"server": self._server, "reason": str(error)})
            except Exception:
                # The next subscription may go better, and nobody else would hear of this.
                log.exception("subscription failed", extra={"server": self._server})
            await asyncio.sleep(_LISTEN_AGAIN_SECONDS)
            # Something may have changed while nobody listened.
            self._may_have_missed = True
            for capability in _LISTS:
                if peer.negotiated.notifies_list_changed(capability):
                    self._relist(capability)


# How long a subscription waits for the connections of single clients to take it too.
_CLIENT_CONNECTIONS_SECONDS = 2.0


class SubscriptionFanout:
    """What clients want to hear of at one upstream, on all its connections."""

    def __init__(
        self,
        server: str,
        subscriptions: ResourceSubscriptions,
        main_connection: MainConnection,
        pool: ConnectionPool,
        background: BackgroundTasks,
    ) -> None:
        self._server = server
        self._subscriptions = subscriptions
        self._main_connection = main_connection
        self._pool = pool
        self._background = background

    async def subscribe(self, uri: str) -> McpResponse:
        """Hear of every change of a resource; the upstream's answer, raises UpstreamError."""
        peer = await self._main_connection.wait_connected()
        try:
            answer = await self._subscriptions.add(uri, peer)
        except UpstreamSessionExpired:
            self._main_connection.drop(peer)
            answer = await self._subscribe_again(uri)
        if answer.error:
            return answer
        try:
            # Whoever has the answer relies on it.
            await self._subscriptions.wait_acknowledged()
            await self._subscribe_client_connections(uri)
        except asyncio.CancelledError:
            # Nobody will unsubscribe who does not know that it is subscribed.
            self._background.start(self._withdraw(uri), name=f"unsubscribe at {self._server}")
            raise
        return answer

    async def _subscribe_client_connections(self, uri: str) -> None:
        """Hear of it also where the calls of single clients change it."""
        peers = self._pool.client_peers()
        if not peers:
            return
        told = asyncio.Event()
        self._background.start(self._subscribe_each(peers, uri, told), name=f"subscribe at {self._server}")
        try:
            async with asyncio.timeout(_CLIENT_CONNECTIONS_SECONDS):
                await told.wait()
        except TimeoutError:
            # One of them may be busy with a call for long, which is nothing to those who subscribe.
            return

    async def _subscribe_each(self, peers: list[McpPeer], uri: str, told: asyncio.Event) -> None:
        await asyncio.gather(*(self.restore(peer, (uri,)) for peer in peers))
        told.set()

    async def _withdraw(self, uri: str) -> None:
        try:
            await self.unsubscribe(uri)
        except UpstreamError as error:
            log.debug("not unsubscribed", extra={"server": self._server, "reason": error.message})

    async def _subscribe_again(self, uri: str) -> McpResponse:
        try:
            return await self._subscriptions.add(uri, await self._main_connection.wait_connected())
        except UpstreamSessionExpired as error:
            raise UpstreamUnreachable(self._server, "it forgets every session at once") from error

    async def unsubscribe(self, uri: str) -> McpResponse:
        """One client less wants to hear of it; raises UpstreamError."""
        try:
            return await self._subscriptions.remove(uri, self._main_connection.peer)
        except UpstreamSessionExpired:
            # Then there is nothing to be unsubscribed from.
            return McpResponse(b"{}")

    async def restore(self, peer: McpPeer, uris: Iterable[str] | None = None) -> None:
        """Subscribe on a client's own connection to these, or to all, if that is possible."""
        try:
            await self._subscriptions.restore(peer, uris)
        except (UpstreamError, UpstreamSessionExpired) as error:
            log.debug("not subscribed", extra={"server": self._server, "reason": str(error)})
