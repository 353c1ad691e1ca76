"""Keeps the views that were made, and makes one anew when the catalog has changed."""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

from headgate.catalog.scene import Scene
from headgate.catalog.views import View, Views
from headgate.domain.item import Item
from headgate.domain.profile import PLAIN, Profile

log = logging.getLogger("headgate.catalog")

# Prepared listings of many tools take megabytes each.
_MOST_VIEWS: Final = 64
# While a view of thousands of tools is made the catalog may change, but not for ever.
_MOST_ROUNDS: Final = 3
_MOST_NAMED: Final = 20


class Everything(Protocol):
    """The tools of the catalog."""

    def visible(self, profile: Profile) -> list[Item]:
        """What clients of that profile see; an equal list until something changes."""

    def differs(self, profile: Profile) -> bool:
        """Whether they see other tools than clients without capabilities."""

    def servers(self) -> tuple[str, ...]:
        """The servers, in the order of the configuration: what finds tools names them."""


# What a view was made of.
_Source = tuple[list[Item], tuple[str, ...]]


class Gallery:
    """One view for each scene; profiles that are shown what everybody is shown share one."""

    def __init__(self, everything: Everything, views: Views) -> None:
        self._everything = everything
        self._views = views
        # With what each was made of.
        self._made: dict[Scene, tuple[_Source, View]] = {}
        # How often everything was forgotten: what was in the making meanwhile is out of date.
        self._forgotten = 0
        # A client that leaves does not stop what others may wait for.
        self._making: dict[Scene, asyncio.Task[None]] = {}
        # One view at a time: each takes a processor for itself.
        self._thread = ThreadPoolExecutor(1, "listings")

    @property
    def views(self) -> Mapping[Scene, View]:
        """What was made so far."""
        return {scene: view for scene, (_, view) in self._made.items()}

    def made(self, scene: Scene) -> View | None:
        """The view as it was made last."""
        made = self._made.get(self.shared(scene))
        return made[1] if made is not None else None

    def shared(self, scene: Scene) -> Scene:
        """The scene of all clients that see the same."""
        return scene if self._everything.differs(scene.profile) else Scene(PLAIN, scene.sight)

    async def view(self, scene: Scene) -> View:
        """The view of the catalog as it is now, or was a moment ago if it changes all the time."""
        rounds = 0
        while True:
            scene = self.shared(scene)
            made = self._made.get(scene)
            if made is not None and (made[0] == self._source(scene) or rounds >= _MOST_ROUNDS):
                # To the end, where it is not dropped: what is asked for again and again stays.
                self._made[scene] = self._made.pop(scene)
                return made[1]
            rounds += 1
            if scene not in self._making:
                self._making[scene] = making = asyncio.create_task(self._make(scene), name="view")
                making.add_done_callback(partial(self._ended, scene))
            await asyncio.shield(self._making[scene])

    def _ended(self, scene: Scene, making: "asyncio.Task[None]") -> None:
        del self._making[scene]
        if not making.cancelled() and (error := making.exception()) is not None:
            # Whoever waited for it may be gone.
            log.error("a listing could not be made", exc_info=error, extra={"listing": scene.label})

    def _source(self, scene: Scene) -> _Source:
        return self._everything.visible(scene.profile), self._everything.servers()

    async def _make(self, scene: Scene) -> None:
        source, forgotten = self._source(scene), self._forgotten
        loop = asyncio.get_running_loop()
        # In another thread: thousands of tools take a second.
        view = await loop.run_in_executor(self._thread, self._views.build, scene.sight, source[0])
        if forgotten == self._forgotten:
            self._keep(scene, source, view)

    def _keep(self, scene: Scene, source: _Source, view: View) -> None:
        before = self._made.pop(scene, None)
        self._made[scene] = (source, view)
        if len(self._made) > _MOST_VIEWS:
            del self._made[next(iter(self._made))]
        _tell(scene, view, before[1] if before is not None else None)

    def forget(self) -> None:
        """What views are made of besides the tools has changed."""
        self._made.clear()
        self._forgotten += 1

    def close(self) -> None:
        """Make nothing more; what is in the making is not waited for."""
        for making in self._making.values():
            making.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)


def _tell(scene: Scene, view: View, before: View | None) -> None:
    """Say what an operator should know of a view, once."""
    if view.choice and scene.profile == PLAIN and (before is None or before.choice != view.choice):
        log.info(view.choice, extra={"listing": scene.label})
    if view.pins_left and (before is None or before.pins_left != view.pins_left):
        extra = {"listing": scene.label, "tools": list(view.pins_left[:_MOST_NAMED])}
        log.warning("pinned tools do not fit the budget and are left to search", extra=extra)
    if view.adapted and (before is None or before.adapted.keys() != view.adapted.keys()):
        extra = {"listing": scene.label, "tools": list(view.adapted)[:_MOST_NAMED]}
        log.info("schemas were changed for the client's dialect", extra=extra)
