"""Which listing a client gets, by its name, session, mode, dialect, era and visibility."""

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

# The most tools that a client passes to its model; it drops the rest, which then cannot be called.
_MOST_TOOLS: Final = {"cursor*": 40, "windsurf*": 100, "visual studio code*": 128, "*copilot*": 128}
# Clients that search their tools themselves, so that a short list would only hide tools from them.
_SEARCH_THEMSELVES: Final = {"claude-code*": True}
# Each name costs a little memory, and a client may send a new name every time.
_MOST_KNOWN: Final = 1_000


class KnownClients:
    """Settings for clients by name, and the known abilities of such clients."""

    def __init__(
        self,
        listings: Mapping[str, ListingMode] | None = None,
        dialects: Mapping[str, Dialect] | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        """`listings` and `dialects` map name patterns; `dialect` applies to all others, None to detect it."""
        self._listings = listings or {}
        self._dialects = dialects or {}
        self._dialect = dialect
        self._known: dict[str, Dialect] = {}

    def mode(self, client: str) -> ListingMode | None:
        """The mode that the operator configured for the client."""
        return _first(self._listings, client)

    def dialect(self, client: str) -> Dialect:
        """The dialect of its schemas; needed for every call."""
        known = self._known.get(client)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            configured = _first(self._dialects, client) or self._dialect
            self._known[client] = known = dialect_of(client) if configured is None else configured
        return known

    def searches_itself(self, client: str) -> bool:
        """Whether the client searches its tools itself, so that it should get all of them."""
        return _first(_SEARCH_THEMSELVES, client) or False

    def most_tools(self, client: str) -> int | None:
        """How many tools the client can handle, if known."""
        return _first(_MOST_TOOLS, client)


def _first(patterns: Mapping[str, T], client: str) -> T | None:
    name = client.casefold()
    return next((value for pattern, value in patterns.items() if fnmatchcase(name, pattern.casefold())), None)


# The modes for which listings are built; in the others clients see a few tools each.
BUILT_MODES: Final = frozenset(ListingMode) - {ListingMode.SEARCH, ListingMode.DYNAMIC}


class ListingFormat(msgspec.Struct, frozen=True):
    """The format of a listing, apart from the tools in it."""

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
        """Whether a listing is built for it."""
        return self.listing_format.mode in BUILT_MODES

    @property
    def label(self) -> str:
        """The name of the listing in reports and logs."""
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
        """Distinguishes variants of the same label: by declared capabilities and by visibility."""
        declared = b"" if self.profile == PLAIN_PROFILE else self.profile.capabilities
        if self.visibility.label:
            declared += b"\0" + self.visibility.label.encode()
        return hashlib.blake2b(declared, digest_size=4).hexdigest() if declared else ""


class ListingContext(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a client that decide which listing it gets."""

    era: Era
    caller: Identity = LOCAL_IDENTITY
    # None in the stateless era.
    owner: ClientSession | None = None
    profile: ClientProfile = PLAIN_PROFILE
    # The name in `clientInfo`.
    client: str = ""
    # The mode that its path selects; None if the path selects none.
    mode: ListingMode | None = None

    @property
    def visibility_group(self) -> str:
        """The group of clients that see the same tools, including those found by search."""
        return visibility_group_of(self.owner, self.caller)


def listing_context_of(request: McpRequest) -> ListingContext:
    """The listing context of the client that sent the request."""
    return ListingContext(
        era=Era.STATELESS if request.session is None else Era.HANDSHAKE,
        caller=request.caller,
        owner=request.session,
        profile=request.profile,
        client=request.client,
        mode=request.listing,
    )
