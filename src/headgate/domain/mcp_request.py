"""One MCP request: its client session, the upstream call it becomes, and the response."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.delivery_request import DeliveryRequest, DeliveryStatus
from headgate.domain.identity import Identity
from headgate.domain.item import Item
from headgate.domain.listing_mode import ListingMode
from headgate.domain.payload import Payload

# Given the params of a progress notification without their token.
ProgressListener = Callable[[dict[str, msgspec.Raw]], None]


class McpResponse(msgspec.Struct, frozen=True):
    """A result or a JSON-RPC error object, in the bytes of its sender."""

    result: Payload = b""
    error: bytes = b""
    # Whether the result came from a stateless upstream and so names its `resultType`.
    typed: bool = False
    # None for a plain call.
    delivery_status: DeliveryStatus | None = None
    # Whether the caller chose its size, so that it is never truncated.
    sized: bool = False


class ClientBackChannel(Protocol):
    """Notifications and requests to a client, apart from the reply to its request."""

    def send_notification(self, method: str, params: bytes) -> None:
        """Forward a notification of the upstream; dropped if the client cannot take it now."""

    async def send_request(self, method: str, params: bytes) -> McpResponse:
        """The client's answer to a request of the upstream; an error if it accepts none."""


class ClientSession(msgspec.Struct, frozen=True, eq=False):
    """A session of the handshake era, with upstream sessions of its own."""

    id: str
    channel: ClientBackChannel


def visibility_group_of(owner: ClientSession | None, caller: Identity) -> str:
    """The clients that share one list of tools: those of a session, or without sessions of a principal."""
    if owner is None:
        return caller.owner_id
    return f"{caller.owner_id}\n{owner.id}" if caller.is_authenticated else owner.id


def result_owner_of(owner: ClientSession | None, caller: Identity) -> str:
    """The owner of stored results: the principal or, for the local user, the session."""
    return caller.owner_id if caller.is_authenticated else visibility_group_of(owner, caller)


class McpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a client; every value is in the bytes of the client."""

    caller: Identity
    method: str = "tools/call"
    # The tool, the prompt or the resource, as the client calls it.
    name: str = ""
    # The other members of params, `arguments` among them, but for `_meta`.
    params: Mapping[str, msgspec.Raw] = {}
    # `_meta` without what belongs to the client's own connection.
    meta: Mapping[str, msgspec.Raw] = {}
    # The declared capabilities of the client.
    profile: ClientProfile = PLAIN_PROFILE
    # The name of the client, and the listing mode of its path.
    client: str = ""
    listing: ListingMode | None = None
    # None in the stateless era, where every request stands alone.
    session: ClientSession | None = None
    # The HTTP connection that it came on; 0 where there is only one, as on stdio.
    connection: int = 0
    # None when nothing but the answer reaches the client.
    channel: ClientBackChannel | None = None
    # The lowest level of log messages for the client; empty for the default.
    log_level: str = ""
    # The `mcp-param-*` headers of a client of the stateless era; None where there are no headers.
    headers: Mapping[bytes, bytes] | None = None
    on_progress: ProgressListener | None = None
    # Called when the upstream closes its stream before the answer, to be polled later.
    on_pause: Callable[[], None] | None = None
    # None for a plain call.
    delivery_request: DeliveryRequest | None = None


class DeliveryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The instructions of delivery for one call, besides those of its client."""

    # Names the call to an upstream that honours keys, in every attempt alike.
    key: str = ""
    # The header that carries it, where the operator named one.
    key_header: str = ""
    # The deadline, in seconds of the event loop's clock.
    deadline: float | None = None
    # How often it was sent before.
    retry_count: int = 0
    # Called just before the first byte is sent.
    on_send: Callable[[], None] | None = None
    # Called with a response that arrives after the call was abandoned.
    on_late_response: Callable[[McpResponse], None] | None = None


class UpstreamCall(msgspec.Struct, frozen=True):
    """A permitted request with the item that it names."""

    request: McpRequest
    item: Item
    # None for a plain call.
    delivery_options: DeliveryOptions | None = None
