"""Whoever sent a request: the era it speaks, what it can do, and how it is reached."""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from headgate.domain.call import LOCAL, Caller, Channel, Owner
from headgate.domain.listing import Mode
from headgate.domain.profile import PLAIN, Profile
from headgate.front.reply import Reply
from headgate.front.subscription_limits import SubscriptionShare
from headgate.wire.eras import Era


class Standing(msgspec.Struct):
    """What a client of the handshake era has asked for once and for all."""

    # The least important log messages that it wants; empty until it says so.
    log_level: str = ""
    # The resources whose updates it wants to hear of, as it calls them.
    subscriptions: set[str] = msgspec.field(default_factory=set)
    # What they take, those included that a server is being asked for.
    share: SubscriptionShare = msgspec.field(default_factory=SubscriptionShare)
    # Told after each change, where the client may come back to find all of it as it was.
    keep: Callable[[], None] | None = None

    def changed(self) -> None:
        """The client has asked for something else than before."""
        if self.keep is not None:
            self.keep()


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of one request."""

    era: Era
    # Progress, log messages and questions that belong to this request.
    channel: Channel
    caller: Caller = LOCAL
    # In the stateless era each request declares its own.
    profile: Profile = PLAIN
    # What the client calls itself; in the stateless era each request says it.
    client: str = ""
    # The listing that the path it came by stands for.
    listing: Mode | None = None
    # None in the stateless era.
    owner: Owner | None = None
    standing: Standing | None = None
    # The number of the HTTP connection; 0 where there is only one.
    connection: int = 0
    # Told when the upstream lets go of its stream before the answer.
    on_pause: Callable[[], None] | None = None
    # The headers of the request, where it came over HTTP in the stateless era.
    headers: Mapping[bytes, bytes] = {}
    # The `_meta` of its request, where it has been read already.
    meta: Mapping[str, Raw] | None = None
    # What HTTP says about the delivery of the call.
    key_header: bytes | None = None
    # The features of rmcp that it shares with us; in the stateless era each request declares its own.
    features: frozenset[str] = frozenset()


class Initialized(msgspec.Struct, frozen=True):
    """A client that has shaken hands: the agreed version, what it declared, and the reply that says so."""

    version: str
    capabilities: bytes
    client_info: bytes
    reply: Reply
