"""Who was shown which listing last."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from headgate.catalog.scene import Scene

# Circles that have listed, and scenes of each; who has not listed for the longest time goes first.
_MOST_CIRCLES: Final = 10_000
_MOST_SCENES: Final = 64


class Seen:
    """The digest of what each circle of clients was shown last, in each scene."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[Scene, str]] = {}

    def note(self, visibility_group: str, scene: Scene, digest: str, *, shared: bool = False) -> None:
        """The circle has been shown this.

        Of a `shared` one only a single client has, so the others are still to be told of a change.
        """
        seen = self._seen.pop(visibility_group, {})
        before = seen.pop(scene, digest)
        seen[scene] = before if shared else digest
        if len(seen) > _MOST_SCENES:
            del seen[next(iter(seen))]
        self._seen[visibility_group] = seen
        if len(self._seen) > _MOST_CIRCLES:
            del self._seen[next(iter(self._seen))]

    def tell(self, visibility_group: str, digests: Mapping[Scene, str]) -> None:
        """All of the circle are told that this is shown now."""
        seen = self._seen.get(visibility_group, {})
        seen.update((scene, digests[scene]) for scene in seen.keys() & digests.keys())

    def __iter__(self) -> Iterator[tuple[str, Mapping[Scene, str]]]:
        return iter(list(self._seen.items()))

    def scenes(self) -> Collection[Scene]:
        """Every scene that somebody is in."""
        return {scene: None for seen in self._seen.values() for scene in seen}.keys()

    def forget(self, visibility_group: str) -> None:
        """Its clients are gone."""
        self._seen.pop(visibility_group, None)


class AllBut:
    """Every circle but some."""

    def __init__(self, others: Collection[str]) -> None:
        self._others = frozenset(others)

    def __contains__(self, visibility_group: object) -> bool:
        return visibility_group not in self._others
