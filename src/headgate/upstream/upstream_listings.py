"""The listings of one server for each client profile: fetched, marked stale, and fetched again with
backoff.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.catalog.paged_listing import NO_HINT, NOTHING_TO_KEEP, CacheHint, strictest
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.errors import InvalidUpstreamResponse, ResponseNotStored, UpstreamError, UpstreamTimeout
from headgate.domain.gateway_chain import gateways_in_meta
from headgate.domain.item import ItemKind
from headgate.event_loop import TimeSlice
from headgate.protocol.json_scan import JsonObjectScanner, array_elements
from headgate.protocol.message_meta import UnreadableMeta, may_be_reserved, without_reserved
from headgate.protocol.protocol_version import Era
from headgate.upstream.handshake import NegotiationResult
from headgate.upstream.mcp_peer import McpPeer
from headgate.upstream.message_assembly import payload_bytes
from headgate.upstream.transport import UpstreamSessionExpired

log = logging.getLogger("headgate.upstream")

# Reading a larger page takes so long that other clients would notice.
_LARGE_BYTES = 256 * 1024
# A listing with more pages than this repeats itself.
_MOST_PAGES = 1000
_MOST_ITEMS = 100_000
_SHORTEST_GAP_SECONDS = 1.0
_LONGEST_GAP_SECONDS = 30.0
# After this long without a change the backoff starts anew.
_QUIET_SECONDS = 60.0
# A server that does not notify changes is listed again when a client lists, at most this often.
_SHORTEST_AGE_SECONDS = 60.0
# Timers of the event loop may fire this much too early.
_EARLY_SECONDS = 0.01


class RelistBackoff:
    """Lists at once the first time, then after gaps that double while changes follow each other."""

    def __init__(self) -> None:
        self._gap = _SHORTEST_GAP_SECONDS
        self._last: float | None = None

    def seconds_left(self, now: float) -> float:
        if self._last is None:
            return 0.0
        left = self._last + self._gap - now
        return left if left > _EARLY_SECONDS else 0.0

    def record_request(self, now: float) -> None:
        if self._last is None or now - self._last > _QUIET_SECONDS:
            self._gap = _SHORTEST_GAP_SECONDS
        else:
            self._gap = min(_LONGEST_GAP_SECONDS, self._gap * 2)
        self._last = now


class ListResult(msgspec.Struct, frozen=True):
    """All definitions of one kind, as the server wrote them."""

    definitions: list[bytes]
    hint: CacheHint = NO_HINT
    # The instances of gateways behind the server; empty if it is no gateway.
    gateways: frozenset[str] = frozenset()


class ListingConsumer(Protocol):
    """Receives the listings of all servers."""

    # Taken for each step: hundreds of servers may start at once, and clients are served meanwhile.
    listing_lock: asyncio.Lock

    def prepare_listing(self, server: str, kind: ItemKind, definitions: list[bytes]) -> Iterator[None]:
        """Prepare definitions before they are received, one at each step."""

    def listing_received(
        self, server: str, kind: ItemKind, definitions: list[bytes], profile: ClientProfile, hint: CacheHint
    ) -> dict[str, str]:
        """Take over a whole listing; returns the definitions that cannot be served, with the reason."""

    def gateways_discovered(self, server: str, gateways: frozenset[str]) -> None:
        """Record the gateways behind a server; raises GatewayLoop if this one is among them."""

    def has_listing(self, server: str, profile: ClientProfile) -> bool:
        """Whether a listing for that profile is stored."""


class UpstreamListings:
    """Fetches the listings of one server and passes them to the consumer."""

    def __init__(self, server: str, consumer: ListingConsumer) -> None:
        self._server = server
        self._consumer = consumer
        self._loop = asyncio.get_running_loop()
        # One for each capability: resources that change all the time must not delay a new tool.
        self._backoffs = {kind.capability: RelistBackoff() for kind in ItemKind}
        self._stale: dict[ClientProfile, set[ItemKind]] = {}
        self._fresh: set[ClientProfile] = set()
        self._refreshed_at = 0.0
        self._hints: dict[ItemKind, CacheHint] = {}
        self.counts: dict[ItemKind, int] = {}
        self.left_out: dict[str, str] = {}
        # Set when another supervisor took over: nothing is published any more.
        self.muted = False

    async def refresh(
        self, peer: McpPeer, profile: ClientProfile, kinds: Iterable[ItemKind] = ItemKind
    ) -> None:
        """Fetch the listing for clients of that profile; raises UpstreamError or UpstreamSessionExpired."""
        if profile is PLAIN_PROFILE:
            self._refreshed_at = self._loop.time()
        for kind in kinds:
            listed = await list_all(peer, kind, profile)
            if self.muted:
                continue
            if listed.gateways:
                self._consumer.gateways_discovered(self._server, listed.gateways)
            left_out = await self._pass_to_consumer(kind, listed, profile)
            if profile is PLAIN_PROFILE:
                self.counts[kind] = len(listed.definitions) - len(left_out)
                self._hints[kind] = listed.hint
            if profile is PLAIN_PROFILE and kind is ItemKind.TOOLS:
                self.left_out = left_out
        # Clients may declare any profile, and the consumer stores a bounded number of listings.
        server, has_listing = self._server, self._consumer.has_listing
        kept = {one for one in self._fresh if one is PLAIN_PROFILE or has_listing(server, one)}
        self._fresh = {*kept, profile}

    async def _pass_to_consumer(
        self, kind: ItemKind, listed: ListResult, profile: ClientProfile
    ) -> dict[str, str]:
        """A listing may be very large, so it is prepared in time slices."""
        steps = self._consumer.prepare_listing(self._server, kind, listed.definitions)
        while True:
            async with self._consumer.listing_lock:
                # Clients are served before the steps of the next time slice.
                await asyncio.sleep(0)
                time_slice = TimeSlice()
                if not any(time_slice.expired for _ in steps):
                    return self._consumer.listing_received(
                        self._server, kind, listed.definitions, profile, listed.hint
                    )

    def clear(self) -> None:
        for kind in ItemKind:
            if not self.muted:
                self._consumer.listing_received(self._server, kind, [], PLAIN_PROFILE, NO_HINT)
        self.counts.clear()

    def has_listing(self, profile: ClientProfile) -> bool:
        """Whether the listing for that profile was fetched since the server was connected."""
        return profile in self._fresh and self._consumer.has_listing(self._server, profile)

    def forget(self, profile: ClientProfile) -> None:
        """Fetch the listing for that profile again before its next use."""
        self._fresh.discard(profile)

    def requeue(self, profile: ClientProfile, kinds: set[ItemKind]) -> None:
        self._stale.setdefault(profile, set()).update(kinds)

    def reset(self) -> list[ClientProfile]:
        """A new connection may be to another version of the server; returns the profiles known before."""
        known = [profile for profile in self._fresh if profile is not PLAIN_PROFILE]
        self._fresh.clear()
        self._stale.clear()
        return known

    def mark_expired(self, negotiated: NegotiationResult) -> bool:
        """Mark old listings stale that the server does not notify of; returns whether any is stale."""
        limit = max(strictest(self._hints.values()).ttl_ms / 1000, _SHORTEST_AGE_SECONDS)
        if self._loop.time() - self._refreshed_at > limit:
            self._refreshed_at = self._loop.time()
            for kind in ItemKind:
                if negotiated.offers(kind) and not negotiated.notifies_list_changed(kind.capability):
                    for profile in {PLAIN_PROFILE, *self._fresh}:
                        self._stale.setdefault(profile, set()).add(kind)
        return self.stale

    def mark_stale(self, capability: str, profile: ClientProfile) -> bool:
        """Mark a listing stale; returns whether it was not before."""
        kinds = {kind for kind in ItemKind if kind.capability == capability}
        stale = self._stale.setdefault(profile, set())
        news = not kinds <= stale and not self.muted
        stale |= kinds
        return news

    def mark_stale_for_all(self, capability: str) -> bool:
        """Mark the listings of every profile stale; returns whether one was not before."""
        news = [self.mark_stale(capability, profile) for profile in {PLAIN_PROFILE, *self._fresh}]
        return any(news)

    @property
    def stale(self) -> bool:
        return any(self._stale.values()) and not self.muted

    def seconds_until_refresh(self) -> float:
        stale = {kind.capability for kinds in self._stale.values() for kind in kinds}
        return min((self._seconds_until(capability) for capability in stale), default=0.0)

    def _seconds_until(self, capability: str) -> float:
        return self._backoffs[capability].seconds_left(self._loop.time())

    def take_stale(self) -> dict[ClientProfile, set[ItemKind]]:
        due = {kind for kind in ItemKind if self._seconds_until(kind.capability) == 0}
        taken = {profile: kinds & due for profile, kinds in self._stale.items() if kinds & due}
        self._stale = {profile: kinds - due for profile, kinds in self._stale.items() if kinds - due}
        for capability in {kind.capability for kinds in taken.values() for kind in kinds}:
            self._backoffs[capability].record_request(self._loop.time())
        return taken

    async def refresh_stale(
        self,
        peer: McpPeer,
        peer_for_profile: Callable[[ClientProfile], McpPeer | None],
        busy: Callable[[], bool],
    ) -> None:
        """Fetch stale listings again; raises UpstreamError or UpstreamSessionExpired.

        `peer_for_profile` finds a connection of a profile; `busy` tells whether calls are in flight.
        """
        problem: UpstreamError | None = None
        for profile, kinds in self.take_stale().items():
            speaks = peer.era is Era.STATELESS or profile is PLAIN_PROFILE
            speaker = peer if speaks else peer_for_profile(profile)
            if speaker is None:
                # No client of that profile is connected; the next one has it fetched.
                self.forget(profile)
                continue
            try:
                await self.refresh(speaker, profile, kinds)
            except (UpstreamError, UpstreamSessionExpired) as error:
                if speaker is not peer:
                    # A failure of another connection must not end this one.
                    self.forget(profile)
                elif busy() and isinstance(error, UpstreamTimeout):
                    # It may execute one request at a time: its calls go on, and the listing is fetched later.
                    self.requeue(profile, kinds)
                elif isinstance(error, InvalidUpstreamResponse | ResponseNotStored):
                    # The listings of other profiles are fetched all the same.
                    problem = error
                else:
                    raise
        if problem is not None:
            raise problem


class ListPage(msgspec.Struct, rename={"meta": "_meta"}):
    """One page of definitions, with the cursor of the next one and the cache hint."""

    items: list[Raw] = []
    nextCursor: str | None = None  # noqa: N815 (the protocol's spelling)
    ttlMs: int | float | None = None  # noqa: N815 (the protocol's spelling)
    cacheScope: str = "private"  # noqa: N815 (the protocol's spelling)
    meta: Raw = Raw(b"")


def _page_decoder(kind: ItemKind) -> "msgspec.json.Decoder[ListPage]":
    fields = [("items", list[Raw])]
    page = msgspec.defstruct(
        "KindPage", fields, bases=(ListPage,), kw_only=True, rename={"items": kind.result_member}
    )
    return msgspec.json.Decoder(page)


_PAGE_DECODERS = {kind: _page_decoder(kind) for kind in ItemKind}


def read_list_page(kind: ItemKind, result: bytes) -> ListPage:
    """One page, without reserved keys in the `_meta` of definitions; raises ValueError."""
    try:
        page = _PAGE_DECODERS[kind].decode(result)
    except (DecodeError, RecursionError):
        # The parser refuses it, so it is cut at its members.
        scanner = JsonObjectScanner()
        scanner.feed(result)
        values = {key: result[start:end] for key, (start, end) in scanner.finish().items()}
        cursor = msgspec.json.decode(values.get("nextCursor", b"null"), type=str | None)
        items = [Raw(item) for item in array_elements(values.get(kind.result_member, b""))]
        page = ListPage(items, cursor, meta=Raw(values.get("_meta", b"")))
    if may_be_reserved(result):
        page.items = [_without_reserved_keys(item) for item in page.items]
    return page


def _without_reserved_keys(item: Raw) -> Raw:
    try:
        return Raw(without_reserved(bytes(item)))
    except UnreadableMeta:
        # The consumer leaves out what it cannot read.
        return item


async def list_all(peer: McpPeer, kind: ItemKind, profile: ClientProfile = PLAIN_PROFILE) -> ListResult:
    """Everything of one kind for clients of that profile; raises UpstreamError or UpstreamSessionExpired."""
    definitions: list[bytes] = []
    hints: list[CacheHint] = []
    cursor: str | None = None
    seen: set[str] = set()
    gateways: frozenset[str] = frozenset()
    if not peer.negotiated.offers(kind):
        return ListResult(definitions, NOTHING_TO_KEEP)
    for _ in range(_MOST_PAGES):
        page = await _list_page(peer, kind, cursor, profile)
        definitions += [bytes(item) for item in page.items]
        # Without a hint a page may not be cached.
        milliseconds = page.ttlMs if page.ttlMs is not None and page.ttlMs > 0 else 0
        hints.append(CacheHint(int(min(milliseconds, 86_400_000)), page.cacheScope == "public"))
        gateways |= gateways_in_meta(page.meta)
        cursor = page.nextCursor
        if not cursor or len(definitions) >= _MOST_ITEMS:
            return ListResult(definitions, strictest(hints), gateways)
        if cursor in seen:
            break
        seen.add(cursor)
    raise InvalidUpstreamResponse(peer.spec.name, kind.list_method, "pages that go in circles")


async def _list_page(peer: McpPeer, kind: ItemKind, cursor: str | None, profile: ClientProfile) -> ListPage:
    params = {"cursor": Raw(msgspec.json.encode(cursor))} if cursor else {}
    # A byte that is not UTF-8 costs only its definition.
    answer = await peer.send_gateway_request(
        kind.list_method, params, profile=profile, accepts_invalid_utf8=True
    )
    if answer.error:
        if kind is ItemKind.TOOLS or cursor:
            reason = f"the error {answer.error[:200].decode(errors='replace')}"
            raise InvalidUpstreamResponse(peer.spec.name, kind.list_method, reason)
        # Many servers declare resources and know no templates; the rest is served.
        log.debug("not listed", extra={"server": peer.spec.name, "method": kind.list_method})
        return ListPage()
    result = payload_bytes(answer.result)
    try:
        if len(result) <= _LARGE_BYTES:
            return read_list_page(kind, result)
        return await asyncio.to_thread(read_list_page, kind, result)
    except (DecodeError, ValueError) as error:
        raise InvalidUpstreamResponse(peer.spec.name, kind.list_method, f"no list ({error})") from error
