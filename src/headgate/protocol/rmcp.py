"""rmcp: the capability and the `_meta.rmcp` delivery metadata that two peers exchange beside a call."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import DecodeError, Raw, Struct, ValidationError

from headgate.protocol.message_meta import with_edited_meta

VERSION: Final = "0.1.0"
META: Final = "rmcp"
# The key before it was renamed.
META_ALIAS: Final = "mcp_tx"
CHUNK_METHOD: Final = "rmcp/chunk"
DONE_METHOD: Final = "rmcp/chunk_done"
# Codes of failures that a retry may avoid.
RETRYABLE: Final = frozenset(
    {
        "CONNECTION_ERROR",
        "TIMEOUT",
        "NETWORK_ERROR",
        "TEMPORARY_FAILURE",
        "RESOURCE_EXHAUSTED",
        "RATE_LIMIT",
        "SERVICE_UNAVAILABLE",
    }
)
_VERSION_TEXT = re.compile(r"([0-9]{1,9})\.[0-9]{1,9}(?:\.[0-9]{1,9})?(?:[-+][!-~]{1,64})?")
_MAJOR = VERSION.partition(".")[0]
# A larger declaration is ignored.
_MOST_BYTES = 16 * 1024


class RmcpRequestMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `_meta.rmcp` of a request; None is a missing member."""

    version: str | None = None
    request_id: str | None = None
    transaction_id: str | None = None
    sequence: int | None = None
    idempotency_key: str | None = None
    on_doubt: str | None = None
    expect_ack: bool | None = None
    retry_count: int | None = None
    timeout_ms: int | None = None
    timestamp: str | None = None


# The allowed values of each member.
_ALLOWED: Final = {
    **dict.fromkeys(("request_id", "transaction_id", "idempotency_key", "timestamp"), "a text"),
    **dict.fromkeys(("sequence", "retry_count", "timeout_ms"), "a whole number"),
    "version": f"a text such as {VERSION}",
    "on_doubt": 'the text "retry"',
    "expect_ack": "true or false",
}


class RmcpTransfer(Struct, frozen=True, kw_only=True):
    """A result that is fetched in chunks."""

    transfer_id: str
    size: int
    chunk_size: int
    total: int
    sha256: str


class RmcpChunk(Struct, frozen=True, kw_only=True):
    """One chunk of a result: its bytes in base64, and the hash of the bytes."""

    transfer_id: str
    index: int
    total: int
    sha256: str
    data: str


class RmcpResponseMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `_meta.rmcp` of an answer; None is a missing member."""

    ack: bool | None = None
    processed: bool | None = None
    duplicate: bool | None = None
    request_id: str | None = None
    attempts: int | None = None
    # One of completed, failed and timeout.
    final_status: str | None = None
    error_code: str | None = None
    chunked: RmcpTransfer | None = None


NO_RESPONSE_META: Final = RmcpResponseMeta()


class _RmcpCapability(Struct):
    version: str
    features: list[str] = []


class _ExperimentalCapabilities(Struct):
    # Each is decoded by itself: an invalid one does not hide the other.
    rmcp: Raw = Raw(b"null")
    mcp_tx: Raw = Raw(b"null")


class _DeclaredCapabilities(Struct):
    experimental: _ExperimentalCapabilities | None = None


# Capabilities of a peer.


def shared_features(capabilities: bytes, ours: Sequence[str]) -> frozenset[str]:
    """The features that a peer with these capabilities shares; empty if it does not speak rmcp."""
    found = _declared(capabilities)
    return frozenset(ours) & frozenset(found[1].features) if found is not None else frozenset()


def meta_names(capabilities: bytes) -> tuple[str, ...]:
    """The `_meta` keys that a peer with these capabilities reads."""
    # A peer that announces only the older name may know only that one, and one that follows the current
    # specification reads the other: it is sent the same under both.
    found = _declared(capabilities)
    return (META, META_ALIAS) if found is not None and found[0] == META_ALIAS else (META,)


def _declared(capabilities: bytes) -> tuple[str, _RmcpCapability] | None:
    if (b'"rmcp"' not in capabilities and b'"mcp_tx"' not in capabilities) or len(capabilities) > _MOST_BYTES:
        # Nearly always: it is not parsed.
        return None
    return _capability(capabilities)


@lru_cache(maxsize=256)
def _capability(capabilities: bytes) -> tuple[str, _RmcpCapability] | None:
    """The supported capability and its name; the current name is preferred to the older one."""
    try:
        experimental = msgspec.json.decode(capabilities, type=_DeclaredCapabilities).experimental
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if experimental is None:
        return None
    for name, raw in ((META, experimental.rmcp), (META_ALIAS, experimental.mcp_tx)):
        try:
            found = msgspec.json.decode(raw, type=_RmcpCapability | None)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if found is not None and supports_version(found.version):
            return name, found
    return None


def supports_version(version: str) -> bool:
    """Whether a version is supported: any with the same major number."""
    read = _VERSION_TEXT.fullmatch(version)
    return read is not None and int(read[1]) == int(_MAJOR)


@lru_cache(maxsize=256)
def with_rmcp_capability(
    capabilities: bytes, features: tuple[str, ...], names: tuple[str, ...] = (META,)
) -> bytes:
    """The capabilities with rmcp and these features, under each of the names."""
    try:
        declared = msgspec.json.decode(capabilities or b"{}", type=dict[str, Any])
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return capabilities
    others = declared.get("experimental")
    experimental = {**others} if isinstance(others, dict) else {}
    experimental |= {name: {"version": VERSION, "features": features} for name in names}
    return msgspec.json.encode({**declared, "experimental": experimental})


@lru_cache(maxsize=256)
def without_rmcp_capability(capabilities: bytes) -> bytes:
    """The capabilities without rmcp; the same bytes if they have none."""
    if not any(mark in capabilities for mark in (b'"rmcp"', b'"mcp_tx"', b"\\u")):
        return capabilities
    try:
        declared = msgspec.json.decode(capabilities, type=dict[str, Any])
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return capabilities
    experimental = declared.get("experimental")
    if not isinstance(experimental, dict) or experimental.keys().isdisjoint((META, META_ALIAS)):
        return capabilities
    experimental.pop(META, None)
    experimental.pop(META_ALIAS, None)
    if not experimental:
        del declared["experimental"]
    return msgspec.json.encode(declared)


# Metadata of one call.


def pop_request_meta(meta: dict[str, Raw]) -> RmcpRequestMeta | None:
    """Remove and decode the metadata of a request from its `_meta`; raises ValueError if it is invalid."""
    if not meta:
        return None
    own, alias = meta.pop(META, None), meta.pop(META_ALIAS, None)
    raw = alias if own is None else own
    if raw is None:
        return None
    try:
        asked = msgspec.json.decode(raw, type=RmcpRequestMeta)
        if own is not None and alias is not None and msgspec.json.decode(own) != msgspec.json.decode(alias):
            raise ValueError(f"_meta.{META} and _meta.{META_ALIAS} differ")
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(_invalid_member(META if own is not None else META_ALIAS, error)) from error
    if asked.version is not None and not supports_version(asked.version):
        raise ValueError(f"_meta.{META}.version is {asked.version[:100]!r}, and we speak {VERSION}")
    return asked


def _invalid_member(name: str, error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"_meta.{name} cannot be read"
    member = str(error).partition(" - at `$.")[2].removesuffix("`")
    if member not in _ALLOWED:
        return f"_meta.{name} must be an object"
    return f"_meta.{name}.{member} must be {_ALLOWED[member]}"


def pop_response_meta(meta: dict[str, Raw]) -> RmcpResponseMeta:
    """Remove and decode the metadata of an answer from its `_meta`; an invalid one is empty."""
    own, alias = meta.pop(META, None), meta.pop(META_ALIAS, None)
    raw = alias if own is None else own
    if raw is None:
        return NO_RESPONSE_META
    try:
        return msgspec.json.decode(raw, type=RmcpResponseMeta)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return NO_RESPONSE_META


def without_rmcp_meta(message: bytes) -> bytes:
    """Params or a result without delivery metadata in its `_meta`; the same bytes if it has none."""
    if META.encode() not in message and META_ALIAS.encode() not in message:
        # Nearly always: it is not parsed.
        return message
    return with_edited_meta(message, pop_response_meta)


def encode_rmcp_meta(said: RmcpRequestMeta | RmcpResponseMeta) -> Raw:
    """The metadata as JSON for `_meta`, without missing members."""
    return Raw(msgspec.json.encode(said))
