"""Opens the transport of each upstream, and dispatches upstream events to catalog, delivery and clients."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from operator import methodcaller

import msgspec
from msgspec import Raw

from headgate.app.catalog_persistence import CatalogPersistence
from headgate.app.loop_detection import refuse_own_entry
from headgate.catalog.capabilities import MergedCapabilities, ServerDeclaration
from headgate.catalog.catalog import Catalog
from headgate.catalog.name_allocation import with_server
from headgate.catalog.paged_listing import CacheHint
from headgate.config.settings import Settings
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.gateway_chain import GatewayChain
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import ClientSession
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.protocol.jsonrpc import decode_object, encode_object
from headgate.server.change_notifier import ChangeNotifier
from headgate.upstream.fleet import GatewayFederation
from headgate.upstream.handshake import NegotiationResult
from headgate.upstream.http.http_connector import HostResolver
from headgate.upstream.message_assembly import MessageLimits
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transport import UpstreamTransport
from headgate.upstream.transports.builtin import BuiltinServer, open_builtin
from headgate.upstream.transports.child_process import Watchdog
from headgate.upstream.transports.sse import open_sse
from headgate.upstream.transports.stdio import open_stdio
from headgate.upstream.transports.streamable_http import open_streamable_http


class UpstreamEventDispatcher:
    """Dispatches the events of upstreams to the catalog, its file, clients and listeners."""

    def __init__(
        self,
        catalog: Catalog,
        capabilities: MergedCapabilities,
        catalog_persistence: CatalogPersistence,
        change_notifier: ChangeNotifier,
        federation: GatewayFederation,
    ) -> None:
        self.listing_lock = asyncio.Lock()
        self._catalog = catalog
        self._capabilities = capabilities
        self._catalog_persistence = catalog_persistence
        self._change_notifier = change_notifier
        self._connected_listeners: list[Callable[[str], None]] = []
        self.gateways_discovered = federation.record_gateways

    def add_connected_listener(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of each server that connects from now on."""
        self._connected_listeners.append(listener)

    def prepare_listing(self, server: str, kind: ItemKind, definitions: list[bytes]) -> Iterator[None]:
        """Check the definitions that the server is about to offer, one at each step."""
        return self._catalog.check_ahead(server, kind, definitions)

    def listing_received(
        self, server: str, kind: ItemKind, definitions: list[bytes], profile: ClientProfile, hint: CacheHint
    ) -> dict[str, str]:
        """Replace the listing of one kind; returns the definitions that were left out, with reasons."""
        intake = self._catalog.replace_listing(server, kind, definitions, profile, hint)
        if profile == PLAIN_PROFILE:
            self._catalog_persistence.save_listing(server, kind, definitions, hint, intake.sources)
        return intake.left_out

    def has_listing(self, server: str, profile: ClientProfile) -> bool:
        return self._catalog.has_own_listing(server, profile)

    def server_connected(self, server: str, negotiated: NegotiationResult) -> None:
        """Record what the server declared on its new connection."""
        declared = negotiated.capabilities.decode(errors="replace")
        self._capabilities.declare(
            server, ServerDeclaration(negotiated.version, declared, negotiated.instructions)
        )
        for listener in self._connected_listeners:
            listener(server)

    def resource_updated(self, server: str, uri: str, params: bytes, owner: ClientSession | None) -> None:
        members = decode_object(params or b"{}")
        members.pop("_meta", None)
        # A client may have subscribed under either name.
        for name in {self._catalog.public_uri(server, uri), with_server(server, uri)}:
            members["uri"] = Raw(msgspec.json.encode(name))
            allowed = methodcaller("allows", Item(ItemKind.RESOURCES, server, uri, name))
            self._change_notifier.resource_updated(name, encode_object(members), owner, allowed)


def transport_opener(
    settings: Settings,
    chain: GatewayChain,
    watchdog: Watchdog,
    builtin: Mapping[str, BuiltinServer],
    child_files: int | None,
) -> Callable[[ServerSpec, NotificationRouter, deque[str]], AbstractAsyncContextManager[UpstreamTransport]]:
    """A function that opens the transport of a server; it raises GatewayLoop for the gateway itself.

    `child_files` is the soft limit of open files of each child, unless it is that of the gateway.
    """
    limits = MessageLimits(
        settings.max_upstream_message_bytes, settings.spool_above_bytes, settings.data_dir / "spool"
    )
    # One for all servers, so that a server that is tried again joins the lookup that is under way.
    resolver = HostResolver()

    def open_transport(
        spec: ServerSpec, router: NotificationRouter, stderr: deque[str]
    ) -> AbstractAsyncContextManager[UpstreamTransport]:
        refuse_own_entry(spec, settings)
        match spec.transport:
            case TransportType.STDIO:
                return open_stdio(spec, limits, watchdog, router, stderr, chain.environment, child_files)
            case TransportType.STREAMABLE_HTTP:
                return open_streamable_http(spec, limits, router, chain.via_header, resolver)
            case TransportType.SSE:
                return open_sse(spec, limits, router, chain.via_header, resolver)
            case TransportType.BUILTIN:
                return open_builtin(spec, builtin, router)

    return open_transport
