"""Caches built listings until the catalog changes, and records which one each visibility group got last."""

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from headgate.catalog.catalog import Catalog
from headgate.catalog.listing_builder import BuiltListing, ListingBuilder
from headgate.catalog.listing_variant import ListingVariant
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.item import Item

log = logging.getLogger("headgate.catalog")

# A built listing of many tools takes megabytes.
_MOST_LISTINGS: Final = 64
# The catalog may change while a listing of thousands of tools is built; after so many attempts it is used.
_MOST_REBUILDS: Final = 3
_MOST_NAMED: Final = 20


# The inputs of a built listing: tools, and the servers that the search tool's description names.
_BuildInput = tuple[list[Item], tuple[str, ...]]


class ListingCache:
    """One built listing for each variant; profiles that see the same tools share one."""

    def __init__(self, everything: Catalog, views: ListingBuilder) -> None:
        self._tools = everything
        self._builder = views
        # Each with its inputs.
        self._built: dict[ListingVariant, tuple[_BuildInput, BuiltListing]] = {}
        # The number of invalidations: a listing that was being built meanwhile is stale.
        self._generation = 0
        # A client that disconnects does not stop a build that others may wait for.
        self._building: dict[ListingVariant, asyncio.Task[None]] = {}
        # One build at a time: each takes a whole core.
        self._thread = ThreadPoolExecutor(1, "listings")

    @property
    def listings(self) -> Mapping[ListingVariant, BuiltListing]:
        return {variant: built for variant, (_, built) in self._built.items()}

    def cached(self, variant: ListingVariant) -> BuiltListing | None:
        made = self._built.get(self.shared_variant(variant))
        return made[1] if made is not None else None

    def shared_variant(self, variant: ListingVariant) -> ListingVariant:
        """The variant of all clients that see the same."""
        if self._tools.differs(variant.profile):
            return variant
        return ListingVariant(PLAIN_PROFILE, variant.listing_format, variant.visibility)

    async def get(self, variant: ListingVariant) -> BuiltListing:
        """The listing of the current catalog, or of a moment ago if it changes all the time."""
        rounds = 0
        while True:
            variant = self.shared_variant(variant)
            made = self._built.get(variant)
            if made is not None and (made[0] == self._build_input(variant) or rounds >= _MOST_REBUILDS):
                # To the end of the dict, so that frequently used listings are evicted last.
                self._built[variant] = self._built.pop(variant)
                return made[1]
            rounds += 1
            if variant not in self._building:
                making = asyncio.create_task(self._build(variant), name="listing-build")
                making.add_done_callback(partial(self._build_ended, variant))
                self._building[variant] = making
            await asyncio.shield(self._building[variant])

    def _build_ended(self, variant: ListingVariant, making: "asyncio.Task[None]") -> None:
        del self._building[variant]
        if not making.cancelled() and (error := making.exception()) is not None:
            # Its waiters may be gone.
            log.error("a listing could not be made", exc_info=error, extra={"listing": variant.label})

    def _build_input(self, variant: ListingVariant) -> _BuildInput:
        visibility = variant.visibility
        return self._tools.visible(variant.profile, visibility), self._tools.visible_servers(visibility)

    async def _build(self, variant: ListingVariant) -> None:
        source, forgotten = self._build_input(variant), self._generation
        loop = asyncio.get_running_loop()
        # In another thread: thousands of tools take a second.
        built = await loop.run_in_executor(self._thread, self._builder.build, variant.listing_format, *source)
        if forgotten != self._generation:
            return
        before = self._built.pop(variant, None)
        self._built[variant] = (source, built)
        if len(self._built) > _MOST_LISTINGS:
            del self._built[next(iter(self._built))]
        _log_listing(variant, built, before[1] if before is not None else None)

    def clear(self) -> None:
        self._built.clear()
        self._generation += 1

    def close(self) -> None:
        """Build nothing more; a running build is not awaited."""
        for making in self._building.values():
            making.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)


def _log_listing(variant: ListingVariant, built: BuiltListing, before: BuiltListing | None) -> None:
    """Log once what an operator should know about a listing."""
    old = before or BuiltListing(built.mode, built.listing, {}, frozenset())
    if built.choice not in ("", old.choice) and variant.profile == PLAIN_PROFILE:
        log.info(built.choice, extra={"listing": variant.label})
    if built.pins_left not in ((), old.pins_left):
        extra = {"listing": variant.label, "tools": list(built.pins_left[:_MOST_NAMED])}
        log.warning("pinned tools do not fit the budget and are left to search", extra=extra)
    if built.adapted and old.adapted.keys() != built.adapted.keys():
        extra = {"listing": variant.label, "tools": list(built.adapted)[:_MOST_NAMED]}
        log.info("schemas were changed for the client's dialect", extra=extra)


# Groups that have listed, and variants of each; the least recent goes first.
_MOST_GROUPS: Final = 10_000
_MOST_VARIANTS: Final = 64


class LastListed:
    """The digest of the listing that each visibility group got last, in each variant."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[ListingVariant, str]] = {}

    def record(
        self, visibility_group: str, variant: ListingVariant, digest: str, *, shared: bool = False
    ) -> None:
        """Record that the group got this listing.

        If it is `shared`, only one client of the group got it, and the others must still be notified.
        """
        seen = self._by_group.pop(visibility_group, {})
        before = seen.pop(variant, digest)
        seen[variant] = before if shared else digest
        if len(seen) > _MOST_VARIANTS:
            del seen[next(iter(seen))]
        self._by_group[visibility_group] = seen
        if len(self._by_group) > _MOST_GROUPS:
            del self._by_group[next(iter(self._by_group))]

    def mark_notified(self, visibility_group: str, digests: Mapping[ListingVariant, str]) -> None:
        """Record that all clients of the group are notified of these listings."""
        seen = self._by_group.get(visibility_group, {})
        seen.update((variant, digests[variant]) for variant in seen.keys() & digests.keys())

    def __iter__(self) -> Iterator[tuple[str, Mapping[ListingVariant, str]]]:
        return iter(list(self._by_group.items()))

    def variants(self) -> Collection[ListingVariant]:
        """Every variant that some client uses."""
        return {variant: None for seen in self._by_group.values() for variant in seen}.keys()

    def forget(self, visibility_group: str) -> None:
        self._by_group.pop(visibility_group, None)


class AllExcept:
    """Contains every visibility group but some."""

    def __init__(self, others: Collection[str]) -> None:
        self._others = frozenset(others)

    def __contains__(self, visibility_group: object) -> bool:
        return visibility_group not in self._others
