"""The client behind a request: its era, capabilities, session preferences and subscription quota."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import Raw

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.errors import ResourceExhausted
from headgate.domain.identity import Identity
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import ClientBackChannel, ClientSession
from headgate.protocol.protocol_version import Era
from headgate.server.reply import Reply

# What a subscription takes besides its URI, in the sets and tables that it is in.
_OVERHEAD_BYTES = 64


class Authenticator(Protocol):
    """Establishes the identity of a client, once for each request over HTTP and once on stdio."""

    def identify_http(self, headers: Mapping[bytes, bytes]) -> Identity:
        """The identity that the headers of a request prove."""

    def identify_stdio(self) -> Identity:
        """The identity of the program at the other end of stdin and stdout."""


class SubscriptionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of resource subscriptions, which live as long as their session."""

    resources: int = 1000
    uri_bytes: int = 8 * 1024
    # Of one client, with what each takes besides its URI.
    client_bytes: int = 512 * 1024
    total_bytes: int = 16 * 1024 * 1024
    # The share of each client that others cannot use up.
    assured_bytes: int = 4 * 1024


SUBSCRIPTION_LIMITS = SubscriptionLimits()


class SubscriptionShare(msgspec.Struct, eq=False):
    """The bytes of one client's subscriptions."""

    bytes: int = 0


class TooManySubscriptions(ResourceExhausted):
    """A client may not subscribe to one more resource; nothing was sent."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"the subscription is refused: {reason}")
        self.hint = hint


class SubscriptionBudget:
    """The bytes of all clients together."""

    def __init__(self, limits: SubscriptionLimits = SUBSCRIPTION_LIMITS) -> None:
        self._limits = limits
        self.bytes = 0

    def reserve(self, share: SubscriptionShare, uri: str) -> None:
        """Count one more subscription; raises TooManySubscriptions, and then nothing is counted."""
        limits, size = self._limits, subscription_bytes(uri)
        if size - _OVERHEAD_BYTES > limits.uri_bytes:
            reason = f"its URI is longer than {limits.uri_bytes} bytes"
            raise TooManySubscriptions(reason, "use a shorter URI")
        if share.bytes + size > limits.client_bytes:
            reason = f"the URIs of one client may take {limits.client_bytes} bytes together"
            raise TooManySubscriptions(reason, "unsubscribe from other resources first")
        if share.bytes + size > limits.assured_bytes and self.bytes + size > limits.total_bytes:
            reason = f"the URIs of all clients take {limits.total_bytes} bytes together"
            raise TooManySubscriptions(reason, "try again later")
        self.add(share, uri)

    def add(self, share: SubscriptionShare, uri: str) -> None:
        """Count a subscription that was allowed before."""
        share.bytes += subscription_bytes(uri)
        self.bytes += subscription_bytes(uri)

    def release(self, share: SubscriptionShare, uri: str) -> None:
        """Count one less, unless the client has given all back meanwhile."""
        size = min(subscription_bytes(uri), share.bytes)
        share.bytes -= size
        self.bytes -= size

    def release_all(self, share: SubscriptionShare) -> None:
        self.bytes -= share.bytes
        share.bytes = 0


def subscription_bytes(uri: str) -> int:
    return _OVERHEAD_BYTES + len(uri.encode(errors="surrogatepass"))


class SessionPreferences(msgspec.Struct):
    """Log level and subscriptions of a session of the handshake era."""

    # The lowest level of log messages that it requested; empty until it does.
    log_level: str = ""
    # The public URIs of the resources that it subscribed to.
    subscriptions: set[str] = msgspec.field(default_factory=set)
    # The bytes that they take, including subscriptions that are being made.
    subscription_share: SubscriptionShare = msgspec.field(default_factory=SubscriptionShare)
    # Called after each change of a session that can be revived.
    on_change: Callable[[], None] | None = None

    def notify_changed(self) -> None:
        if self.on_change is not None:
            self.on_change()


class ClientContext(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of one request."""

    era: Era
    # Carries progress, log messages and server requests that belong to this request.
    channel: ClientBackChannel
    caller: Identity
    # In the stateless era each request declares its own.
    profile: ClientProfile = PLAIN_PROFILE
    # The client's name; in the stateless era each request carries it.
    client: str = ""
    # The listing that the path it came by stands for.
    listing: ListingMode | None = None
    # None in the stateless era.
    owner: ClientSession | None = None
    preferences: SessionPreferences | None = None
    # The number of the HTTP connection; 0 where there is only one.
    connection: int = 0
    # Called when the upstream ends its stream before the response.
    on_pause: Callable[[], None] | None = None
    # The headers of the request, where it came over HTTP in the stateless era.
    headers: Mapping[bytes, bytes] = {}
    # The `_meta` of its request, where it has been read already.
    meta: Mapping[str, Raw] | None = None
    # The Idempotency-Key header.
    key_header: bytes | None = None
    # The features of rmcp that it shares with us; in the stateless era each request declares its own.
    features: frozenset[str] = frozenset()


class InitializedClient(msgspec.Struct, frozen=True):
    """The outcome of `initialize`: the agreed version, what the client declared, and the reply."""

    version: str
    capabilities: bytes
    client_info: bytes
    reply: Reply
