"""Hands what upstreams tell to whom it concerns."""

import asyncio
from collections.abc import Iterator

import msgspec
from msgspec import Raw

from headgate.app.recollection import Recollection
from headgate.catalog.capabilities import MergedCapabilities, ServerDeclaration
from headgate.catalog.catalog import Catalog
from headgate.catalog.paged_listing import CacheHint
from headgate.catalog.public_uris import with_server
from headgate.delivery.upstream_delivery import UpstreamDelivery
from headgate.domain.call import Owner
from headgate.domain.kind import Kind
from headgate.domain.profile import PLAIN, Profile
from headgate.protocol.jsonrpc import decode_object, encode_object
from headgate.server.change_notifier import ChangeNotifier
from headgate.upstream.fleet import GatewayFederation
from headgate.upstream.negotiation_result import NegotiationResult


class Events:
    """What happens to upstreams; `delivery` is known once the fleet is, which tells all this."""

    delivery: UpstreamDelivery

    def __init__(
        self,
        catalog: Catalog,
        abilities: MergedCapabilities,
        recollection: Recollection,
        change_notifier: ChangeNotifier,
        federation: GatewayFederation,
    ) -> None:
        self.listing_lock = asyncio.Lock()
        self._catalog = catalog
        self._abilities = abilities
        self._recollection = recollection
        self._change_notifier = change_notifier
        self.gateways_discovered = federation.record_gateways

    def prepare_listing(self, server: str, kind: Kind, definitions: list[bytes]) -> Iterator[None]:
        """Look at what the server is about to offer, one definition at a step."""
        return self._catalog.check_ahead(server, kind, definitions)

    def listing_received(
        self, server: str, kind: Kind, definitions: list[bytes], profile: Profile, hint: CacheHint
    ) -> dict[str, str]:
        """This is what the server has of one kind."""
        intake = self._catalog.replace_listing(server, kind, definitions, profile, hint)
        if profile == PLAIN:
            self._recollection.keep(server, kind, definitions, hint, intake.sources)
        return intake.left_out

    def has_listing(self, server: str, profile: Profile) -> bool:
        """Whether a listing for that profile is kept."""
        return self._catalog.has_own_listing(server, profile)

    def server_connected(self, server: str, negotiated: NegotiationResult) -> None:
        """A new connection stands."""
        capabilities = negotiated.capabilities.decode(errors="replace")
        self._abilities.declare(
            server, ServerDeclaration(negotiated.version, capabilities, negotiated.instructions)
        )
        self.delivery.on_reconnected(server)

    def resource_updated(self, server: str, uri: str, params: bytes, owner: Owner | None) -> None:
        """A resource of the server has changed."""
        members = decode_object(params or b"{}")
        members.pop("_meta", None)
        # A client may have subscribed under either name.
        for name in {self._catalog.public_uri(server, uri), with_server(server, uri)}:
            members["uri"] = Raw(msgspec.json.encode(name))
            self._change_notifier.resource_updated(name, encode_object(members), owner)
