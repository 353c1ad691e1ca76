"""Negotiates the protocol version with a server, and keeps what the server declares about itself."""

import asyncio
import logging
from functools import cached_property
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate import __version__
from headgate.catalog.capabilities import shortened
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.delivery_request import FEATURES
from headgate.domain.errors import GatewayLoop, InvalidUpstreamResponse
from headgate.domain.gateway_chain import CLIENT_NAME, META_LOOP, gateways_in_meta
from headgate.domain.item import ItemKind
from headgate.domain.mcp_request import McpResponse
from headgate.domain.payload import payload_size
from headgate.domain.server_spec import ServerSpec
from headgate.protocol.jsonrpc import decode_object, encode_notification, encode_object
from headgate.protocol.jsonrpc_errors import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from headgate.protocol.protocol_version import (
    HANDSHAKE_VERSIONS,
    LATEST_HANDSHAKE,
    LATEST_STATELESS,
    META_CAPABILITIES,
    META_CLIENT_INFO,
    META_VERSION,
    STATELESS_VERSIONS,
    Era,
    era_of,
)
from headgate.protocol.rmcp import (
    META,
    meta_names,
    shared_features,
    with_rmcp_capability,
    without_rmcp_capability,
)
from headgate.upstream.errors import UpstreamRequestRefused, VersionMismatch
from headgate.upstream.message_assembly import discard_payload, payload_bytes
from headgate.upstream.transport import OutgoingRequest, UpstreamTransport, gateway_request

log = logging.getLogger("headgate.upstream")

# Longer instructions of a server are cut; real servers need a few thousand characters.
_LONGEST_INSTRUCTIONS = 16_384
# The same limit applies to what a client declares.
_MOST_CAPABILITY_BYTES = 16 * 1024
# A server of the handshake era that ignores `server/discover` gets `initialize` after this long.
_SILENCE_SECONDS = 5.0
# Errors that only a server of the stateless era gives: `initialize` would not help.
_STATELESS_ERRORS = (HEADER_MISMATCH, MISSING_CAPABILITY)
# A larger handshake is refused; a real one needs a few kilobytes.
_MOST_BYTES = 8 * 1024 * 1024
CLIENT_INFO = msgspec.json.encode({"name": CLIENT_NAME, "version": __version__})


class NegotiationResult(msgspec.Struct, frozen=True, dict=True):
    """The negotiated version, and the capabilities and instructions of the server."""

    version: str
    capabilities: bytes = b"{}"
    instructions: str = ""
    # The features of rmcp that both sides have; empty for a server that does not speak it.
    rmcp: frozenset[str] = frozenset()
    # The `_meta` keys of rmcp that the server reads.
    rmcp_names: tuple[str, ...] = (META,)
    # The instances of gateways behind it, itself included; empty if it is no gateway.
    gateways: frozenset[str] = frozenset()

    @cached_property
    def era(self) -> Era:
        return era_of(self.version)

    def offers(self, kind: ItemKind) -> bool:
        """Whether it lists that kind; a server that declares nothing is asked for tools."""
        if kind is ItemKind.TOOLS and not self._declared:
            return True
        return isinstance(self._declared.get(kind.capability), dict)

    def notifies_list_changed(self, capability: str) -> bool:
        return self._declares(capability, "listChanged")

    @property
    def supports_subscribe(self) -> bool:
        """Whether it notifies changes of single resources."""
        return self._declares("resources", "subscribe")

    @property
    def supports_logging(self) -> bool:
        return isinstance(self._declared.get("logging"), dict)

    def _declares(self, capability: str, feature: str) -> bool:
        declared = self._declared.get(capability)
        return isinstance(declared, dict) and declared.get(feature) is True

    @cached_property
    def _declared(self) -> dict[str, Any]:
        try:
            return msgspec.json.decode(self.capabilities, type=dict[str, Any])
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return {}


def connection_meta(version: str, capabilities: bytes = b"") -> dict[str, Raw]:
    return {
        META_VERSION: Raw(msgspec.json.encode(version)),
        META_CLIENT_INFO: Raw(CLIENT_INFO),
        META_CAPABILITIES: Raw(capabilities or b"{}"),
    }


class _HandshakeTooLarge(ValueError):
    """The result of a handshake is larger than is read."""


class _HandshakeError(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: Raw = Raw(b"")

    @property
    def text(self) -> str:
        return f"the error {self.code} {self.message[:200]}"


class _SupportedVersions(msgspec.Struct):
    supported: list[str] = []


class _Declaration(msgspec.Struct, rename={"meta": "_meta"}):
    capabilities: Raw = Raw(b"{}")
    instructions: str | None = None
    meta: Raw = Raw(b"")

    def negotiated(self, version: str, server: str) -> NegotiationResult:
        capabilities, instructions = bytes(self.capabilities), self.instructions or ""
        return negotiation_result_of(version, capabilities, instructions, bytes(self.meta), server)


class _DiscoverResult(_Declaration, kw_only=True):
    supportedVersions: list[str]  # noqa: N815 (the protocol's spelling)


class _InitializeResult(_Declaration, kw_only=True):
    protocolVersion: str  # noqa: N815 (the protocol's spelling)


async def negotiate_protocol(
    spec: ServerSpec,
    transport: UpstreamTransport,
    remembered: str | None,
    profile: ClientProfile = PLAIN_PROFILE,
) -> NegotiationResult:
    """Negotiate a version; raises UpstreamError. `remembered` is the version of the last connection.

    The capabilities of the profile are declared to a server of the handshake era.
    """
    if remembered in HANDSHAKE_VERSIONS:
        negotiated = await _initialize(spec, transport, profile)
    else:
        negotiated = await _probe(spec, transport)
    transport.set_protocol_version(negotiated.version)
    if negotiated.version in HANDSHAKE_VERSIONS:
        await transport.send_notification(encode_notification("notifications/initialized"))
    return negotiated


async def _probe(spec: ServerSpec, transport: UpstreamTransport) -> NegotiationResult:
    """Try `server/discover`, and `initialize` if no answer of the stateless era comes."""
    discovery = asyncio.ensure_future(transport.round_trip(_discover_request(spec, LATEST_STATELESS)))
    try:
        done, _ = await asyncio.wait({discovery}, timeout=_SILENCE_SECONDS)
        if done:
            return await _follow_discover_answer(spec, transport, _answer_or_unknown(discovery))
        # A slow server may still answer `server/discover`; the first answer decides.
        initialization = asyncio.ensure_future(_initialize(spec, transport))
        try:
            await asyncio.wait({discovery, initialization}, return_when=asyncio.FIRST_COMPLETED)
            if discovery.done():
                negotiated = _discovered(spec, _answer_or_unknown(discovery))
                if negotiated is not None:
                    return negotiated
            return await initialization
        finally:
            initialization.cancel()
    finally:
        discovery.cancel()


def _answer_or_unknown(discovery: "asyncio.Future[McpResponse]") -> McpResponse:
    """The answer to `server/discover`; an unreadable or refused one counts as an unknown method."""
    try:
        return discovery.result()
    except (InvalidUpstreamResponse, UpstreamRequestRefused):
        return McpResponse(error=b"{}")


async def _follow_discover_answer(
    spec: ServerSpec, transport: UpstreamTransport, answer: McpResponse
) -> NegotiationResult:
    negotiated = _discovered(spec, answer)
    if negotiated is not None:
        return negotiated
    error = _error(answer)
    _refuse_loop(spec, error)
    if error.code in _STATELESS_ERRORS:
        raise InvalidUpstreamResponse(spec.name, "server/discover", error.text)
    if error.code == UNSUPPORTED_VERSION:
        supported = _supported(error.data)
        for version in STATELESS_VERSIONS:
            if version in supported:
                again = _discovered(spec, await transport.round_trip(_discover_request(spec, version)))
                if again is not None:
                    return again
        if supported and not set(supported) & set(HANDSHAKE_VERSIONS):
            raise VersionMismatch(spec.name, ", ".join(supported)[:200])
    return await _initialize(spec, transport)


def _discover_request(spec: ServerSpec, version: str) -> OutgoingRequest:
    # A server that speaks rmcp declares it in its answer.
    meta = connection_meta(version, with_rmcp_capability(PLAIN_PROFILE.capabilities, FEATURES))
    params = encode_object({"_meta": Raw(encode_object(meta))})
    return gateway_request("server/discover", params, spec.start_timeout_seconds, accepts_invalid_utf8=True)


def _discovered(spec: ServerSpec, answer: McpResponse) -> NegotiationResult | None:
    """What a stateless server declares; None if this is not its answer."""
    if answer.error:
        return None
    try:
        found = msgspec.json.decode(_text(answer), type=_DiscoverResult)
    except (DecodeError, UnicodeDecodeError, _HandshakeTooLarge):
        return None
    agreed = [version for version in STATELESS_VERSIONS if version in found.supportedVersions]
    return found.negotiated(agreed[-1], spec.name) if agreed else None


def _text(answer: McpResponse) -> bytes:
    """The result with invalid UTF-8 replaced; raises _HandshakeTooLarge."""
    size = payload_size(answer.result)
    if size > _MOST_BYTES:
        discard_payload(answer.result)
        raise _HandshakeTooLarge(f"{size // 2**20} MiB")
    result = payload_bytes(answer.result)
    return result if result.isascii() else result.decode(errors="replace").encode()


def _error(answer: McpResponse) -> _HandshakeError:
    try:
        return msgspec.json.decode(answer.error or b"{}", type=_HandshakeError)
    except (DecodeError, UnicodeDecodeError):
        return _HandshakeError()


def _refuse_loop(spec: ServerSpec, error: _HandshakeError) -> None:
    """Raises GatewayLoop if the other side is a gateway that has recognised itself."""
    if META_LOOP.encode() in bytes(error.data):
        raise GatewayLoop(spec.name)


def _supported(data: Raw) -> list[str]:
    try:
        return msgspec.json.decode(data, type=_SupportedVersions).supported
    except (DecodeError, UnicodeDecodeError):
        return []


async def _initialize(
    spec: ServerSpec, transport: UpstreamTransport, profile: ClientProfile = PLAIN_PROFILE
) -> NegotiationResult:
    params = b'{"protocolVersion":"%s","capabilities":%s,"clientInfo":%s}' % (
        LATEST_HANDSHAKE.encode(),
        with_rmcp_capability(profile.capabilities, FEATURES),
        CLIENT_INFO,
    )
    seconds = spec.start_timeout_seconds
    answer = await transport.round_trip(
        gateway_request("initialize", params, seconds, accepts_invalid_utf8=True)
    )
    error = _error(answer)
    _refuse_loop(spec, error)
    if answer.error and error.code == UNSUPPORTED_VERSION:
        # It answered `server/discover` after all, and the connection is of the stateless era now.
        negotiated = _discovered(spec, await transport.round_trip(_discover_request(spec, LATEST_STATELESS)))
        if negotiated is not None:
            return negotiated
        raise VersionMismatch(spec.name, ", ".join(_supported(error.data))[:200] or "an unknown version")
    if answer.error:
        raise InvalidUpstreamResponse(spec.name, "initialize", error.text)
    try:
        found = msgspec.json.decode(_text(answer), type=_InitializeResult)
    except (DecodeError, UnicodeDecodeError, _HandshakeTooLarge) as problem:
        raise InvalidUpstreamResponse(spec.name, "initialize", f"no handshake ({problem})") from problem
    if found.protocolVersion not in HANDSHAKE_VERSIONS:
        raise VersionMismatch(spec.name, found.protocolVersion[:200])
    return found.negotiated(found.protocolVersion, spec.name)


def negotiation_result_of(
    version: str, capabilities: bytes, instructions: str, meta: bytes = b"", server: str = ""
) -> NegotiationResult:
    """What a server declares, within limits."""
    # rmcp is kept apart, because it ends at the gateway.
    if len(instructions) > _LONGEST_INSTRUCTIONS:
        log.warning("instructions cut", extra={"server": server, "characters": len(instructions)})
        instructions = shortened(instructions, _LONGEST_INSTRUCTIONS)
    return NegotiationResult(
        version,
        _bounded_capabilities(without_rmcp_capability(capabilities), server),
        instructions,
        shared_features(capabilities, FEATURES),
        meta_names(capabilities),
        gateways_in_meta(meta),
    )


def _bounded_capabilities(capabilities: bytes, server: str) -> bytes:
    """The members that fit, the smallest first."""
    if len(capabilities) <= _MOST_CAPABILITY_BYTES:
        return capabilities
    log.warning("capabilities cut", extra={"server": server, "bytes": len(capabilities)})
    try:
        members = decode_object(capabilities)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return b"{}"
    sizes = {key: len(key.encode()) + len(value) + 4 for key, value in members.items()}
    room, kept = _MOST_CAPABILITY_BYTES - 2, set()
    for key in sorted(sizes, key=lambda one: sizes[one]):
        room -= sizes[key]
        if room < 0:
            break
        kept.add(key)
    return encode_object({key: value for key, value in members.items() if key in kept})
