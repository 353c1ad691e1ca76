"""The client that lists, and the variant of the tool listing (mode, dialect, era, profile) that it gets."""

import hashlib
from typing import Final

import msgspec

from headgate.catalog.tool_dialects import Dialect
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.identity import EVERYTHING, LOCAL_IDENTITY, Identity, Visibility
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import ClientSession, McpRequest, visibility_group_of
from headgate.protocol.protocol_version import Era

# What views are made for; in the other modes clients see a few tools each.
BUILT_MODES: Final = (
    ListingMode.AUTO,
    ListingMode.FULL,
    ListingMode.PARTITIONED,
    ListingMode.SLIM,
    ListingMode.BUDGET,
)


class ListingFormat(msgspec.Struct, frozen=True):
    """What clients see the same with, apart from what servers show them."""

    mode: ListingMode
    dialect: Dialect = Dialect.PLAIN
    era: Era = Era.STATELESS
    # The most tools that the client can handle.
    most: int | None = None


class ListingVariant(msgspec.Struct, frozen=True):
    """Clients that get the same listing: of one profile and format, and with the same visibility."""

    profile: ClientProfile
    listing_format: ListingFormat
    visibility: Visibility = EVERYTHING

    @property
    def is_built(self) -> bool:
        """Whether a view is made for it."""
        return self.listing_format.mode in BUILT_MODES

    @property
    def label(self) -> str:
        """What its listing is called where it is shown to people."""
        listing_format = self.listing_format
        parts = [listing_format.mode.value, listing_format.era.value]
        if listing_format.dialect is not Dialect.PLAIN:
            parts.append(listing_format.dialect.value)
        if listing_format.most is not None:
            parts.append(f"{listing_format.most} tools")
        if self.profile != PLAIN_PROFILE:
            parts.append(",".join(sorted(self.profile.input_capabilities)) or "capabilities")
        return " ".join(parts)

    @property
    def profile_digest(self) -> str:
        """What tells it apart from others of the same label: what its clients declare, and what they see."""
        declared = b"" if self.profile == PLAIN_PROFILE else self.profile.capabilities
        if self.visibility.label:
            declared += b"\0" + self.visibility.label.encode()
        return hashlib.blake2b(declared, digest_size=4).hexdigest() if declared else ""


class ListingContext(msgspec.Struct, frozen=True, kw_only=True):
    """A client that lists, as far as what it sees depends on it."""

    era: Era
    caller: Identity = LOCAL_IDENTITY
    # None in the stateless era.
    owner: ClientSession | None = None
    profile: ClientProfile = PLAIN_PROFILE
    # What the client calls itself.
    client: str = ""
    # What the path that it came by stands for; None where that says nothing.
    mode: ListingMode | None = None

    @property
    def visibility_group(self) -> str:
        """Those who see the same tools as it does, found ones too."""
        return visibility_group_of(self.owner, self.caller)


def listing_context_of(request: McpRequest) -> ListingContext:
    """Whoever sent the request, when it lists."""
    return ListingContext(
        era=Era.STATELESS if request.session is None else Era.HANDSHAKE,
        caller=request.caller,
        owner=request.session,
        profile=request.profile,
        client=request.client,
        mode=request.listing,
    )
