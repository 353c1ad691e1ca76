"""Makes of what a client sent the request that goes through the gate."""

from collections.abc import Mapping

from msgspec import DecodeError, Raw
from msgspec.json import decode

from headgate.domain.call import Answer, Channel, ProgressListener, Request
from headgate.domain.client import client_name
from headgate.domain.profile import PLAIN, profile_of
from headgate.domain.ticket import FEATURES
from headgate.front.questions import unanswered
from headgate.front.tickets import take_ticket
from headgate.front.visitor import Visitor
from headgate.wire.envelope import ABSENT, Envelope, decode_object, encode_object, parse_call, parse_params
from headgate.wire.eras import (
    CONNECTION_KEYS,
    META_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROGRESS_TOKEN,
    Era,
)
from headgate.wire.rmcp import spoken
from headgate.wire.violations import INVALID_PARAMS, Violation

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_LOG = "notifications/message"
_PARAM_HEADER = b"mcp-param-"
_EMPTY_BYTES = len(b"{}")


class _OneWay:
    """The way to a client of the stateless era: it cannot be asked, and gets only the log that it wants."""

    def __init__(self, channel: Channel, *, logged: bool) -> None:
        self._channel = channel
        self._logged = logged

    def tell(self, method: str, params: bytes) -> None:
        """Hand on what the client may be told."""
        if self._logged or method != _LOG:
            self._channel.tell(method, params)

    async def ask(self, method: str, params: bytes) -> Answer:
        """No request goes to such a client, whatever carries its own."""
        return unanswered("The client speaks a version without questions of servers")


def tool_call(envelope: Envelope, visitor: Visitor) -> Request:
    """A call of a tool; raises Violation."""
    id = bytes(envelope.id)
    call, more = parse_call(envelope.params, id)
    params = {"arguments": call.arguments, **more} if call.arguments else more
    return _request(envelope.method, call.name, params, call.meta, visitor, id)


def about(envelope: Envelope, visitor: Visitor, member: str) -> Request:
    """A request about what `member` of its params names; raises Violation."""
    id = bytes(envelope.id)
    params = parse_params(envelope.params, id, member)
    meta = params.pop("_meta", ABSENT)
    name = text(params.pop(member, ABSENT), member, id)
    return _request(envelope.method, name, params, meta, visitor, id)


def completion(envelope: Envelope, visitor: Visitor) -> Request:
    """A request for values of an argument; raises Violation."""
    id = bytes(envelope.id)
    params = parse_params(envelope.params, id, "ref")
    meta = params.pop("_meta", ABSENT)
    ref = parse_params(params.get("ref", ABSENT), id, "name", "uri")
    kind = text(ref.get("type", ABSENT), "ref.type", id)
    member = {"ref/prompt": "name", "ref/resource": "uri"}.get(kind)
    if member is None:
        raise Violation(INVALID_PARAMS, "Invalid params: ref.type is ref/prompt or ref/resource", id=id)
    name = text(ref.get(member, ABSENT), f"ref.{member}", id)
    return _request(envelope.method, name, params, meta, visitor, id)


def anything(envelope: Envelope, visitor: Visitor) -> Request:
    """A request of which only its sender and its server know what it means; raises Violation."""
    id = bytes(envelope.id)
    params = parse_params(envelope.params, id)
    meta = params.pop("_meta", ABSENT)
    return _request(envelope.method, "", params, meta, visitor, id)


def text(value: Raw, what: str, id: bytes) -> str:
    """A member of params that must be a text; raises Violation."""
    try:
        found = decode(value or b"null", type=str)
    except (DecodeError, UnicodeDecodeError) as error:
        raise Violation(INVALID_PARAMS, f"Invalid params: {what} must be a text", id=id) from error
    if not found:
        raise Violation(INVALID_PARAMS, f"Invalid params: {what} is empty", id=id)
    return found


def _request(
    method: str, name: str, params: dict[str, Raw], raw_meta: Raw, visitor: Visitor, id: bytes
) -> Request:
    if visitor.meta is not None:
        meta = dict(visitor.meta)
    else:
        meta = _object(raw_meta, id) if raw_meta else {}
    token = meta.pop(META_PROGRESS_TOKEN, None) if meta else None
    channel = visitor.channel
    on_progress = _progress(token, channel) if token is not None else None
    if visitor.era is Era.HANDSHAKE:
        features = visitor.features
        if meta and META_CAPABILITIES in meta:
            features = _declared_late(meta) or features
        return Request(
            caller=visitor.caller,
            method=method,
            name=name,
            params=params,
            meta=meta,
            profile=visitor.profile,
            client=visitor.client,
            listing=visitor.listing,
            owner=visitor.owner,
            channel=channel,
            log_level=visitor.standing.log_level if visitor.standing is not None else "",
            on_progress=on_progress,
            on_pause=visitor.on_pause,
            ticket=take_ticket(meta, visitor.key_header, features, id),
        )
    level = _level(meta.get(META_LOG_LEVEL, ABSENT), id)
    capabilities = bytes(meta.get(META_CAPABILITIES, b""))
    # Before `_meta` is copied, out of which it takes what is only for the gateway.
    features = spoken(capabilities, FEATURES) if len(capabilities) > _EMPTY_BYTES else visitor.features
    ticket = take_ticket(meta, visitor.key_header, features, id)
    return Request(
        caller=visitor.caller,
        method=method,
        name=name,
        params=params,
        meta={key: value for key, value in meta.items() if key not in CONNECTION_KEYS},
        profile=profile_of(capabilities) if capabilities != b"{}" else PLAIN,
        client=client_name(bytes(meta.get(META_CLIENT_INFO, b""))),
        listing=visitor.listing,
        connection=visitor.connection,
        channel=_OneWay(channel, logged=bool(level)),
        log_level=level,
        headers=_param_headers(visitor.headers) if visitor.headers else None,
        on_progress=on_progress,
        ticket=ticket,
    )


def _declared_late(meta: dict[str, Raw]) -> frozenset[str]:
    """The features of rmcp that a request declares for itself, which is taken out of its `_meta`.

    A program that wraps a client whose handshake is over has no other place to declare them.
    """
    features = spoken(bytes(meta[META_CAPABILITIES]), FEATURES)
    if features:
        del meta[META_CAPABILITIES]
    return features


def _object(raw: Raw, id: bytes) -> dict[str, Raw]:
    try:
        return decode_object(raw)
    except (DecodeError, UnicodeDecodeError) as error:
        raise Violation(INVALID_PARAMS, f"Invalid params: _meta: {error}", id=id) from error


def _level(raw: Raw, id: bytes) -> str:
    if not raw:
        return ""
    level = text(raw, META_LOG_LEVEL, id)
    if level not in LEVELS:
        raise Violation(INVALID_PARAMS, f"Invalid params: {META_LOG_LEVEL} is one of {LEVELS}", id=id)
    return level


def _progress(token: Raw, channel: Channel) -> ProgressListener:
    """Hands progress on under the token that the client chose."""

    def tell(params: dict[str, Raw]) -> None:
        channel.tell("notifications/progress", encode_object({META_PROGRESS_TOKEN: token, **params}))

    return tell


def server_named(request: Request) -> str | None:
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
