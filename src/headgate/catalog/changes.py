"""How often a listing changed, and what changed: each change costs clients their provider's prompt cache."""

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from headgate.catalog.listing import Print

log = logging.getLogger("headgate.catalog")

# Listings differ by mode, dialect and what clients declare; those of clients that declare odd things may go.
_MOST_LISTINGS: Final = 64
_MOST_NAMED: Final = 20


class Change(msgspec.Struct, frozen=True):
    """What a listing has and had not, lost, or says otherwise."""

    at: float
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    # More than are named.
    more: int = 0


class Memory(Protocol):
    """Remembers across restarts what was shown."""

    def listing_digest(self, label: str) -> str | None:
        """What was shown the last time."""

    def remember_listing(self, label: str, digest: str) -> None:
        """What is shown now."""


class _Known:
    """One listing as it was shown last."""

    def __init__(self, label: str, shown: Print, changes: int) -> None:
        self.label = label
        self.shown = shown
        self.changes = changes
        self.last: Change | None = None


class Changes:
    """Compares each listing with what was shown before."""

    def __init__(self, memory: Memory, now: Callable[[], float] = time.time) -> None:
        self._memory = memory
        self._now = now
        self._known: dict[str, _Known] = {}

    def note(self, label: str, shown: Print, variant: str = "") -> None:
        """This is shown now; variants of a listing have one label, and each is compared with itself."""
        key = f"{label} {variant}".rstrip()
        # To the end, where it is not dropped.
        known = self._known.pop(key) if key in self._known else self._first(key, label, shown)
        self._known[key] = known
        if known.shown.digest != shown.digest:
            known.changes += 1
            known.last = _difference(known.shown, shown, self._now())
            _tell(label, known)
        known.shown = shown
        self._memory.remember_listing(key, shown.digest)

    def _first(self, key: str, label: str, shown: Print) -> _Known:
        if len(self._known) >= _MOST_LISTINGS:
            del self._known[next(iter(self._known))]
        before = self._memory.listing_digest(key)
        differs = before is not None and before != shown.digest
        if differs:
            log.info("listing is not what it was before the restart", extra={"listing": label})
        return _Known(label, shown, int(differs))

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

    def shown(self) -> dict[str, Print]:
        """Each listing as it was shown last."""
        return {known.label: known.shown for known in self._known.values()}

    def last(self, label: str) -> Change | None:
        """What changed last."""
        changes = [known.last for known in self._known.values() if known.label == label and known.last]
        return max(changes, key=lambda change: change.at, default=None)


def _difference(before: Print, after: Print, at: float) -> Change:
    old, new = before.items, after.items
    added = [name for name in new if name not in old]
    removed = [name for name in old if name not in new]
    changed = [name for name in new if name in old and new[name] != old[name]]
    named = sum(min(len(names), _MOST_NAMED) for names in (added, removed, changed))
    return Change(
        at,
        tuple(added[:_MOST_NAMED]),
        tuple(removed[:_MOST_NAMED]),
        tuple(changed[:_MOST_NAMED]),
        len(added) + len(removed) + len(changed) - named,
    )


def _tell(label: str, known: _Known) -> None:
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
