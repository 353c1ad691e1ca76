"""Streamable HTTP of the stateless era: self-contained requests and subscriptions."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.errors import HeadgateError
from headgate.domain.identity import Identity
from headgate.domain.item import NAME_PARAM_BY_METHOD
from headgate.domain.mcp_request import ClientSession, visibility_group_of
from headgate.protocol.framing import sse_event
from headgate.protocol.jsonrpc import (
    ABSENT,
    Envelope,
    decode_object,
    decode_params,
    encode_notification,
    encode_object,
    encode_result,
)
from headgate.protocol.jsonrpc_errors import (
    HEADER_MISMATCH,
    INVALID_REQUEST,
    UNSUPPORTED_VERSION,
    ProtocolViolation,
    invalid_params,
)
from headgate.protocol.mcp_headers import decode_header_value
from headgate.protocol.protocol_version import (
    META_CAPABILITIES,
    META_SUBSCRIPTION,
    META_VERSION,
    STATELESS_VERSIONS,
    Era,
)
from headgate.protocol.result_conversion import COMPLETE
from headgate.server.change_notifier import ChangeNotifier, VisibilityGroups
from headgate.server.client_context import (
    SUBSCRIPTION_LIMITS,
    ClientContext,
    SubscriptionShare,
    TooManySubscriptions,
)
from headgate.server.delivery_metadata import IDEMPOTENCY_KEY_HEADER
from headgate.server.guard import LISTING_MODES
from headgate.server.http_exchange import HttpExchange, KeepAlive
from headgate.server.http_request import HttpRequest
from headgate.server.method_router import MethodRouter
from headgate.server.outbound_queue import OutboundQueue
from headgate.server.session_streams import list_changed_method
from headgate.server.streamable_http import write_event_stream

log = logging.getLogger("headgate.server")


class _StatelessParams(msgspec.Struct, rename={"meta": "_meta"}):
    name: Raw = ABSENT
    uri: Raw = ABSENT
    meta: Raw = ABSENT
    notifications: Raw = ABSENT


class _SubscriptionFilter(msgspec.Struct, rename="camel"):
    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []


_params = msgspec.json.Decoder(_StatelessParams)
# As nearly every request spells them, which need not be decoded.
_KNOWN_VERSIONS = {msgspec.json.encode(version): version for version in STATELESS_VERSIONS}


@dataclass(eq=False)
class StatelessHttpHandler:
    """Serves clients of the stateless era over HTTP."""

    _router: MethodRouter
    _change_notifier: ChangeNotifier
    _keep_alive: KeepAlive

    async def post(self, envelope: Envelope, http_request: HttpRequest, identity: Identity) -> None:
        """Handle one message from a client; raises ProtocolViolation."""
        if not envelope.method:
            raise ProtocolViolation(INVALID_REQUEST, "Only requests and notifications are sent in this era")
        if not envelope.id:
            _check_version(http_request.headers[b"mcp-protocol-version"].decode("latin-1"), b"null")
            http_request.respond(202, b"")
            return
        meta = check_metadata(envelope, http_request.headers)
        if envelope.method == "subscriptions/listen":
            await self._listen(envelope, http_request, identity)
            return
        exchange = HttpExchange(http_request, self._keep_alive.now())
        self._keep_alive.add(exchange)
        context = ClientContext(
            era=Era.STATELESS,
            channel=exchange,
            caller=identity,
            headers=http_request.headers,
            meta=meta,
            connection=http_request.connection_id,
            listing=LISTING_MODES[http_request.path],
            key_header=http_request.headers.get(IDEMPOTENCY_KEY_HEADER),
        )
        try:
            reply = await self._router.handle_request(envelope, context)
        except BaseException:
            exchange.abandon()
            raise
        finally:
            self._keep_alive.remove(exchange)
        await exchange.finish(reply)

    async def _listen(self, envelope: Envelope, http_request: HttpRequest, identity: Identity) -> None:
        subscription = ClientSubscription(envelope, OutboundQueue(http_request.outbound), identity)
        async with open_subscription(subscription, self._router, self._change_notifier):
            await write_event_stream(
                http_request,
                subscription.outbound_queue,
                self._change_notifier,
                first=sse_event(subscription.acknowledgement),
                last=sse_event(subscription.final_reply),
            )


class ClientSubscription:
    """One `subscriptions/listen` request: its notifications go to the outbound queue under its id."""

    def __init__(self, envelope: Envelope, outbound_queue: OutboundQueue, identity: Identity) -> None:
        self.identity = identity
        self.id = bytes(envelope.id)
        self.outbound_queue = outbound_queue
        self.ended = asyncio.Event()
        # In this era those with the same key share one list of tools.
        self._visibility_group = visibility_group_of(None, identity)
        self._tag = Raw(encode_object({META_SUBSCRIPTION: Raw(self.id)}))
        requested = _requested_filter(envelope)
        lists = ("tools", "prompts", "resources")
        self._capabilities = {name for name in lists if getattr(requested, f"{name}_list_changed")}
        self.uris = dict.fromkeys(requested.resource_subscriptions)

    @property
    def acknowledgement(self) -> bytes:
        """The notification that acknowledges the subscription, with what it covers."""
        accepted: dict[str, object] = {f"{name}ListChanged": True for name in sorted(self._capabilities)}
        if self.uris:
            accepted["resourceSubscriptions"] = list(self.uris)
        params = {"_meta": self._tag, "notifications": Raw(msgspec.json.encode(accepted))}
        return encode_notification("notifications/subscriptions/acknowledged", encode_object(params))

    def list_changed(self, capability: str, visibility_groups: VisibilityGroups) -> None:
        if capability in self._capabilities and (
            visibility_groups is None or self._visibility_group in visibility_groups
        ):
            tagged = encode_object({"_meta": self._tag})
            method = list_changed_method(capability)
            self.outbound_queue.notify(encode_notification(method, tagged))

    def resource_updated(self, uri: str, params: bytes, owner: ClientSession | None) -> None:
        if uri in self.uris and owner is None:
            members = {**decode_object(params or b"{}"), "_meta": self._tag}
            message = encode_notification("notifications/resources/updated", encode_object(members))
            self.outbound_queue.notify(message)

    @property
    def final_reply(self) -> bytes:
        return encode_result(self.id, b"{" + COMPLETE + b',"_meta":' + bytes(self._tag) + b"}")


@asynccontextmanager
async def open_subscription(
    subscription: ClientSubscription, router: MethodRouter, change_notifier: ChangeNotifier
) -> AsyncIterator[ClientSubscription]:
    """A subscription for as long as the block lasts, without resources that their server refuses."""
    taken: list[str] = []
    share, budget = SubscriptionShare(), router.subscriptions
    try:
        try:
            for uri in subscription.uris:
                budget.reserve(share, uri)
        except TooManySubscriptions as error:
            raise invalid_params(error.sentence, subscription.id) from error
        for uri in list(subscription.uris):
            if await _subscribe(router, uri, subscription.identity):
                taken.append(uri)
            else:
                del subscription.uris[uri]
        change_notifier.add_listener(subscription)
        yield subscription
    finally:
        change_notifier.remove_listener(subscription)
        budget.release_all(share)
        for uri in taken:
            await asyncio.shield(router.unsubscribe(uri, subscription.identity))


async def _subscribe(router: MethodRouter, uri: str, identity: Identity) -> bool:
    try:
        return not (await router.subscribe(uri, identity)).error
    except HeadgateError as error:
        log.debug("not subscribed", extra={"uri": uri[:200], "reason": error.message})
        return False


def _requested_filter(envelope: Envelope) -> _SubscriptionFilter:
    id = bytes(envelope.id)
    params = decode_params(envelope.params, _StatelessParams, id, "notifications: ")
    requested = decode_params(params.notifications, _SubscriptionFilter, id, "notifications: ")
    if len(requested.resource_subscriptions) > SUBSCRIPTION_LIMITS.resources:
        reason = f"at most {SUBSCRIPTION_LIMITS.resources} resources can be subscribed to at once"
        raise invalid_params(reason, id)
    return requested


def check_metadata(envelope: Envelope, headers: dict[bytes, bytes] | None) -> dict[str, Raw]:
    """The `_meta` of a request, which must agree with its headers; raises ProtocolViolation."""
    id = bytes(envelope.id)
    try:
        params = _params.decode(envelope.params or b"{}")
        meta = decode_object(params.meta or b"{}")
    except (DecodeError, UnicodeDecodeError) as error:
        raise invalid_params(error, id) from error
    if META_VERSION not in meta or META_CAPABILITIES not in meta:
        missing = [key for key in (META_VERSION, META_CAPABILITIES) if key not in meta]
        raise invalid_params(f"_meta lacks {', '.join(missing)}", id)
    if bytes(meta[META_CAPABILITIES])[:1] != b"{":
        raise invalid_params(f"{META_CAPABILITIES} must be an object", id)
    version = _KNOWN_VERSIONS.get(bytes(meta[META_VERSION])) or _version(meta[META_VERSION], id)
    if headers is not None:
        _check_headers(envelope, headers, version, params)
    _check_version(version, id)
    return meta


def _version(raw: Raw, id: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except DecodeError as error:
        raise invalid_params(f"{META_VERSION} must be a string", id) from error


def _check_headers(
    envelope: Envelope, headers: dict[bytes, bytes], version: str, params: _StatelessParams
) -> None:
    id = bytes(envelope.id)
    if headers.get(b"mcp-protocol-version") != version.encode():
        reason = "MCP-Protocol-Version differs from the version in the body"
        raise ProtocolViolation(HEADER_MISMATCH, reason, id=id)
    if headers.get(b"mcp-method") != envelope.method.encode():
        raise ProtocolViolation(HEADER_MISMATCH, "Mcp-Method differs from the method in the body", id=id)
    key = NAME_PARAM_BY_METHOD.get(envelope.method)
    if key is None:
        return
    named: Raw = getattr(params, key)
    header = headers.get(b"mcp-name")
    if not named or (header is not None and _equals_unencoded(header, bytes(named))):
        return
    expected = decode_params(named, str, id, f"{key}: ")
    if header is None or decode_header_value(header) != expected:
        raise ProtocolViolation(HEADER_MISMATCH, f"Mcp-Name differs from the {key} in the body", id=id)


def _equals_unencoded(header: bytes, text: bytes) -> bool:
    """Whether the header is the text of this JSON, neither of them encoded: nearly always."""
    return text == b'"%b"' % header and header.isascii() and b"\\" not in header and header[:1] != b"="


def _check_version(version: str, id: bytes) -> None:
    if version not in STATELESS_VERSIONS:
        data = {"supported": list(STATELESS_VERSIONS), "requested": version[:100]}
        raise ProtocolViolation(UNSUPPORTED_VERSION, "Unsupported protocol version", id=id, data=data)
