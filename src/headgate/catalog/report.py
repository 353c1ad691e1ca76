"""What is shown to clients, as an operator sees it."""

from collections.abc import Mapping

import msgspec

from headgate.catalog.changes import Change, Changes
from headgate.catalog.listing import Print
from headgate.catalog.scene import Scene
from headgate.catalog.views import View
from headgate.domain.listing import Mode


class Shown(msgspec.Struct, frozen=True):
    """One listing."""

    listing: str
    mode: Mode
    tools: int
    bytes: int
    tokens: int | None
    digest: str
    changes: int
    # In full, in a few words, in hardly any, and by search alone.
    levels: dict[str, int]
    pins_left: tuple[str, ...] = ()
    adapted: dict[str, tuple[str, ...]] = {}
    last_change: Change | None = None


def report(views: Mapping[Scene, View], changes: Changes) -> list[Shown]:
    """Every listing that was made or shown."""
    made = {scene.label: view for scene, view in views.items()}
    prints = changes.shown() | {label: view.listing.print for label, view in made.items()}
    return [_shown(label, shown, made.get(label), changes) for label, shown in prints.items()]


def _shown(label: str, shown: Print, view: View | None, changes: Changes) -> Shown:
    levels = view.levels if view is not None else {}
    return Shown(
        label,
        view.mode if view is not None else Mode(label.split(maxsplit=1)[0]),
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
