"""Protocol versions and their two eras: with a handshake and sessions, and stateless."""

from enum import StrEnum


class Era(StrEnum):
    """The rules that a peer follows."""

    HANDSHAKE = "handshake"
    STATELESS = "stateless"


HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSIONS = ("2026-07-28",)
LATEST_HANDSHAKE = HANDSHAKE_VERSIONS[-1]
LATEST_STATELESS = STATELESS_VERSIONS[-1]

META_PREFIX = "io.modelcontextprotocol/"
META_VERSION = META_PREFIX + "protocolVersion"
META_CAPABILITIES = META_PREFIX + "clientCapabilities"
META_CLIENT_INFO = META_PREFIX + "clientInfo"
META_SUBSCRIPTION = META_PREFIX + "subscriptionId"
META_SERVER_INFO = META_PREFIX + "serverInfo"
META_LOG_LEVEL = META_PREFIX + "logLevel"
META_PROGRESS_TOKEN = "progressToken"

# Keys of a peer and its connection, which end at the gateway.
CONNECTION_KEYS = frozenset(
    {META_VERSION, META_CAPABILITIES, META_CLIENT_INFO, META_SERVER_INFO, META_LOG_LEVEL}
)


def era_of(version: str | None) -> Era:
    """The era of a version: handshake for none, stateless for an unknown one."""
    return Era.HANDSHAKE if version is None or version in HANDSHAKE_VERSIONS else Era.STATELESS


def negotiate(requested: str) -> str:
    """The handshake version for a client that requests one."""
    return requested if requested in HANDSHAKE_VERSIONS else LATEST_HANDSHAKE
