"""Which listing a client gets: by its name, its session, its mode, its dialect and its era."""

import hashlib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final, TypeVar

import msgspec

from headgate.catalog.tool_dialects import Dialect, dialect_of
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.identity import EVERYTHING, LOCAL_IDENTITY, Identity, Visibility
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import ClientSession, McpRequest, visibility_group_of
from headgate.protocol.protocol_version import Era

T = TypeVar("T")

# The most tools that a client hands to its model; more are cut off, and whoever is cut off is out of reach.
_MOST_TOOLS: Final = {
    "cursor*": 40,
    "windsurf*": 100,
    "visual studio code*": 128,
    "*copilot*": 128,
}
# Clients that search the tools they are given by themselves, so that a short list only hides tools from them.
_SEARCH_THEMSELVES: Final = {"claude-code*": True}
# Each name costs a little memory, and a client may call itself something new every time.
_MOST_KNOWN: Final = 1_000


class KnownClients:
    """What the operator wants for clients of a name, and what such clients can do."""

    def __init__(
        self,
        listings: Mapping[str, ListingMode] | None = None,
        dialects: Mapping[str, Dialect] | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        """The first two are by patterns of names; `dialect` is for all others, None what their name says."""
        self._listings = listings or {}
        self._dialects = dialects or {}
        self._dialect = dialect
        self._known: dict[str, Dialect] = {}

    def mode(self, client: str) -> ListingMode | None:
        """The listing that the operator wants for it."""
        return _first(self._listings, client)

    def dialect(self, client: str) -> Dialect:
        """The dialect that its schemas are served in; asked for every call."""
        known = self._known.get(client)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            wanted = _first(self._dialects, client) or self._dialect
            self._known[client] = known = dialect_of(client) if wanted is None else wanted
        return known

    def searches_itself(self, client: str) -> bool:
        """Whether it searches its list of tools by itself, and so is best given all of them."""
        return _first(_SEARCH_THEMSELVES, client) or False

    def most_tools(self, client: str) -> int | None:
        """How many tools it can handle, if that is known."""
        return _first(_MOST_TOOLS, client)


def _first(patterns: Mapping[str, T], client: str) -> T | None:
    name = client.casefold()
    return next((value for pattern, value in patterns.items() if fnmatchcase(name, pattern.casefold())), None)


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
