"""Routes MCP methods of both eras to the gateway and encodes the replies."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import Raw

from headgate import __version__
from headgate.catalog.errors import PromptNotFound, ResourceNotFound, ToolNotFound
from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.paged_listing import CacheHint, InvalidCursor
from headgate.domain.client_profile import ClientProfile, client_name, profile_of
from headgate.domain.delivery_request import FEATURES
from headgate.domain.errors import HeadgateError, InternalError
from headgate.domain.gateway_chain import CLIENT_NAME
from headgate.domain.identity import Identity
from headgate.domain.item import KIND_BY_LIST_METHOD, ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import ClientSession, McpRequest, McpResponse
from headgate.gateway.gateway import Gateway
from headgate.protocol.jsonrpc import ABSENT, Envelope, decode_params, parse_params
from headgate.protocol.jsonrpc_errors import METHOD_NOT_FOUND, ProtocolViolation, invalid_params
from headgate.protocol.protocol_version import (
    META_CAPABILITIES,
    META_CLIENT_INFO,
    META_PREFIX,
    STATELESS_VERSIONS,
    Era,
    negotiate,
)
from headgate.protocol.result_conversion import COMPLETE, UNCACHED
from headgate.protocol.rmcp import meta_names, shared_features, with_rmcp_capability, without_rmcp_meta
from headgate.server import mcp_requests
from headgate.server.client_context import (
    SUBSCRIPTION_LIMITS,
    ClientContext,
    InitializedClient,
    SessionPreferences,
    SubscriptionBudget,
    TooManySubscriptions,
)
from headgate.server.delivery_metadata import error_delivery_metadata, with_delivery_metadata
from headgate.server.reply import (
    Reply,
    encode_gateway_error,
    encode_reply,
    encode_upstream_error,
    result_reply,
)
from headgate.server.shutdown import GatewayShuttingDown, absorb_interrupt, encode_shutdown_error

log = logging.getLogger("headgate.server")

# Objects that are known to have no more than brackets around other people's bytes.
_EMPTY = b"{}"
_TOOL_CALL = "tools/call"
_HANDSHAKE_METHODS = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
_STATELESS_METHODS = frozenset({"server/discover", "subscriptions/listen"})


class ClientServices(Protocol):
    """What the server side needs besides the gateway's answers."""

    async def await_listings(
        self, profile: ClientProfile, owner: ClientSession | None, caller: Identity
    ) -> None:
        """Give servers a moment to list for clients of that profile."""

    def capabilities(self, era: Era, caller: Identity) -> bytes:
        """The capabilities that are declared to a client of that era."""

    async def instructions(self, listing_context: ListingContext) -> str:
        """The instructions of the gateway and of the servers."""

    def cache_hint(self, kind: ItemKind, listing_context: ListingContext) -> CacheHint:
        """How long a listing may be believed, and by whom."""

    async def set_log_level(self, owner: ClientSession, level: str, caller: Identity) -> None:
        """Set the lowest level of log messages that the client gets."""

    def forward_notification(
        self, owner: ClientSession, method: str, params: bytes, caller: Identity
    ) -> None:
        """Forward a notification of the client to its servers."""


class _InitializeParams(msgspec.Struct):
    protocolVersion: str  # noqa: N815 (the protocol's spelling)
    capabilities: Raw = ABSENT
    clientInfo: Raw = ABSENT  # noqa: N815 (the protocol's spelling)


class _ListParams(msgspec.Struct, rename={"meta": "_meta"}):
    cursor: str | None = None
    meta: dict[str, Raw] | None = None


_MethodHandler = Callable[[Envelope, ClientContext], Awaitable[Reply]]
_GatewayMethod = Callable[[McpRequest], Awaitable[McpResponse]]


class MethodRouter:
    """Answers every request of a client."""

    def __init__(
        self,
        gateway: Gateway,
        name: str,
        client_services: ClientServices,
        gateways: Callable[[], bytes] = lambda: b"",
    ) -> None:
        """`gateways` is the member of `_meta` that tells another gateway who is behind this one."""
        self._gateways = gateways
        self._gateway = gateway
        self._info = msgspec.json.encode({"name": name, "version": __version__})
        self._client_services = client_services
        self.subscriptions = SubscriptionBudget()
        both: dict[str, _MethodHandler] = {
            "prompts/get": self._get_prompt,
            "resources/read": self._read_resource,
            "completion/complete": self._complete,
            **dict.fromkeys(KIND_BY_LIST_METHOD, self._list),
        }
        self._handlers = {
            Era.HANDSHAKE: {
                **both,
                "ping": self._ping,
                "logging/setLevel": self._set_log_level,
                "resources/subscribe": self._subscribe,
                "resources/unsubscribe": self._unsubscribe,
                **dict.fromkeys(_STATELESS_METHODS, self._method_not_found),
                "server/discover": self._discover_in_session,
            },
            Era.STATELESS: {
                **both,
                **dict.fromkeys(_HANDSHAKE_METHODS, self._method_not_found),
                "server/discover": self._discover,
            },
        }

    def handle_request(self, envelope: Envelope, context: ClientContext) -> Awaitable[Reply]:
        """The reply to one request; raises ProtocolViolation when it breaks the protocol."""
        # Not a coroutine of its own, because every call comes by here.
        if envelope.method == _TOOL_CALL:
            request = mcp_requests.tool_call_request(envelope, context)
            return self._reply_from_gateway(envelope, context, request, self._gateway.call)
        return self._handle_other_request(envelope, context)

    async def _handle_other_request(self, envelope: Envelope, context: ClientContext) -> Reply:
        work = self._handlers[context.era].get(envelope.method, self._forward_unknown_method)
        try:
            return await work(envelope, context)
        except asyncio.CancelledError as cancelled:
            if not absorb_interrupt(cancelled):
                raise
            return Reply(encode_shutdown_error(bytes(envelope.id)))

    def handle_notification(self, envelope: Envelope, owner: ClientSession, caller: Identity) -> None:
        # Delivery options are for the gateway, not for the servers.
        params = without_rmcp_meta(bytes(envelope.params))
        self._client_services.forward_notification(owner, envelope.method, params, caller)

    async def restore_subscriptions(
        self, preferences: SessionPreferences, caller: Identity, tell: Callable[[str], None]
    ) -> None:
        """Subscribe a revived session again to its resources.

        `tell` is called with each resource, which may have changed meanwhile.
        """
        uris = list(preferences.subscriptions)
        for uri in uris:
            self.subscriptions.add(preferences.subscription_share, uri)
        for uri in uris:
            try:
                taken = not (await self.subscribe(uri, caller)).error
            except HeadgateError as error:
                log.info("not subscribed again", extra={"uri": uri[:200], "reason": error.message})
                taken = False
            if not taken and uri in preferences.subscriptions:
                # It may subscribe anew, and must not unsubscribe others when it leaves.
                preferences.subscriptions.discard(uri)
                self.subscriptions.release(preferences.subscription_share, uri)
            tell(uri)

    async def drop_subscriptions(self, preferences: SessionPreferences, caller: Identity) -> None:
        self.subscriptions.release_all(preferences.subscription_share)
        while preferences.subscriptions:
            await self.unsubscribe(preferences.subscriptions.pop(), caller)

    # Requests to servers.

    async def _get_prompt(self, envelope: Envelope, context: ClientContext) -> Reply:
        request = mcp_requests.named_request(envelope, context, "name")
        return await self._reply_from_gateway(envelope, context, request, self._gateway.get_prompt)

    async def _read_resource(self, envelope: Envelope, context: ClientContext) -> Reply:
        request = mcp_requests.named_request(envelope, context, "uri")
        return await self._reply_from_gateway(envelope, context, request, self._gateway.read_resource)

    async def _complete(self, envelope: Envelope, context: ClientContext) -> Reply:
        request = mcp_requests.completion_request(envelope, context)
        return await self._reply_from_gateway(envelope, context, request, self._gateway.complete)

    async def _forward_unknown_method(self, envelope: Envelope, context: ClientContext) -> Reply:
        if envelope.method.startswith("notifications/"):
            # Servers do not answer a notification: a caller who sends it as a request would wait in vain.
            return await self._method_not_found(envelope, context)
        request = mcp_requests.unknown_method_request(envelope, context)
        server = mcp_requests.requested_server(request)

        async def forward(request: McpRequest) -> McpResponse:
            return await self._gateway.forward(request, server)

        return await self._reply_from_gateway(envelope, context, request, forward)

    async def _reply_from_gateway(
        self, envelope: Envelope, context: ClientContext, request: McpRequest, work: _GatewayMethod
    ) -> Reply:
        id, method = bytes(envelope.id), envelope.method
        try:
            try:
                answer = await work(request)
            except (ToolNotFound, PromptNotFound, ResourceNotFound):
                answer = await self._retry_after_listing(request, work)
            if answer.delivery_status is not None or request.delivery_request is not None:
                answer = await with_delivery_metadata(answer, request.delivery_request)
        except HeadgateError as error:
            return _error_reply(envelope, context, request, error)
        except asyncio.CancelledError as cancelled:
            if not absorb_interrupt(cancelled):
                raise
            return _error_reply(envelope, context, request, GatewayShuttingDown(request.name or method))
        except Exception:
            entry = secrets.token_hex(6)
            about = {"entry": entry, "method": method, "about": request.name[:200]}
            log.exception("internal error", extra=about)
            return _error_reply(envelope, context, request, InternalError(entry))
        if answer.error and context.era is Era.STATELESS:
            return encode_upstream_error(id, answer)
        return encode_reply(id, method, request.name or method, answer, context.era)

    async def _retry_after_listing(self, request: McpRequest, work: _GatewayMethod) -> McpResponse:
        """The answer once servers have listed: the client may know the item from before a restart."""
        await self._client_services.await_listings(request.profile, request.session, request.caller)
        return await work(request)

    # Resource subscriptions.

    async def subscribe(self, uri: str, caller: Identity) -> McpResponse:
        """Subscribe to a resource; raises HeadgateError."""
        request = McpRequest(caller=caller, method="resources/subscribe", name=uri)
        try:
            return await self._gateway.subscribe(request)
        except ResourceNotFound:
            return await self._retry_after_listing(request, self._gateway.subscribe)

    async def unsubscribe(self, uri: str, caller: Identity) -> None:
        """End a subscription; errors of the server are logged only."""
        request = McpRequest(caller=caller, method="resources/unsubscribe", name=uri)
        try:
            await self._gateway.unsubscribe(request)
        except HeadgateError as error:
            log.debug("not unsubscribed", extra={"uri": uri[:200], "reason": error.message})

    async def _subscribe(self, envelope: Envelope, context: ClientContext) -> Reply:
        request = mcp_requests.named_request(envelope, context, "uri")
        # Without a session none are kept.
        preferences = context.preferences or SessionPreferences()
        subscribed, uri = preferences.subscriptions, request.name
        if uri in subscribed:
            return result_reply(bytes(envelope.id), _EMPTY)
        try:
            # Before the server is asked, so that concurrent requests cannot exceed a limit.
            if len(subscribed) >= SUBSCRIPTION_LIMITS.resources:
                reason = f"a client may subscribe to {SUBSCRIPTION_LIMITS.resources} resources"
                raise TooManySubscriptions(reason, "unsubscribe from other resources first")
            self.subscriptions.reserve(preferences.subscription_share, uri)
        except TooManySubscriptions as error:
            return encode_gateway_error(bytes(envelope.id), envelope.method, error, context.era)
        taken = False
        try:
            reply = await self._reply_from_gateway(envelope, context, request, self._gateway.subscribe)
            if reply.succeeded and uri in subscribed:
                # Two requests at the same time count once.
                await self.unsubscribe(uri, context.caller)
            elif reply.succeeded:
                taken = True
                subscribed.add(uri)
                preferences.notify_changed()
            return reply
        finally:
            if not taken:
                self.subscriptions.release(preferences.subscription_share, uri)

    async def _unsubscribe(self, envelope: Envelope, context: ClientContext) -> Reply:
        request = mcp_requests.named_request(envelope, context, "uri")
        preferences = context.preferences
        if preferences is not None and request.name in preferences.subscriptions:
            preferences.subscriptions.discard(request.name)
            self.subscriptions.release(preferences.subscription_share, request.name)
            preferences.notify_changed()
            await self.unsubscribe(request.name, context.caller)
        return result_reply(bytes(envelope.id), _EMPTY)

    # Requests that the gateway answers itself.

    async def _list(self, envelope: Envelope, context: ClientContext) -> Reply:
        id, kind = bytes(envelope.id), KIND_BY_LIST_METHOD[envelope.method]
        params = decode_params(envelope.params, _ListParams, id)
        listing_context = _listing_context_of(context, params.meta or {})
        profile, owner = listing_context.profile, listing_context.owner
        await self._client_services.await_listings(profile, owner, context.caller)
        try:
            members = await self._gateway.list(kind, params.cursor, listing_context)
        except InvalidCursor as error:
            raise invalid_params(error, id) from error
        behind = self._gateways_member(listing_context)
        if behind:
            members += b',"_meta":{' + behind + b"}"
        if context.era is Era.HANDSHAKE:
            return result_reply(id, b"{" + members + b"}")
        hint = self._client_services.cache_hint(kind, listing_context)
        caching = b'"ttlMs":%d,"cacheScope":"%s"' % (hint.ttl_ms, b"public" if hint.public else b"private")
        return result_reply(id, b"{" + COMPLETE + b"," + caching + b"," + members + b"}")

    async def _ping(self, envelope: Envelope, context: ClientContext) -> Reply:
        return result_reply(bytes(envelope.id), _EMPTY)

    async def _set_log_level(self, envelope: Envelope, context: ClientContext) -> Reply:
        id = bytes(envelope.id)
        level = mcp_requests.named_request(envelope, context, "level").name
        if level not in mcp_requests.LOG_LEVELS:
            raise invalid_params(f"level is one of {mcp_requests.LOG_LEVELS}", id)
        if context.preferences is not None and context.owner is not None:
            context.preferences.log_level = level
            context.preferences.notify_changed()
            await self._client_services.set_log_level(context.owner, level, context.caller)
        return result_reply(id, _EMPTY)

    async def _method_not_found(self, envelope: Envelope, context: ClientContext) -> Reply:
        id = bytes(envelope.id)
        raise ProtocolViolation(METHOD_NOT_FOUND, f"Method not found: {envelope.method[:200]}", id=id)

    async def initialize(
        self, envelope: Envelope, caller: Identity, listing: ListingMode | None = None
    ) -> InitializedClient:
        """The reply to `initialize`; raises ProtocolViolation."""
        id = bytes(envelope.id)
        params = decode_params(envelope.params, _InitializeParams, id)
        decode_params(params.capabilities, dict[str, Raw], id)
        version, capabilities = negotiate(params.protocolVersion), bytes(params.capabilities)
        listing_context = ListingContext(
            era=Era.HANDSHAKE,
            caller=caller,
            profile=profile_of(capabilities),
            client=client_name(bytes(params.clientInfo)),
            mode=listing,
        )
        behind = self._gateways_member(listing_context)
        initialize_result = b'{"protocolVersion":"%s","capabilities":%s,"serverInfo":%s%s%s}' % (
            version.encode(),
            self._capabilities(Era.HANDSHAKE, caller, capabilities),
            self._info,
            await self._instructions_member(listing_context),
            b',"_meta":{' + behind + b"}" if behind else b"",
        )
        reply = result_reply(id, initialize_result)
        return InitializedClient(version, capabilities, bytes(params.clientInfo), reply)

    async def _discover_in_session(self, envelope: Envelope, context: ClientContext) -> Reply:
        """Negotiate rmcp with a client whose handshake is over; for any other the method is unknown."""
        declared = bytes(_meta_of(envelope).get(META_CAPABILITIES, b""))
        # Before the handshake the answer would tell a client that this connection is of the stateless era.
        if not context.client or not shared_features(declared, FEATURES):
            return await self._method_not_found(envelope, context)
        return await self._discover(envelope, context)

    async def _discover(self, envelope: Envelope, context: ClientContext) -> Reply:
        meta = _meta_of(envelope)
        listing_context = _listing_context_of(context, meta)
        behind = self._gateways_member(listing_context)
        discovery = b'{%s,%s,"supportedVersions":%s,"capabilities":%s%s,"_meta":{"%sserverInfo":%s%s}}' % (
            COMPLETE,
            UNCACHED,
            msgspec.json.encode(STATELESS_VERSIONS),
            self._capabilities(context.era, context.caller, bytes(meta.get(META_CAPABILITIES, b""))),
            await self._instructions_member(listing_context),
            META_PREFIX.encode(),
            self._info,
            b"," + behind if behind else b"",
        )
        return result_reply(bytes(envelope.id), discovery)

    def _gateways_member(self, listing_context: ListingContext) -> bytes:
        """The member of `_meta` that names the gateways behind this one, for other gateways only."""
        return self._gateways() if listing_context.client == CLIENT_NAME else b""

    def _capabilities(self, era: Era, caller: Identity, declared: bytes) -> bytes:
        """The capabilities for a client that declared this; rmcp only if it supports that too."""
        promised = self._client_services.capabilities(era, caller)
        shared = shared_features(declared, FEATURES)
        common = tuple(feature for feature in FEATURES if feature in shared)
        return with_rmcp_capability(promised, common, meta_names(declared)) if common else promised

    async def _instructions_member(self, listing_context: ListingContext) -> bytes:
        instructions = await self._client_services.instructions(listing_context)
        return b',"instructions":' + msgspec.json.encode(instructions) if instructions else b""


def _error_reply(
    envelope: Envelope, context: ClientContext, request: McpRequest, error: HeadgateError
) -> Reply:
    metadata = error_delivery_metadata(error, request.delivery_request)
    return encode_gateway_error(bytes(envelope.id), envelope.method, error, context.era, metadata)


def _meta_of(envelope: Envelope) -> dict[str, Raw]:
    id = bytes(envelope.id)
    meta = parse_params(envelope.params, id).get("_meta", ABSENT)
    return decode_params(meta, dict[str, Raw], id, "_meta: ")


def _listing_context_of(context: ClientContext, meta: Mapping[str, Raw]) -> ListingContext:
    """The client that lists; in the stateless era its request describes it."""
    profile, client = context.profile, context.client
    if context.era is Era.STATELESS:
        profile = profile_of(bytes(meta.get(META_CAPABILITIES, b"{}")))
        client = client_name(bytes(meta.get(META_CLIENT_INFO, b"")))
    return ListingContext(
        era=context.era,
        caller=context.caller,
        owner=context.owner,
        profile=profile,
        client=client,
        mode=context.listing,
    )
