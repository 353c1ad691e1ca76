"""Builds the gateway's request from a client's JSON-RPC message."""

from collections.abc import Mapping

from msgspec import DecodeError, Raw
from msgspec.json import decode

from headgate.domain.client_profile import PLAIN_PROFILE, client_name, profile_of
from headgate.domain.delivery_request import FEATURES
from headgate.domain.mcp_request import ClientBackChannel, McpRequest, McpResponse, ProgressListener
from headgate.protocol.jsonrpc import ABSENT, Envelope, decode_object, encode_object, parse_call, parse_params
from headgate.protocol.jsonrpc_errors import invalid_params
from headgate.protocol.protocol_version import (
    CONNECTION_KEYS,
    META_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROGRESS_TOKEN,
    Era,
)
from headgate.protocol.rmcp import shared_features
from headgate.server.client_context import ClientContext
from headgate.server.delivery_metadata import take_delivery_request
from headgate.server.session_streams import error_answer

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_LOG = "notifications/message"
_PARAM_HEADER = b"mcp-param-"
_EMPTY_BYTES = len(b"{}")


class _NotificationChannel:
    """The channel to a client of the stateless era: notifications, and log messages if it requested them."""

    def __init__(self, channel: ClientBackChannel, *, logged: bool) -> None:
        self._channel = channel
        self._logged = logged

    def send_notification(self, method: str, params: bytes) -> None:
        if self._logged or method != _LOG:
            self._channel.send_notification(method, params)

    async def send_request(self, method: str, params: bytes) -> McpResponse:
        """An error: the stateless era has no server requests."""
        return error_answer("The client speaks a version without questions of servers")


def tool_call_request(envelope: Envelope, context: ClientContext) -> McpRequest:
    """A call of a tool; raises ProtocolViolation."""
    id = bytes(envelope.id)
    call, more = parse_call(envelope.params, id)
    params = {"arguments": call.arguments, **more} if call.arguments else more
    return _build_request(envelope.method, call.name, params, call.meta, context, id)


def named_request(envelope: Envelope, context: ClientContext, member: str) -> McpRequest:
    """A request about what `member` of its params names; raises ProtocolViolation."""
    id = bytes(envelope.id)
    params = parse_params(envelope.params, id, member)
    meta = params.pop("_meta", ABSENT)
    name = required_text(params.pop(member, ABSENT), member, id)
    return _build_request(envelope.method, name, params, meta, context, id)


def completion_request(envelope: Envelope, context: ClientContext) -> McpRequest:
    """A request for values of an argument; raises ProtocolViolation."""
    id = bytes(envelope.id)
    params = parse_params(envelope.params, id, "ref")
    meta = params.pop("_meta", ABSENT)
    ref = parse_params(params.get("ref", ABSENT), id, "name", "uri")
    kind = required_text(ref.get("type", ABSENT), "ref.type", id)
    member = {"ref/prompt": "name", "ref/resource": "uri"}.get(kind)
    if member is None:
        raise invalid_params("ref.type is ref/prompt or ref/resource", id)
    name = required_text(ref.get(member, ABSENT), f"ref.{member}", id)
    return _build_request(envelope.method, name, params, meta, context, id)


def unknown_method_request(envelope: Envelope, context: ClientContext) -> McpRequest:
    """A request of which only its sender and its server know what it means; raises ProtocolViolation."""
    id = bytes(envelope.id)
    params = parse_params(envelope.params, id)
    meta = params.pop("_meta", ABSENT)
    return _build_request(envelope.method, "", params, meta, context, id)


def required_text(value: Raw, what: str, id: bytes) -> str:
    """A member of params that must be a text; raises ProtocolViolation."""
    try:
        found = decode(value or b"null", type=str)
    except (DecodeError, UnicodeDecodeError) as error:
        raise invalid_params(f"{what} must be a text", id) from error
    if not found:
        raise invalid_params(f"{what} is empty", id)
    return found


def _build_request(
    method: str, name: str, params: dict[str, Raw], raw_meta: Raw, context: ClientContext, id: bytes
) -> McpRequest:
    if context.meta is not None:
        meta = dict(context.meta)
    else:
        meta = _meta_object(raw_meta, id) if raw_meta else {}
    token = meta.pop(META_PROGRESS_TOKEN, None) if meta else None
    channel = context.channel
    on_progress = _progress_listener(token, channel) if token is not None else None
    if context.era is Era.HANDSHAKE:
        features = context.features
        if meta and META_CAPABILITIES in meta:
            features = _features_of_request(meta) or features
        return McpRequest(
            caller=context.caller,
            method=method,
            name=name,
            params=params,
            meta=meta,
            profile=context.profile,
            client=context.client,
            listing=context.listing,
            session=context.owner,
            channel=channel,
            log_level=context.preferences.log_level if context.preferences is not None else "",
            on_progress=on_progress,
            on_pause=context.on_pause,
            # Nearly no call has any of them.
            delivery_request=take_delivery_request(meta, context.key_header, features, id)
            if meta or features or context.key_header is not None
            else None,
        )
    level = _log_level(meta.get(META_LOG_LEVEL, ABSENT), id)
    capabilities = bytes(meta.get(META_CAPABILITIES, b""))
    # Before `_meta` is copied, out of which it takes what is only for the gateway.
    features = (
        shared_features(capabilities, FEATURES) if len(capabilities) > _EMPTY_BYTES else context.features
    )
    delivery_request = take_delivery_request(meta, context.key_header, features, id)
    return McpRequest(
        caller=context.caller,
        method=method,
        name=name,
        params=params,
        meta={key: value for key, value in meta.items() if key not in CONNECTION_KEYS},
        profile=profile_of(capabilities) if capabilities != b"{}" else PLAIN_PROFILE,
        client=client_name(bytes(meta.get(META_CLIENT_INFO, b""))),
        listing=context.listing,
        connection=context.connection,
        channel=_NotificationChannel(channel, logged=bool(level)),
        log_level=level,
        headers=_param_headers(context.headers) if context.headers else None,
        on_progress=on_progress,
        delivery_request=delivery_request,
    )


def _features_of_request(meta: dict[str, Raw]) -> frozenset[str]:
    """The features of rmcp that a request declares for itself, which is taken out of its `_meta`."""
    # A program that wraps a client whose handshake is over has no other place to declare them.
    features = shared_features(bytes(meta[META_CAPABILITIES]), FEATURES)
    if features:
        del meta[META_CAPABILITIES]
    return features


def _meta_object(raw: Raw, id: bytes) -> dict[str, Raw]:
    try:
        return decode_object(raw)
    except (DecodeError, UnicodeDecodeError) as error:
        raise invalid_params(f"_meta: {error}", id) from error


def _log_level(raw: Raw, id: bytes) -> str:
    if not raw:
        return ""
    level = required_text(raw, META_LOG_LEVEL, id)
    if level not in LOG_LEVELS:
        raise invalid_params(f"{META_LOG_LEVEL} is one of {LOG_LEVELS}", id)
    return level


def _progress_listener(token: Raw, channel: ClientBackChannel) -> ProgressListener:
    def tell(params: dict[str, Raw]) -> None:
        progress = encode_object({META_PROGRESS_TOKEN: token, **params})
        channel.send_notification("notifications/progress", progress)

    return tell


def requested_server(request: McpRequest) -> str | None:
    """The server that a client names for a method which the gateway does not know."""
    named = request.meta.get("io.headgate/server")
    try:
        return decode(named, type=str) if named is not None else None
    except (DecodeError, UnicodeDecodeError):
        return None


def _param_headers(headers: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    # Most requests have none, which is found faster in all names at once.
    if _PARAM_HEADER not in b"\n".join(headers):
        return {}
    return {name: value for name, value in headers.items() if name.startswith(_PARAM_HEADER)}
