"""The transport interface: a request on its way to a server, and the Protocol of every transport."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from headgate.domain.mcp_request import McpRequest, McpResponse
from headgate.upstream.message_assembly import MessageLimits


class OutgoingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request on its way to a server."""

    method: str
    params: bytes
    # The tool or the method, as errors name it.
    what: str
    # The tool's own name, for the headers of the stateless era.
    name: str = ""
    timeout_seconds: float
    max_timeout_seconds: float
    # The progress token; 0 for a request of the gateway's own.
    token: int = 0
    # The client's request that this one serves; None for a request of the gateway's own.
    request: McpRequest | None = None
    # Header lines of its own, for the stateless era.
    headers: bytes = b""
    # The header line with the idempotency key, for transports that have headers.
    idempotency_header: bytes = b""
    # Called with an answer that comes after the caller gave up, until `late_seconds` after it was sent.
    on_late: Callable[[McpResponse], None] | None = None
    late_seconds: float = 0.0
    # Whether the caller checks the encoding of each part of the answer itself.
    accepts_invalid_utf8: bool = False


def gateway_request(
    method: str, params: bytes, seconds: float, *, accepts_invalid_utf8: bool = False
) -> OutgoingRequest:
    """A request of the gateway's own, which progress does not prolong."""
    return OutgoingRequest(
        method=method,
        params=params,
        what=method,
        timeout_seconds=seconds,
        max_timeout_seconds=seconds,
        accepts_invalid_utf8=accepts_invalid_utf8,
    )


class SendAttempt:
    """A request about to be sent; `begun` tells whether any byte of it may have left."""

    __slots__ = ("begun", "outgoing")

    def __init__(self, outgoing: OutgoingRequest) -> None:
        self.outgoing = outgoing
        self.begun = False


class UpstreamSessionExpired(Exception):
    """The server forgot the session before it read the request; nothing happened."""


class UpstreamTransport(Protocol):
    """A connection that answers requests until it is lost."""

    @property
    def pid(self) -> int | None:
        """The child process, if there is one."""

    @property
    def limits(self) -> MessageLimits | None:
        """How large messages may get, and where large ones are stored; None where nothing is stored."""

    def round_trip(self, outgoing: OutgoingRequest, /) -> Awaitable[McpResponse]:
        """Send a request and return its answer; raises UpstreamError or UpstreamSessionExpired."""

    async def send_notification(self, message: bytes) -> None:
        """Send a notification; raises UpstreamError."""

    def set_protocol_version(self, version: str) -> None:
        """Use this version of the protocol from now on."""

    async def wait_lost(self) -> str:
        """Wait until the connection is lost; returns the reason."""
