"""How many bytes of URIs clients may subscribe to: each of them, and all together."""

import msgspec

from headgate.domain.errors import TooManySubscriptions

# What a subscription takes besides its URI, in the sets and tables that it is in.
_OVERHEAD_BYTES = 64
_OWN = "unsubscribe from other resources first"


class SubscriptionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """All of them are kept as long as the session is."""

    resources: int = 1000
    uri_bytes: int = 8 * 1024
    # Of one client, with what each takes besides its URI.
    client_bytes: int = 512 * 1024
    total_bytes: int = 16 * 1024 * 1024
    # A client may always have so many, however much others have.
    assured_bytes: int = 4 * 1024


LIMITS = SubscriptionLimits()


class SubscriptionShare:
    """What one client has subscribed to, in bytes."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class SubscriptionBudget:
    """The bytes of all clients together."""

    def __init__(self, limits: SubscriptionLimits = LIMITS) -> None:
        self._limits = limits
        self.bytes = 0

    def take(self, share: SubscriptionShare, uri: str) -> None:
        """Count one more subscription; raises TooManySubscriptions, and then nothing is counted."""
        limits, size = self._limits, cost(uri)
        if size - _OVERHEAD_BYTES > limits.uri_bytes:
            raise TooManySubscriptions(
                f"its URI is longer than {limits.uri_bytes} bytes", "use a shorter URI"
            )
        if share.bytes + size > limits.client_bytes:
            raise TooManySubscriptions(
                f"the URIs of one client may take {limits.client_bytes} bytes together", _OWN
            )
        if share.bytes + size > limits.assured_bytes and self.bytes + size > limits.total_bytes:
            raise TooManySubscriptions(
                f"the URIs of all clients take {limits.total_bytes} bytes together", "try again later"
            )
        self.add(share, uri)

    def add(self, share: SubscriptionShare, uri: str) -> None:
        """Count a subscription that was allowed before."""
        share.bytes += cost(uri)
        self.bytes += cost(uri)

    def give_back(self, share: SubscriptionShare, uri: str) -> None:
        """Count one less, unless the client has given all back meanwhile."""
        size = min(cost(uri), share.bytes)
        share.bytes -= size
        self.bytes -= size

    def give_all_back(self, share: SubscriptionShare) -> None:
        """The client is gone."""
        self.bytes -= share.bytes
        share.bytes = 0


def cost(uri: str) -> int:
    """How many bytes one subscription counts."""
    return _OVERHEAD_BYTES + len(uri.encode(errors="surrogatepass"))
