"""Records how listings change, which invalidates the provider's prompt cache, and reports it to operators."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from headgate.catalog.listing_builder import BuiltListing
from headgate.catalog.listing_variant import ListingVariant
from headgate.catalog.paged_listing import ListingFingerprint
from headgate.domain.listing_mode import ListingMode

log = logging.getLogger("headgate.catalog")

# Listings differ by mode, dialect and capabilities; those of clients with unusual capabilities go first.
_MOST_LISTINGS: Final = 64
_MOST_NAMED: Final = 20


class ListingChange(msgspec.Struct, frozen=True):
    """The items that a listing gained, lost or changed."""

    at: float
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    # The number beyond those that are named.
    more: int = 0


class ListingDigestStore(Protocol):
    """Stores digests of listings across restarts."""

    def listing_digest(self, label: str) -> str | None:
        """The stored digest."""

    def remember_listing(self, label: str, digest: str) -> None:
        """Store a digest."""


class _TrackedListing(msgspec.Struct):
    """One listing as it was last served."""

    label: str
    fingerprint: ListingFingerprint
    changes: int
    last: ListingChange | None = None


class ListingChangeLog:
    """Compares each listing with the one served before."""

    def __init__(self, memory: ListingDigestStore, now: Callable[[], float] = time.time) -> None:
        self._memory = memory
        self._now = now
        self._known: dict[str, _TrackedListing] = {}

    def record(self, label: str, fingerprint: ListingFingerprint, variant: str = "") -> None:
        """Record a served listing; its variants share a label, and each is compared with itself."""
        key = f"{label} {variant}".rstrip()
        known = self._known.pop(key, None)
        if known is None:
            if len(self._known) >= _MOST_LISTINGS:
                del self._known[next(iter(self._known))]
            differs = self._memory.listing_digest(key) not in (None, fingerprint.digest)
            if differs:
                log.info("listing is not what it was before the restart", extra={"listing": label})
            known = _TrackedListing(label, fingerprint, int(differs))
        # To the end of the dict, so that it is evicted last.
        self._known[key] = known
        if known.fingerprint.digest != fingerprint.digest:
            known.changes += 1
            known.last = change = _difference(known.fingerprint, fingerprint, self._now())
            extra = {
                "listing": label,
                "added": list(change.added),
                "removed": list(change.removed),
                "changed": list(change.changed),
                "changes": known.changes,
            }
            log.info("listing changed", extra=extra)
        known.fingerprint = fingerprint
        self._memory.remember_listing(key, fingerprint.digest)

    @property
    def total(self) -> int:
        return sum(known.changes for known in self._known.values())

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for known in self._known.values():
            counts[known.label] = counts.get(known.label, 0) + known.changes
        return counts

    def latest(self) -> dict[str, ListingFingerprint]:
        """Each listing as it was last served."""
        return {known.label: known.fingerprint for known in self._known.values()}

    def last(self, label: str) -> ListingChange | None:
        changes = [known.last for known in self._known.values() if known.label == label and known.last]
        return max(changes, key=lambda change: change.at, default=None)


def _difference(before: ListingFingerprint, after: ListingFingerprint, at: float) -> ListingChange:
    old, new = before.items, after.items
    added = tuple(name for name in new if name not in old)
    removed = tuple(name for name in old if name not in new)
    changed = tuple(name for name in new if name in old and new[name] != old[name])
    more = sum(len(names[_MOST_NAMED:]) for names in (added, removed, changed))
    return ListingChange(at, added[:_MOST_NAMED], removed[:_MOST_NAMED], changed[:_MOST_NAMED], more)


class ListingReport(msgspec.Struct, frozen=True):
    """One listing in the operator's report."""

    listing: str
    mode: ListingMode
    tools: int
    bytes: int
    tokens: int | None
    digest: str
    changes: int
    # The number of tools in full, slim, as stubs, and left to search.
    levels: dict[str, int]
    pins_left: tuple[str, ...] = ()
    adapted: dict[str, tuple[str, ...]] = {}
    last_change: ListingChange | None = None


def listing_reports(
    views: Mapping[ListingVariant, BuiltListing], changes: ListingChangeLog
) -> list[ListingReport]:
    """Every listing that was built or served."""
    made = {variant.label: built for variant, built in views.items()}
    prints = changes.latest() | {label: built.listing.fingerprint for label, built in made.items()}
    reports = []
    for label, fingerprint in prints.items():
        built = made.get(label)
        levels = built.levels if built is not None else {}
        reports.append(
            ListingReport(
                label,
                built.mode if built is not None else ListingMode(label.split(maxsplit=1)[0]),
                len(fingerprint.items),
                fingerprint.size,
                built.tokens if built is not None else None,
                fingerprint.digest,
                changes.counts().get(label, 0),
                {level.name.lower(): count for level, count in sorted(levels.items())},
                built.pins_left if built is not None else (),
                dict(built.adapted) if built is not None else {},
                changes.last(label),
            )
        )
    return reports
