"""Finds out which era an upstream speaks: the stateless question first, then the old handshake."""

import asyncio

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.call import Answer
from headgate.domain.errors import GatewayLoop, InvalidAnswer, RequestRefused, VersionMismatch
from headgate.domain.federation import META_LOOP
from headgate.domain.payload import size_of
from headgate.domain.profile import PLAIN, Profile
from headgate.domain.server import ServerSpec
from headgate.domain.ticket import FEATURES
from headgate.upstream.greeting import Greeting, greeting_of
from headgate.upstream.link import Link, Outgoing
from headgate.upstream.peer import CLIENT_INFO, connection_meta, contents
from headgate.upstream.spool import discard
from headgate.wire.envelope import encode_notification, encode_object
from headgate.wire.eras import HANDSHAKE_VERSIONS, LATEST_HANDSHAKE, LATEST_STATELESS, STATELESS_VERSIONS
from headgate.wire.rmcp import declaring
from headgate.wire.violations import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION

# A handshake server that ignores what it does not know is asked again in its own words after this long.
_SILENCE_SECONDS = 5.0
# Errors that only a server of the stateless era gives: it must not be taken for an old one.
_STATELESS_ERRORS = (HEADER_MISMATCH, MISSING_CAPABILITY)


# What a server says of itself; a real one needs a few kilobytes.
_MOST_BYTES = 8 * 1024 * 1024


class _TooLong(ValueError):
    """What a server says of itself is more than is read."""


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: Raw = Raw(b"")


class _Versions(msgspec.Struct):
    supported: list[str] = []


class _Discovered(msgspec.Struct, rename={"meta": "_meta"}):
    supportedVersions: list[str]  # noqa: N815 (the protocol's spelling)
    capabilities: Raw = Raw(b"{}")
    instructions: str | None = None
    meta: Raw = Raw(b"")


class _Initialized(msgspec.Struct, rename={"meta": "_meta"}):
    protocolVersion: str  # noqa: N815 (the protocol's spelling)
    capabilities: Raw = Raw(b"{}")
    instructions: str | None = None
    meta: Raw = Raw(b"")


async def shake_hands(
    spec: ServerSpec, link: Link, remembered: str | None, profile: Profile = PLAIN
) -> Greeting:
    """Agree on a version; raises UpstreamError. `remembered` is what was agreed the last time.

    A server of the handshake era is told what clients of that profile can do.
    """
    if remembered in HANDSHAKE_VERSIONS:
        greeting = await _initialize(spec, link, profile)
    else:
        greeting = await _probe(spec, link)
    link.adopt(greeting.version)
    if greeting.version in HANDSHAKE_VERSIONS:
        await link.notify(encode_notification("notifications/initialized"))
    return greeting


async def _probe(spec: ServerSpec, link: Link) -> Greeting:
    """Ask in the words of the stateless era, and when no answer of that era comes, in the old ones."""
    asked = asyncio.ensure_future(link.request(_discover(spec, LATEST_STATELESS)))
    try:
        done, _ = await asyncio.wait({asked}, timeout=_SILENCE_SECONDS)
        if done:
            return await _judge(spec, link, _understood(asked))
        # A slow starter may still answer the first question; whichever is answered first decides.
        old = asyncio.ensure_future(_initialize(spec, link))
        try:
            await asyncio.wait({asked, old}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                greeting = _discovered(spec, _understood(asked))
                if greeting is not None:
                    return greeting
            return await old
        finally:
            old.cancel()
    finally:
        asked.cancel()


def _understood(asked: "asyncio.Future[Answer]") -> Answer:
    """The answer to the first question; what cannot be read, or was refused, is what an old server says."""
    try:
        return asked.result()
    except (InvalidAnswer, RequestRefused):
        return Answer(error=b"{}")


async def _judge(spec: ServerSpec, link: Link, answer: Answer) -> Greeting:
    greeting = _discovered(spec, answer)
    if greeting is not None:
        return greeting
    error = _error(answer)
    _refuse_loop(spec, error)
    if error.code in _STATELESS_ERRORS:
        raise InvalidAnswer(spec.name, "server/discover", f"the error {error.code} {error.message[:200]}")
    if error.code == UNSUPPORTED_VERSION:
        supported = _supported(error.data)
        for version in STATELESS_VERSIONS:
            if version in supported:
                again = _discovered(spec, await link.request(_discover(spec, version)))
                if again is not None:
                    return again
        if supported and not set(supported) & set(HANDSHAKE_VERSIONS):
            raise VersionMismatch(spec.name, ", ".join(supported)[:200])
    return await _initialize(spec, link)


def _discover(spec: ServerSpec, version: str) -> Outgoing:
    # Whoever speaks rmcp says so in the answer, and hears of it from then on.
    meta = connection_meta(version, declaring(PLAIN.capabilities, FEATURES))
    params = encode_object({"_meta": Raw(encode_object(meta))})
    return _outgoing(spec, "server/discover", params)


def _outgoing(spec: ServerSpec, method: str, params: bytes) -> Outgoing:
    seconds = spec.start_timeout_seconds
    return Outgoing(
        method=method,
        params=params,
        what=method,
        timeout_seconds=seconds,
        max_timeout_seconds=seconds,
        accepts_invalid_utf8=True,
    )


def _discovered(spec: ServerSpec, answer: Answer) -> Greeting | None:
    """What a stateless server says about itself; None when this is not its answer."""
    if answer.error:
        return None
    try:
        found = msgspec.json.decode(_text(answer), type=_Discovered)
    except (DecodeError, UnicodeDecodeError, _TooLong):
        return None
    agreed = [version for version in STATELESS_VERSIONS if version in found.supportedVersions]
    if not agreed:
        return None
    instructions = found.instructions or ""
    return greeting_of(agreed[-1], bytes(found.capabilities), instructions, bytes(found.meta), spec.name)


def _text(answer: Answer) -> bytes:
    """A result that is UTF-8: of a bad byte in the instructions only that byte is lost; raises _TooLong."""
    size = size_of(answer.result)
    if size > _MOST_BYTES:
        discard(answer.result)
        raise _TooLong(f"{size // 2**20} MiB")
    result = contents(answer.result)
    return result if result.isascii() else result.decode(errors="replace").encode()


def _error(answer: Answer) -> _Error:
    try:
        return msgspec.json.decode(answer.error or b"{}", type=_Error)
    except (DecodeError, UnicodeDecodeError):
        return _Error()


def _refuse_loop(spec: ServerSpec, error: _Error) -> None:
    """Raises GatewayLoop where the other side is a gateway that has recognised itself."""
    if META_LOOP.encode() in bytes(error.data):
        raise GatewayLoop(spec.name)


def _supported(data: Raw) -> list[str]:
    try:
        return msgspec.json.decode(data, type=_Versions).supported
    except (DecodeError, UnicodeDecodeError):
        return []


async def _initialize(spec: ServerSpec, link: Link, profile: Profile = PLAIN) -> Greeting:
    params = b'{"protocolVersion":"%s","capabilities":%s,"clientInfo":%s}' % (
        LATEST_HANDSHAKE.encode(),
        declaring(profile.capabilities, FEATURES),
        CLIENT_INFO,
    )
    answer = await link.request(_outgoing(spec, "initialize", params))
    error = _error(answer)
    _refuse_loop(spec, error)
    if answer.error and error.code == UNSUPPORTED_VERSION:
        # It answered the first question after all, and the connection is of the stateless era now.
        greeting = _discovered(spec, await link.request(_discover(spec, LATEST_STATELESS)))
        if greeting is not None:
            return greeting
        raise VersionMismatch(spec.name, ", ".join(_supported(error.data))[:200] or "an unknown version")
    if answer.error:
        raise InvalidAnswer(spec.name, "initialize", f"the error {error.code} {error.message[:200]}")
    try:
        found = msgspec.json.decode(_text(answer), type=_Initialized)
    except (DecodeError, UnicodeDecodeError, _TooLong) as problem:
        raise InvalidAnswer(spec.name, "initialize", f"no handshake ({problem})") from problem
    if found.protocolVersion not in HANDSHAKE_VERSIONS:
        raise VersionMismatch(spec.name, found.protocolVersion[:200])
    instructions = found.instructions or ""
    return greeting_of(
        found.protocolVersion, bytes(found.capabilities), instructions, bytes(found.meta), spec.name
    )
