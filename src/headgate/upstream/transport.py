"""The transport interface: a request on its way to a server, and the Protocol of every transport."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from headgate.domain.mcp_request import McpRequest, McpResponse
from headgate.upstream.message_assembly import MessageLimits


class OutgoingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request on its way to an upstream."""

    method: str
    params: bytes
    # What an error calls it: the tool, or the method.
    what: str
    # The tool's own name, for the headers of the stateless era.
    name: str = ""
    timeout_seconds: float
    max_timeout_seconds: float
    # Names it in what the upstream says about its progress.
    token: int = 0
    # What a client asked for, where this is made for one.
    request: McpRequest | None = None
    # Header lines of its own, for the stateless era.
    headers: bytes = b""
    # The header line that carries its key, wherever there are headers.
    idempotency_header: bytes = b""
    # Told the answer that comes after it was given up, and for how long after it was sent that still counts.
    on_late: Callable[[McpResponse], None] | None = None
    late_seconds: float = 0.0
    # Whether an answer that is not UTF-8 throughout is taken: whoever asked looks at each part of it.
    accepts_invalid_utf8: bool = False


class SendAttempt:
    """A request about to leave; `begun` tells whether any of it may have."""

    __slots__ = ("begun", "outgoing")

    def __init__(self, outgoing: OutgoingRequest) -> None:
        self.outgoing = outgoing
        self.begun = False


class UpstreamSessionExpired(Exception):
    """The upstream forgot our session before it looked at the request; nothing happened."""


class UpstreamTransport(Protocol):
    """A connection that answers requests until it is lost."""

    @property
    def pid(self) -> int | None:
        """The child process, if there is one."""

    @property
    def limits(self) -> MessageLimits | None:
        """How large its messages may get, and where they are kept; None where nothing is kept."""

    def round_trip(self, outgoing: OutgoingRequest) -> Awaitable[McpResponse]:
        """The answer; raises UpstreamError, or SessionGone."""

    async def send_notification(self, message: bytes) -> None:
        """Send a notification."""

    def set_protocol_version(self, version: str) -> None:
        """From now on speak this version of the protocol."""

    async def wait_lost(self) -> str:
        """Wait until the connection is of no use any more, and say why."""
