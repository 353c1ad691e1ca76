"""An MCP server after the handshake: builds requests for its protocol version and reads its lists page by
page.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable

import msgspec
from msgspec import DecodeError, Raw

from headgate.catalog.paged_listing import NO_HINT, NOTHING_TO_KEEP, CacheHint, strictest
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.delivery_request import FEATURES
from headgate.domain.errors import (
    Effect,
    InvalidUpstreamResponse,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)
from headgate.domain.gateway_chain import gateways_in_meta
from headgate.domain.item import NAME_PARAM_BY_METHOD, ItemKind
from headgate.domain.mcp_request import DeliveryOptions, McpRequest, McpResponse, UpstreamCall
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.protocol.jsonrpc import encode_notification, encode_object
from headgate.protocol.mcp_headers import encode_header_value, forwarded_param_headers, param_header_lines
from headgate.protocol.protocol_version import (
    META_LOG_LEVEL,
    META_PREFIX,
    META_PROGRESS_TOKEN,
    Era,
)
from headgate.protocol.rmcp import with_rmcp_capability
from headgate.upstream.handshake import NegotiationResult, connection_meta
from headgate.upstream.message_assembly import discard_payload, payload_bytes
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.reserved_meta import ReservedMetaFilter, may_have_reserved
from headgate.upstream.rmcp_client import RmcpClient
from headgate.upstream.transport import OutgoingRequest, UpstreamTransport
from headgate.upstream.upstream_listings import ListPage, read_list_page

log = logging.getLogger("headgate.upstream")

# To cut up a larger page takes so long that others would notice.
_LARGE_BYTES = 256 * 1024
# A listing that has not ended after this many pages goes in circles.
_MOST_PAGES = 1000
_MOST_ITEMS = 100_000
_TOOL_CALL = "tools/call"
FOREVER = 10 * 365 * 86400.0


class ListResult(msgspec.Struct, frozen=True):
    """Everything of one kind that an upstream lists, as it wrote it."""

    definitions: list[bytes]
    hint: CacheHint = NO_HINT
    # The instances of gateways whose things may be among these; none of a server that is no gateway.
    gateways: frozenset[str] = frozenset()


class McpPeer:
    """Speaks with one upstream in its own era."""

    def __init__(
        self,
        spec: ServerSpec,
        transport: UpstreamTransport,
        negotiated: NegotiationResult,
        router: NotificationRouter | None = None,
    ) -> None:
        """`inbox` is that of the link, where somebody asks it which calls wait for input."""
        self.spec = spec
        self.router = router
        self.transport = transport
        self.negotiated = negotiated
        self.era = negotiated.era
        # None for nearly every upstream: plain MCP is all it speaks.
        self._rmcp_client = (
            RmcpClient(spec, negotiated.rmcp, self.send_gateway_request, transport.limits)
            if negotiated.rmcp
            else None
        )
        self._reserved_filter = ReservedMetaFilter(spec.name, stateless=self.era is Era.STATELESS)
        # A built-in server is part of the gateway, and says what the gateway says.
        self._foreign = spec.transport is not TransportType.BUILTIN
        # What an upstream of the handshake era was last told about log messages.
        self._log_level = ""
        self._tokens = itertools.count(1)
        # Whether a client has ever used it; what the upstream keeps of the client is kept with it then.
        self.used_by_client = False

    async def send_client_request(self, call: UpstreamCall) -> McpResponse:
        """Carry a client's request out; raises UpstreamError or SessionGone."""
        request, item, spec = call.request, call.item, self.spec
        token = next(self._tokens)
        self.used_by_client = True
        stateless = self.era is Era.STATELESS
        if request.log_level and not stateless:
            await self._set_log_level_before_call(request.log_level)
        outgoing = OutgoingRequest(
            method=request.method,
            params=self._params(call, token),
            what=item.public_name or request.method,
            name=item.name,
            timeout_seconds=spec.timeout_seconds,
            max_timeout_seconds=spec.max_timeout_seconds,
            token=token,
            request=request,
            headers=_param_headers(call) if stateless else b"",
        )
        if call.delivery_options is not None:
            outgoing = self._with_delivery_options(outgoing, call.delivery_options)
            if call.delivery_options.on_send is not None:
                call.delivery_options.on_send()
        if self._rmcp_client is None:
            answer = await self.transport.round_trip(outgoing)
        else:
            answer = await self._round_trip_rmcp(self._rmcp_client, outgoing)
        if self._foreign and may_have_reserved(answer):
            answer = await self._reserved_filter.strip_reserved(answer, outgoing.what)
        return _with_result_type(answer) if stateless else answer

    async def _round_trip_rmcp(self, rmcp_client: RmcpClient, outgoing: OutgoingRequest) -> McpResponse:
        """The answer with all of its result, within the time that the call has; raises UpstreamError."""
        until = asyncio.get_running_loop().time() + outgoing.max_timeout_seconds
        answer = await self.transport.round_trip(outgoing)
        try:
            async with asyncio.timeout_at(until):
                return await rmcp_client.unwrap_answer(answer, outgoing.what)
        except TimeoutError as error:
            raise UpstreamTimeout(self.spec.name, outgoing.what, outgoing.max_timeout_seconds) from error

    async def _set_log_level_before_call(self, level: str) -> None:
        """What becomes of the level is no reason to believe that the call was sent."""
        try:
            await self.set_log_level(level)
        except UpstreamError as error:
            if error.effect is Effect.NONE:
                raise
            raise UpstreamUnreachable(
                self.spec.name, f"it did not take the log level ({error.code})"
            ) from error

    def _with_delivery_options(
        self, outgoing: OutgoingRequest, delivery_options: DeliveryOptions
    ) -> OutgoingRequest:
        """The request with what delivery asks of it; raises UpstreamUnavailable when its time is over."""
        spec = self.spec
        limit, most = spec.timeout_seconds, spec.max_timeout_seconds
        if delivery_options.deadline is not None:
            left = delivery_options.deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise deadline_passed(spec.name)
            limit, most = min(limit, left), min(most, left)
        on_late = delivery_options.on_late_response
        if on_late is not None and self._foreign:
            on_late = self._reserved_filter.wrap_late_callback(on_late, outgoing.what)
        if on_late is not None and self.era is Era.STATELESS:
            on_late = _late_with_result_type(on_late)
        if on_late is not None and self._rmcp_client is not None:
            on_late = self._rmcp_client.wrap_late_callback(on_late, outgoing.what)
        return msgspec.structs.replace(
            outgoing,
            timeout_seconds=limit,
            max_timeout_seconds=most,
            idempotency_header=_idempotency_header(delivery_options),
            on_late=on_late,
            late_seconds=spec.max_timeout_seconds,
        )

    def _params(self, call: UpstreamCall, token: int) -> bytes:
        request = call.request
        parts: list[bytes] = []
        member = NAME_PARAM_BY_METHOD.get(request.method)
        if member is not None:
            parts.append(b'"%s":%s' % (member.encode(), msgspec.json.encode(call.item.name)))
        for key, value in request.params.items():
            parts.append(msgspec.json.encode(key) + b":" + bytes(value))
        meta = self._meta(request, token)
        if self._rmcp_client is not None and request.method == _TOOL_CALL:
            meta |= dict.fromkeys(self.negotiated.rmcp_names, self._rmcp_client.request_meta(call))
        if meta:
            parts.append(b'"_meta":' + encode_object(meta))
        return b"{" + b",".join(parts) + b"}"

    def _meta(self, request: McpRequest, token: int) -> dict[str, Raw]:
        meta = dict(request.meta)
        if request.on_progress is not None:
            meta[META_PROGRESS_TOKEN] = Raw(b"%d" % token)
        if self.era is Era.STATELESS:
            meta |= connection_meta(self.negotiated.version, self._declared_capabilities(request.profile))
            if request.log_level:
                meta[META_LOG_LEVEL] = Raw(msgspec.json.encode(request.log_level))
        elif request.session is None:
            # What the stateless era says in its own name, an older server does not know.
            meta = {key: value for key, value in meta.items() if not key.startswith(META_PREFIX)}
        return meta

    def _declared_capabilities(self, profile: ClientProfile) -> bytes:
        """What clients of that profile can do and, to a server that speaks rmcp, that we do too."""
        declared = profile.capabilities
        if self._rmcp_client is None:
            return declared
        return with_rmcp_capability(declared, FEATURES, self.negotiated.rmcp_names)

    async def list_all(self, kind: ItemKind, profile: ClientProfile = PLAIN_PROFILE) -> ListResult:
        """Everything of one kind, for clients of that profile; raises UpstreamError or SessionGone."""
        definitions: list[bytes] = []
        hints: list[CacheHint] = []
        cursor: str | None = None
        seen: set[str] = set()
        gateways: frozenset[str] = frozenset()
        if not self.negotiated.offers(kind):
            return ListResult(definitions, NOTHING_TO_KEEP)
        for _ in range(_MOST_PAGES):
            page = await self._list_page(kind, cursor, profile)
            definitions += [bytes(item) for item in page.items]
            hints.append(_cache_hint(page))
            gateways |= gateways_in_meta(page.meta)
            cursor = page.nextCursor
            if not cursor or len(definitions) >= _MOST_ITEMS:
                return ListResult(definitions, strictest(hints), gateways)
            if cursor in seen:
                break
            seen.add(cursor)
        raise InvalidUpstreamResponse(self.spec.name, kind.list_method, "pages that go in circles")

    async def _list_page(self, kind: ItemKind, cursor: str | None, profile: ClientProfile) -> ListPage:
        params = {"cursor": Raw(msgspec.json.encode(cursor))} if cursor else {}
        # One bad byte costs the definition that it is in.
        answer = await self.send_gateway_request(
            kind.list_method, params, profile=profile, accepts_invalid_utf8=True
        )
        if answer.error:
            if kind is ItemKind.TOOLS or cursor:
                reason = f"the error {answer.error[:200].decode(errors='replace')}"
                raise InvalidUpstreamResponse(self.spec.name, kind.list_method, reason)
            # Many servers declare resources and know no templates; what they do have is served.
            log.debug("not listed", extra={"server": self.spec.name, "method": kind.list_method})
            return ListPage()
        result = payload_bytes(answer.result)
        try:
            if len(result) <= _LARGE_BYTES:
                return read_list_page(kind, result)
            return await asyncio.to_thread(read_list_page, kind, result)
        except (DecodeError, ValueError) as error:
            raise InvalidUpstreamResponse(self.spec.name, kind.list_method, f"no list ({error})") from error

    async def send_gateway_request(
        self,
        method: str,
        params: dict[str, Raw],
        *,
        seconds: float | None = None,
        profile: ClientProfile = PLAIN_PROFILE,
        accepts_invalid_utf8: bool = False,
    ) -> McpResponse:
        """A request of the gateway's own; raises UpstreamError or SessionGone."""
        if self.era is Era.STATELESS:
            meta = connection_meta(self.negotiated.version, self._declared_capabilities(profile))
            params = {**params, "_meta": Raw(encode_object(meta))}
        limit = seconds or self.spec.timeout_seconds
        return await self.transport.round_trip(
            OutgoingRequest(
                method=method,
                params=encode_object(params) if params else b"",
                what=method,
                timeout_seconds=limit,
                max_timeout_seconds=limit,
                accepts_invalid_utf8=accepts_invalid_utf8,
            )
        )

    async def ping(self, seconds: float) -> None:
        """Ask whether anybody is there; raises UpstreamError or SessionGone."""
        method = "server/discover" if self.era is Era.STATELESS else "ping"
        discard_payload((await self.send_gateway_request(method, {}, seconds=seconds)).result)

    async def set_log_level(self, level: str) -> None:
        """Tell a server of the handshake era which log messages are wanted; raises UpstreamError."""
        if level != self._log_level and self.negotiated.supports_logging:
            self._log_level = level
            discard_payload(
                (
                    await self.send_gateway_request(
                        "logging/setLevel", {"level": Raw(msgspec.json.encode(level))}
                    )
                ).result
            )

    async def send_notification(self, method: str, params: bytes = b"") -> None:
        """Tell it something; raises UpstreamError."""
        await self.transport.send_notification(encode_notification(method, params))


def deadline_passed(server: str) -> UpstreamUnavailable:
    """The error of a call that nobody waited for any more when it could have been sent."""
    return UpstreamUnavailable(
        server, "the time for the call was over before it was sent", retry_after_seconds=1.0
    )


def _with_result_type(answer: McpResponse) -> McpResponse:
    return msgspec.structs.replace(answer, typed=True)


def _late_with_result_type(on_late: Callable[[McpResponse], None]) -> Callable[[McpResponse], None]:
    return lambda answer: on_late(_with_result_type(answer))


def _idempotency_header(delivery_options: DeliveryOptions) -> bytes:
    if not delivery_options.key or not delivery_options.key_header:
        return b""
    name = "".join(delivery_options.key_header.split())
    return name.encode() + b": " + encode_header_value(delivery_options.key) + b"\r\n"


def _cache_hint(page: ListPage) -> CacheHint:
    """How long a page may be believed and by whom; a server that does not say so means: not at all."""
    milliseconds = page.ttlMs if page.ttlMs is not None and page.ttlMs > 0 else 0
    return CacheHint(int(min(milliseconds, 86_400_000)), page.cacheScope == "public")


def _param_headers(call: UpstreamCall) -> bytes:
    """The arguments that are repeated in headers, and the client's own headers of that kind."""
    item, headers = call.item, call.request.headers
    lines = b""
    if item.mirrored_parameters:
        lines = param_header_lines(item.mirrored_parameters, bytes(call.request.params.get("arguments", b"")))
    if headers:
        ours = {b"mcp-param-" + mirror.header.lower().encode() for mirror in item.mirrored_parameters}
        lines += forwarded_param_headers({name: value for name, value in headers.items() if name not in ours})
    return lines
