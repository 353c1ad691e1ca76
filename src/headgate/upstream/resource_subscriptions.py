"""Resource subscriptions of one server on all its connections, and their change notifications."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
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
from headgate.upstream.main_connection import MainConnection
from headgate.upstream.mcp_peer import McpPeer
from headgate.upstream.message_assembly import discard_payload
from headgate.upstream.transport import UpstreamSessionExpired

log = logging.getLogger("headgate.upstream")

_DONE = McpResponse(b"{}")
_UNKNOWN = McpResponse(
    error=msgspec.json.encode({"code": METHOD_NOT_FOUND, "message": "This server takes no subscriptions"})
)
# A new subscription takes the place of the old one when it is acknowledged, or after this long.
_OVERLAP_SECONDS = 2.0
# A subscription lasts as long as its connection.
_FOREVER_SECONDS = 10 * 365 * 86400.0
# The pause before an ended subscription is opened again.
_LISTEN_AGAIN_SECONDS = 2.0
# How long a subscription waits for the connections of single clients.
_CLIENT_CONNECTIONS_SECONDS = 2.0
_LISTS = ("tools", "prompts", "resources")


class ResourceSubscriptions:
    """Counts the subscribers of each resource: the first one subscribes, the last one unsubscribes."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        # The number of subscribers of each resource.
        self.counts: Counter[str] = Counter(counts)
        self._changed = asyncio.Event()
        self._acknowledged = asyncio.Event()
        # Callers that wait for the next subscription of the stateless era to begin, and for the latest one.
        self._waiting: set[asyncio.Future[None]] = set()
        self._begun: set[asyncio.Future[None]] = set()

    async def add(self, uri: str, peer: McpPeer) -> McpResponse:
        """Add a subscriber: the server's answer; raises UpstreamError or UpstreamSessionExpired."""
        if not peer.negotiated.supports_subscribe:
            return _UNKNOWN
        self.counts[uri] += 1
        if self.counts[uri] > 1:
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
        """Wait a bounded time until a stateless server has acknowledged the latest subscription."""
        if not self._changed.is_set():
            return
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(acknowledged)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_OVERLAP_SECONDS):
                    await acknowledged
        finally:
            self._waiting.discard(acknowledged)
            self._begun.discard(acknowledged)

    async def remove(self, uri: str, peer: McpPeer | None) -> McpResponse:
        """Remove a subscriber; raises UpstreamError or UpstreamSessionExpired."""
        if uri not in self.counts or not self._release_uri(uri) or peer is None:
            return _DONE
        if peer.era is Era.STATELESS:
            self._changed.set()
            return _DONE
        return await _send_for_uri(peer, "resources/unsubscribe", uri)

    def _release_uri(self, uri: str) -> bool:
        """Whether that was the last subscriber."""
        self.counts[uri] -= 1
        if self.counts[uri] > 0:
            return False
        del self.counts[uri]
        return True

    async def restore(self, peer: McpPeer, uris: Iterable[str] | None = None) -> None:
        """Subscribe on another connection to these or all; raises UpstreamError or UpstreamSessionExpired."""
        if peer.era is Era.HANDSHAKE and peer.negotiated.supports_subscribe:
            for uri in list(self.counts) if uris is None else uris:
                discard_payload((await _send_for_uri(peer, "resources/subscribe", uri)).result)

    def acknowledge(self) -> None:
        """The server has acknowledged the latest subscription."""
        self._acknowledged.set()
        for waiting in self._begun:
            if not waiting.done():
                waiting.set_result(None)

    async def listen(self, peer: McpPeer) -> None:
        """Keep a stateless subscription until it ends; raises UpstreamError or UpstreamSessionExpired."""
        listening: asyncio.Task[McpResponse] | None = None
        try:
            while True:
                self._changed.clear()
                self._acknowledged.clear()
                before, listening = listening, self._start(peer)
                if before is not None:
                    # The old one ends once the new one is acknowledged, so that no change is missed between.
                    try:
                        with suppress(TimeoutError):
                            async with asyncio.timeout(_OVERLAP_SECONDS):
                                await self._acknowledged.wait()
                    finally:
                        before.cancel()
                if await self._ended(listening):
                    return
        finally:
            if listening is not None:
                listening.cancel()

    def _start(self, peer: McpPeer) -> "asyncio.Task[McpResponse] | None":
        negotiated = peer.negotiated
        notified = filter(negotiated.notifies_list_changed, _LISTS)
        wanted: dict[str, object] = {f"{capability}ListChanged": True for capability in notified}
        if self.counts and negotiated.supports_subscribe:
            wanted["resourceSubscriptions"] = list(self.counts)
        self._begun |= self._waiting
        if not wanted:
            return None
        params = {"notifications": Raw(msgspec.json.encode(wanted))}
        answer = peer.send_gateway_request("subscriptions/listen", params, seconds=_FOREVER_SECONDS)
        listening = asyncio.ensure_future(answer)
        # The error of a replaced subscription is retrieved, and not reported.
        listening.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return listening

    async def _ended(self, listening: "asyncio.Task[McpResponse] | None") -> bool:
        """Wait for the end of the subscription, or for another set of resources."""
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


async def _send_for_uri(peer: McpPeer, method: str, uri: str) -> McpResponse:
    return await peer.send_gateway_request(method, {"uri": Raw(msgspec.json.encode(uri))})


# Given the server, the changed resource, the params of the notification, and the client (None for all).
NotifyUpdated = Callable[[str, str, bytes, ClientSession | None], None]


class _ResourceUpdatedParams(msgspec.Struct):
    uri: str = ""


@dataclass(eq=False)
class ResourceChangeListener:
    """Listens for changes at one server, across its connections."""

    _server: str
    _subscriptions: ResourceSubscriptions
    _notify_updated: NotifyUpdated
    # Called with a list that may have changed while nothing listened.
    _relist: Callable[[str], None]
    # Whether changes may have been missed.
    _may_have_missed = False
    # Set when another supervisor took over: nothing is published any more.
    muted = False

    def connection_opened(self, peer: McpPeer, *, again: bool) -> None:
        """A main connection is open, the first one or another one."""
        self._may_have_missed = again
        if peer.era is Era.HANDSHAKE:
            self._notify_missed()

    def resource_updated(self, params: bytes, owner: ClientSession | None) -> bool:
        """Publish a change for one client or for all; False if the notification names no resource."""
        try:
            uri = msgspec.json.decode(params or b"{}", type=_ResourceUpdatedParams).uri
        except (DecodeError, UnicodeDecodeError):
            return False
        if not self.muted:
            self._notify_updated(self._server, uri, params, owner)
        return True

    def subscription_acknowledged(self) -> None:
        """The stateless server notifies changes from now on."""
        self._subscriptions.acknowledge()
        self._notify_missed()

    def _notify_missed(self) -> None:
        """Publish every subscribed resource as changed, since notifications may have been missed."""
        if self._may_have_missed and not self.muted:
            for uri in self._subscriptions.counts:
                params = encode_object({"uri": Raw(msgspec.json.encode(uri))})
                self._notify_updated(self._server, uri, params, None)
        self._may_have_missed = False

    async def listen(self, peer: McpPeer) -> Never:
        """Keep a subscription to the changes of a stateless server open."""
        while True:
            try:
                await self._subscriptions.listen(peer)
            except (UpstreamError, UpstreamSessionExpired) as error:
                log.debug("subscription ended", extra={"server": self._server, "reason": str(error)})
            except Exception:
                # The next subscription may succeed.
                log.exception("subscription failed", extra={"server": self._server})
            await asyncio.sleep(_LISTEN_AGAIN_SECONDS)
            # Changes may be missed until the next subscription.
            self._may_have_missed = True
            for capability in _LISTS:
                if peer.negotiated.notifies_list_changed(capability):
                    self._relist(capability)


@dataclass(eq=False)
class SubscriptionFanout:
    """Subscribes on the main connection and on the connections of single clients."""

    _server: str
    _subscriptions: ResourceSubscriptions
    _main_connection: MainConnection
    _pool: ConnectionPool
    _background: BackgroundTasks

    async def subscribe(self, uri: str) -> McpResponse:
        """Subscribe to a resource; the server's answer, raises UpstreamError."""
        peer = await self._main_connection.wait_connected()
        try:
            answer = await self._subscriptions.add(uri, peer)
        except UpstreamSessionExpired:
            self._main_connection.drop(peer)
            answer = await self._subscribe_again(uri)
        if answer.error:
            return answer
        try:
            # The caller relies on the subscription once it has the answer.
            await self._subscriptions.wait_acknowledged()
            await self._subscribe_client_connections(uri)
        except asyncio.CancelledError:
            # A caller that does not get the answer will not unsubscribe.
            self._background.start(self._withdraw(uri), name=f"unsubscribe at {self._server}")
            raise
        return answer

    async def _subscribe_client_connections(self, uri: str) -> None:
        """Subscribe where the calls of single clients make changes, too."""
        peers = self._pool.client_peers()
        if not peers:
            return
        done = asyncio.Event()

        async def subscribe_each() -> None:
            await asyncio.gather(*(self.restore(peer, (uri,)) for peer in peers))
            done.set()

        self._background.start(subscribe_each(), name=f"subscribe at {self._server}")
        # One of them may be busy with a long call, which must not delay subscribers.
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLIENT_CONNECTIONS_SECONDS):
                await done.wait()

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
        """End one client's subscription; raises UpstreamError."""
        try:
            return await self._subscriptions.remove(uri, self._main_connection.peer)
        except UpstreamSessionExpired:
            # The subscription ended with its session.
            return McpResponse(b"{}")

    async def restore(self, peer: McpPeer, uris: Iterable[str] | None = None) -> None:
        """Subscribe on a client's own connection to these or to all; a failure is logged."""
        try:
            await self._subscriptions.restore(peer, uris)
        except (UpstreamError, UpstreamSessionExpired) as error:
            log.debug("not subscribed", extra={"server": self._server, "reason": str(error)})
