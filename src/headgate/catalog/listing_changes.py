"""Records how listings change (each change invalidates the provider's prompt cache) and reports them to
operators.
"""

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

# Listings differ by mode, dialect and what clients declare; those of clients that declare odd things may go.
_MOST_LISTINGS: Final = 64
_MOST_NAMED: Final = 20


class ListingChange(msgspec.Struct, frozen=True):
    """What a listing has and had not, lost, or says otherwise."""

    at: float
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    # More than are named.
    more: int = 0


class ListingDigestStore(Protocol):
    """Remembers across restarts what was shown."""

    def listing_digest(self, label: str) -> str | None:
        """What was shown the last time."""

    def remember_listing(self, label: str, digest: str) -> None:
        """What is shown now."""


class _TrackedListing:
    """One listing as it was shown last."""

    def __init__(self, label: str, shown: ListingFingerprint, changes: int) -> None:
        self.label = label
        self.fingerprint = shown
        self.changes = changes
        self.last: ListingChange | None = None


class ListingChangeLog:
    """Compares each listing with what was shown before."""

    def __init__(self, memory: ListingDigestStore, now: Callable[[], float] = time.time) -> None:
        self._memory = memory
        self._now = now
        self._known: dict[str, _TrackedListing] = {}

    def record(self, label: str, shown: ListingFingerprint, variant: str = "") -> None:
        """This is shown now; variants of a listing have one label, and each is compared with itself."""
        key = f"{label} {variant}".rstrip()
        # To the end, where it is not dropped.
        known = self._known.pop(key) if key in self._known else self._first(key, label, shown)
        self._known[key] = known
        if known.fingerprint.digest != shown.digest:
            known.changes += 1
            known.last = _difference(known.fingerprint, shown, self._now())
            _log_change(label, known)
        known.fingerprint = shown
        self._memory.remember_listing(key, shown.digest)

    def _first(self, key: str, label: str, shown: ListingFingerprint) -> _TrackedListing:
        if len(self._known) >= _MOST_LISTINGS:
            del self._known[next(iter(self._known))]
        before = self._memory.listing_digest(key)
        differs = before is not None and before != shown.digest
        if differs:
            log.info("listing is not what it was before the restart", extra={"listing": label})
        return _TrackedListing(label, shown, int(differs))

    @property
    def total(self) -> int:
        """How often any listing changed."""
        return sum(known.changes for known in self._known.values())

    def counts(self) -> dict[str, int]:
        """How often each listing changed."""
        counts: dict[str, int] = {}
        for known in self._known.values():
            counts[known.label] = counts.get(known.label, 0) + known.changes
        return counts

    def latest(self) -> dict[str, ListingFingerprint]:
        """Each listing as it was shown last."""
        return {known.label: known.fingerprint for known in self._known.values()}

    def last(self, label: str) -> ListingChange | None:
        """What changed last."""
        changes = [known.last for known in self._known.values() if known.label == label and known.last]
        return max(changes, key=lambda change: change.at, default=None)


def _difference(before: ListingFingerprint, after: ListingFingerprint, at: float) -> ListingChange:
    old, new = before.items, after.items
    added = [name for name in new if name not in old]
    removed = [name for name in old if name not in new]
    changed = [name for name in new if name in old and new[name] != old[name]]
    named = sum(min(len(names), _MOST_NAMED) for names in (added, removed, changed))
    return ListingChange(
        at,
        tuple(added[:_MOST_NAMED]),
        tuple(removed[:_MOST_NAMED]),
        tuple(changed[:_MOST_NAMED]),
        len(added) + len(removed) + len(changed) - named,
    )


def _log_change(label: str, known: _TrackedListing) -> None:
    change = known.last
    assert change is not None
    extra = {
        "listing": label,
        "added": list(change.added),
        "removed": list(change.removed),
        "changed": list(change.changed),
        "changes": known.changes,
    }
    log.info("listing changed", extra=extra)


class ListingReport(msgspec.Struct, frozen=True):
    """One listing."""

    listing: str
    mode: ListingMode
    tools: int
    bytes: int
    tokens: int | None
    digest: str
    changes: int
    # In full, in a few words, in hardly any, and by search alone.
    levels: dict[str, int]
    pins_left: tuple[str, ...] = ()
    adapted: dict[str, tuple[str, ...]] = {}
    last_change: ListingChange | None = None


def listing_reports(
    views: Mapping[ListingVariant, BuiltListing], changes: ListingChangeLog
) -> list[ListingReport]:
    """Every listing that was made or shown."""
    made = {variant.label: view for variant, view in views.items()}
    prints = changes.latest() | {label: view.listing.fingerprint for label, view in made.items()}
    return [_listing_report(label, shown, made.get(label), changes) for label, shown in prints.items()]


def _listing_report(
    label: str, shown: ListingFingerprint, view: BuiltListing | None, changes: ListingChangeLog
) -> ListingReport:
    levels = view.levels if view is not None else {}
    return ListingReport(
        label,
        view.mode if view is not None else ListingMode(label.split(maxsplit=1)[0]),
        len(shown.items),
        shown.size,
        view.tokens if view is not None else None,
        shown.digest,
        changes.counts().get(label, 0),
        {level.name.lower(): count for level, count in sorted(levels.items())},
        view.pins_left if view is not None else (),
        dict(view.adapted) if view is not None else {},
        changes.last(label),
    )
