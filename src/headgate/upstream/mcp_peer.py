"""An MCP server after the handshake: builds requests for its protocol version and cleans its answers."""

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Raw

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.delivery_request import FEATURES
from headgate.domain.errors import (
    Effect,
    HeadgateError,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)
from headgate.domain.item import NAME_PARAM_BY_METHOD
from headgate.domain.mcp_request import DeliveryOptions, McpResponse, UpstreamCall
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.event_loop import BackgroundTasks
from headgate.protocol.jsonrpc import encode_notification, encode_object
from headgate.protocol.mcp_headers import encode_header_value, forwarded_param_headers, param_header_lines
from headgate.protocol.message_meta import (
    SplicedJson,
    UnreadableMeta,
    is_reserved,
    is_reserved_or_connection_key,
    may_be_reserved,
    without_reserved,
    without_reserved_in_error,
    without_reserved_on_disk,
)
from headgate.protocol.protocol_version import META_LOG_LEVEL, META_PREFIX, META_PROGRESS_TOKEN, Era
from headgate.protocol.rmcp import with_rmcp_capability
from headgate.upstream.handshake import NegotiationResult, connection_meta
from headgate.upstream.message_assembly import SpooledValue, discard_payload, unusable_answer
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.rmcp_client import RmcpClient
from headgate.upstream.transport import OutgoingRequest, UpstreamTransport, gateway_request

_TOOL_CALL = "tools/call"
# Opening a larger result takes so long that other clients would notice.
_LARGE_BYTES = 256 * 1024


class McpPeer:
    """One server on one connection, in the era that was negotiated."""

    def __init__(
        self,
        spec: ServerSpec,
        transport: UpstreamTransport,
        negotiated: NegotiationResult,
        router: NotificationRouter | None = None,
    ) -> None:
        """`router` knows which calls on the connection wait for input; None on the main connection."""
        self.spec = spec
        self.router = router
        self.transport = transport
        self.negotiated = negotiated
        self.era = negotiated.era
        # None for nearly every server: it speaks plain MCP.
        self._rmcp_client = (
            RmcpClient(spec, negotiated.rmcp, self.send_gateway_request, transport.limits)
            if negotiated.rmcp
            else None
        )
        # A built-in server is part of the gateway, so its answers may hold keys reserved for the gateway.
        self._foreign = spec.transport is not TransportType.BUILTIN
        # The log level that a server of the handshake era was last sent.
        self._log_level = ""
        self._tokens = itertools.count(1)
        self._late_answers = BackgroundTasks()
        # Whether a client has used it; the server may keep state for that client on the connection.
        self.used_by_client = False

    async def send_client_request(self, call: UpstreamCall) -> McpResponse:
        """The answer to a client's request; raises UpstreamError or UpstreamSessionExpired."""
        request, item, spec = call.request, call.item, self.spec
        token = next(self._tokens)
        self.used_by_client = True
        stateless = self.era is Era.STATELESS
        if request.log_level and not stateless:
            # A failure here happens before the call, so its effect is none.
            try:
                await self.set_log_level(request.log_level)
            except UpstreamError as error:
                if error.effect is Effect.NONE:
                    raise
                reason = f"it did not take the log level ({error.code})"
                raise UpstreamUnreachable(spec.name, reason) from error
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
        options = call.delivery_options
        if options is not None:
            outgoing = self._with_delivery_options(outgoing, options)
            if options.on_send is not None:
                options.on_send()
        if self._rmcp_client is None:
            answer = await self.transport.round_trip(outgoing)
        else:
            answer = await self._round_trip_rmcp(self._rmcp_client, outgoing)
        result = answer.result
        if self._foreign and (not isinstance(result, bytes) or answer.error or may_be_reserved(result)):
            answer = await self._without_reserved_keys(answer, outgoing.what)
        return msgspec.structs.replace(answer, typed=True) if stateless else answer

    async def _round_trip_rmcp(self, rmcp_client: RmcpClient, outgoing: OutgoingRequest) -> McpResponse:
        """The answer with its whole result, within the time of the call; raises UpstreamError."""
        until = asyncio.get_running_loop().time() + outgoing.max_timeout_seconds
        answer = await self.transport.round_trip(outgoing)
        try:
            async with asyncio.timeout_at(until):
                return await rmcp_client.unwrap_answer(answer, outgoing.what)
        except TimeoutError as error:
            raise UpstreamTimeout(self.spec.name, outgoing.what, outgoing.max_timeout_seconds) from error

    async def _without_reserved_keys(self, answer: McpResponse, what: str) -> McpResponse:
        """The answer without `_meta` keys of the gateway; raises InvalidUpstreamResponse if unreadable."""
        # A stateless server names itself in every result, which concerns the gateway alone.
        unwanted = is_reserved_or_connection_key if self.era is Era.STATELESS else is_reserved
        result = answer.result
        try:
            if answer.error:
                return msgspec.structs.replace(answer, error=without_reserved_in_error(answer.error))
            if isinstance(result, bytes) and len(result) <= _LARGE_BYTES:
                result = without_reserved(result)
            elif isinstance(result, bytes):
                result = await asyncio.to_thread(without_reserved, result)
            elif isinstance(result, SplicedJson) or (isinstance(result, SpooledValue) and result.marked):
                result = await asyncio.to_thread(without_reserved_on_disk, result, unwanted)
        except (UnreadableMeta, OSError) as error:
            discard_payload(answer.result)
            raise unusable_answer(self.spec.name, what, error) from error
        return answer if result is answer.result else msgspec.structs.replace(answer, result=result)

    def _with_delivery_options(self, outgoing: OutgoingRequest, options: DeliveryOptions) -> OutgoingRequest:
        """The request with its deadline, key and handler of late answers; raises UpstreamUnavailable."""
        spec, on_late = self.spec, options.on_late_response
        limit, most = spec.timeout_seconds, spec.max_timeout_seconds
        header = b""
        if options.key and options.key_header:
            name = "".join(options.key_header.split()).encode()
            header = name + b": " + encode_header_value(options.key) + b"\r\n"
        if options.deadline is not None:
            left = options.deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise deadline_passed(spec.name)
            limit, most = min(limit, left), min(most, left)
        return msgspec.structs.replace(
            outgoing,
            timeout_seconds=limit,
            max_timeout_seconds=most,
            idempotency_header=header,
            on_late=None if on_late is None else self._late_handler(on_late, outgoing.what),
            late_seconds=spec.max_timeout_seconds,
        )

    def _late_handler(
        self, on_late: Callable[[McpResponse], None], what: str
    ) -> Callable[[McpResponse], None]:
        """Passes a late answer on as one in time would be."""

        async def clean_and_pass_on(answer: McpResponse) -> None:
            # An answer that was not accepted, or that cannot be fetched or read, is none.
            with suppress(HeadgateError):
                if self._rmcp_client is not None:
                    answer = await self._rmcp_client.unwrap_answer(answer, what)
                if self._foreign:
                    answer = await self._without_reserved_keys(answer, what)
                on_late(self._with_era(answer))

        def pass_on(answer: McpResponse) -> None:
            result = answer.result
            is_plain = isinstance(result, bytes) and not answer.error and not may_be_reserved(result)
            if is_plain and self._rmcp_client is None:
                on_late(self._with_era(answer))
            else:
                self._late_answers.start(clean_and_pass_on(answer), name=f"late answer of {self.spec.name}")

        return pass_on

    def _with_era(self, answer: McpResponse) -> McpResponse:
        return msgspec.structs.replace(answer, typed=True) if self.era is Era.STATELESS else answer

    def _params(self, call: UpstreamCall, token: int) -> bytes:
        request, stateless = call.request, self.era is Era.STATELESS
        meta = dict(request.meta)
        if request.on_progress is not None:
            meta[META_PROGRESS_TOKEN] = Raw(b"%d" % token)
        if stateless:
            meta |= connection_meta(self.negotiated.version, self._declared_capabilities(request.profile))
            if request.log_level:
                meta[META_LOG_LEVEL] = Raw(msgspec.json.encode(request.log_level))
        elif meta and request.session is None:
            # Keys of the stateless era, which a server of the handshake era does not know.
            meta = {key: value for key, value in meta.items() if not key.startswith(META_PREFIX)}
        if self._rmcp_client is not None and request.method == _TOOL_CALL:
            meta |= dict.fromkeys(self.negotiated.rmcp_names, self._rmcp_client.request_meta(call))
        parts: list[bytes] = []
        name_param = NAME_PARAM_BY_METHOD.get(request.method)
        if name_param is not None:
            parts.append(b'"%s":%s' % (name_param.encode(), msgspec.json.encode(call.item.name)))
        for key, value in request.params.items():
            parts.append(msgspec.json.encode(key) + b":" + bytes(value))
        if meta:
            parts.append(b'"_meta":' + encode_object(meta))
        return b"{" + b",".join(parts) + b"}"

    def _declared_capabilities(self, profile: ClientProfile) -> bytes:
        """The capabilities of clients of that profile and, for a server that speaks rmcp, rmcp."""
        declared = profile.capabilities
        if self._rmcp_client is None:
            return declared
        return with_rmcp_capability(declared, FEATURES, self.negotiated.rmcp_names)

    async def send_gateway_request(
        self,
        method: str,
        params: dict[str, Raw],
        *,
        seconds: float | None = None,
        profile: ClientProfile = PLAIN_PROFILE,
        accepts_invalid_utf8: bool = False,
    ) -> McpResponse:
        """The answer to a request of the gateway's own; raises UpstreamError or UpstreamSessionExpired."""
        if self.era is Era.STATELESS:
            meta = connection_meta(self.negotiated.version, self._declared_capabilities(profile))
            params = {**params, "_meta": Raw(encode_object(meta))}
        encoded, limit = encode_object(params) if params else b"", seconds or self.spec.timeout_seconds
        outgoing = gateway_request(method, encoded, limit, accepts_invalid_utf8=accepts_invalid_utf8)
        return await self.transport.round_trip(outgoing)

    async def ping(self, seconds: float) -> None:
        """Check that the server answers; raises UpstreamError or UpstreamSessionExpired."""
        method = "server/discover" if self.era is Era.STATELESS else "ping"
        discard_payload((await self.send_gateway_request(method, {}, seconds=seconds)).result)

    async def set_log_level(self, level: str) -> None:
        """Send a server of the handshake era the least log level to report; raises UpstreamError."""
        if level != self._log_level and self.negotiated.supports_logging:
            self._log_level = level
            params = {"level": Raw(msgspec.json.encode(level))}
            discard_payload((await self.send_gateway_request("logging/setLevel", params)).result)

    async def send_notification(self, method: str, params: bytes = b"") -> None:
        """Send a notification; raises UpstreamError."""
        await self.transport.send_notification(encode_notification(method, params))


def deadline_passed(server: str) -> UpstreamUnavailable:
    reason = "the time for the call was over before it was sent"
    return UpstreamUnavailable(server, reason, retry_after_seconds=1.0)


def _param_headers(call: UpstreamCall) -> bytes:
    """The arguments that are repeated as headers, and the client's own headers of that kind."""
    item, headers = call.item, call.request.headers
    lines = b""
    if item.mirrored_parameters:
        lines = param_header_lines(item.mirrored_parameters, bytes(call.request.params.get("arguments", b"")))
    if headers:
        ours = {b"mcp-param-" + mirror.header.lower().encode() for mirror in item.mirrored_parameters}
        lines += forwarded_param_headers({name: value for name, value in headers.items() if name not in ours})
    return lines
