"""Answers the requests of clients, whatever carried them and whichever era they speak."""

import logging
import secrets
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import DecodeError, Raw

from headgate import __version__
from headgate.catalog.listing import InvalidCursor
from headgate.domain.call import LOCAL, Answer, Request
from headgate.domain.errors import HeadgateError, InternalError, InvalidAnswer
from headgate.front.reply import Reply, failure, result
from headgate.gateway import Gateway
from headgate.wire.envelope import (
    ABSENT,
    Envelope,
    decode_object,
    encode_notification,
    encode_object,
    parse_call,
)
from headgate.wire.eras import (
    META_CAPABILITIES,
    META_PREFIX,
    META_PROGRESS_TOKEN,
    STATELESS_VERSIONS,
    Era,
    negotiate,
)
from headgate.wire.results import (
    COMPLETE,
    NeedsInput,
    for_handshake,
    for_stateless,
    text_failure,
    without_connection_keys,
)
from headgate.wire.violations import INVALID_PARAMS, METHOD_NOT_FOUND, Violation

log = logging.getLogger("headgate.front")

# Sends a notification to the client that made the request, before its answer.
Emit = Callable[[bytes], None]

_CAPABILITIES = b'{"tools":{"listChanged":true}}'
# Until upstreams say more, what was listed may be out of date at once, and is the caller's own.
_CACHING = b'"ttlMs":0,"cacheScope":"private"'
# Objects that are known to have no more than brackets around other people's bytes.
_EMPTY = b"{}"


class _Initialize(msgspec.Struct):
    protocolVersion: str  # noqa: N815 (the protocol's spelling)
    capabilities: Raw = ABSENT
    clientInfo: Raw = ABSENT  # noqa: N815 (the protocol's spelling)


class _ListParams(msgspec.Struct):
    cursor: str | None = None


class Answers:
    """What the gateway says to a client."""

    def __init__(self, gateway: Gateway, name: str, before_listing: Callable[[], Awaitable[None]]) -> None:
        self._gateway = gateway
        self._info = msgspec.json.encode({"name": name, "version": __version__})
        self._before_listing = before_listing

    async def answer(self, envelope: Envelope, era: Era, emit: Emit) -> Reply:
        """The reply to one request; raises Violation when it breaks the protocol."""
        method = envelope.method
        if method == "tools/call":
            return await self._call(envelope, era, emit)
        if method == "tools/list":
            return await self._list(envelope, era)
        if method == "ping" and era is Era.HANDSHAKE:
            return result(bytes(envelope.id), _EMPTY)
        if method == "server/discover" and era is Era.STATELESS:
            return result(bytes(envelope.id), self._discovery())
        raise Violation(METHOD_NOT_FOUND, f"Method not found: {method[:200]}", id=bytes(envelope.id))

    async def _call(self, envelope: Envelope, era: Era, emit: Emit) -> Reply:
        id = bytes(envelope.id)
        params, more = parse_call(envelope.params, id)
        meta = _object(params.meta, id) if params.meta else {}
        token = meta.pop(META_PROGRESS_TOKEN, None)
        capabilities = meta.get(META_CAPABILITIES, ABSENT)
        if era is Era.STATELESS:
            meta = {key: value for key, value in meta.items() if not key.startswith(META_PREFIX)}
        request = Request(
            caller=LOCAL,
            tool=params.name,
            arguments=bytes(params.arguments),
            meta=meta,
            more=more,
            capabilities=bytes(capabilities),
            on_progress=_progress(token, emit) if token is not None else None,
        )
        return _shown(id, params.name, await self._carried(request), era)

    async def _carried(self, request: Request) -> Answer:
        try:
            return await self._gateway.call(request)
        except HeadgateError as error:
            return Answer(failed(error))
        except Exception:
            entry = secrets.token_hex(6)
            log.exception("internal error", extra={"entry": entry, "tool": request.tool[:200]})
            return Answer(failed(InternalError(entry)))

    async def _list(self, envelope: Envelope, era: Era) -> Reply:
        id = bytes(envelope.id)
        await self._before_listing()
        try:
            params = msgspec.json.decode(envelope.params or _EMPTY, type=_ListParams)
            members = self._gateway.list_tools(LOCAL, params.cursor, era)
        except (DecodeError, InvalidCursor) as error:
            raise Violation(INVALID_PARAMS, f"Invalid params: {error}", id=id) from error
        if era is Era.HANDSHAKE:
            return result(id, b"{" + members + b"}")
        return result(id, b"{" + COMPLETE + b"," + _CACHING + b"," + members + b"}")

    def initialize(self, envelope: Envelope) -> tuple[str, Reply]:
        """The agreed version, and the reply that says so; raises Violation."""
        id = bytes(envelope.id)
        try:
            params = msgspec.json.decode(envelope.params or _EMPTY, type=_Initialize)
        except DecodeError as error:
            raise Violation(INVALID_PARAMS, f"Invalid params: {error}", id=id) from error
        version = negotiate(params.protocolVersion)
        greeting = b'{"protocolVersion":"%s","capabilities":%s,"serverInfo":%s}' % (
            version.encode(),
            _CAPABILITIES,
            self._info,
        )
        return version, result(id, greeting)

    def _discovery(self) -> bytes:
        return b'{%s,%s,"supportedVersions":%s,"capabilities":%s,"_meta":{"%sserverInfo":%s}}' % (
            COMPLETE,
            _CACHING,
            msgspec.json.encode(STATELESS_VERSIONS),
            _CAPABILITIES,
            META_PREFIX.encode(),
            self._info,
        )


def _object(raw: Raw, id: bytes) -> dict[str, Raw]:
    try:
        return decode_object(raw)
    except (DecodeError, UnicodeDecodeError) as error:
        raise Violation(INVALID_PARAMS, f"Invalid params: _meta: {error}", id=id) from error


def _progress(token: Raw, emit: Emit) -> Callable[[dict[str, Raw]], None]:
    """Hands progress on under the token that the client chose."""

    def tell(params: dict[str, Raw]) -> None:
        emit(
            encode_notification(
                "notifications/progress", encode_object({META_PROGRESS_TOKEN: token, **params})
            )
        )

    return tell


def _shown(id: bytes, tool: str, answer: Answer, era: Era) -> Reply:
    """The upstream's answer in the words of the client's era."""
    if answer.error:
        return failure(id, answer.error)
    payload = answer.result
    if (payload[:1] if isinstance(payload, bytes) else payload.first) != b"{":
        if not isinstance(payload, bytes):
            payload.close()
        return result(id, failed(InvalidAnswer(tool, "tools/call", "a result that is no object")))
    if not isinstance(payload, bytes):
        # On disk, so not opened; a type too many does no harm, one too few does.
        opening = COMPLETE if era is Era.STATELESS and not answer.typed else b""
        return result(id, payload, opening=opening)
    if era is Era.STATELESS:
        return result(id, without_connection_keys(payload) if answer.typed else for_stateless(payload))
    if not answer.typed:
        return result(id, payload)
    try:
        return result(id, for_handshake(payload))
    except NeedsInput as kind:
        reason = f"a result of the type {kind}, which this client cannot handle"
        return result(id, failed(InvalidAnswer(tool, "tools/call", reason)))


def failed(error: HeadgateError) -> bytes:
    """A tool result that tells the model what went wrong, whether anything happened, and what to do."""
    told: dict[str, object] = {"code": error.code, "effect": error.effect, "retryable": error.retryable}
    if error.retry_after_seconds is not None:
        told["retry_after_seconds"] = round(error.retry_after_seconds, 3)
    told["hint"] = error.hint
    return text_failure(f"{error.message}; {error.hint}.", {"io.headgate/error": told})
