"""Makes listings anew after a change, before anybody asks, and tells those whose list is another now."""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from headgate.domain.kind import Kind
from headgate.server.change_notifier import ChangeNotifier

log = logging.getLogger("headgate")

# Fifty servers that connect one after the other are made one listing, not fifty.
_SETTLE_SECONDS = 0.05


class Showing(Protocol):
    """What clients see."""

    async def refresh(self) -> Collection[str]:
        """Whose listing is not what it was."""


class Refreshing:
    """One refresh at a time; changes during one lead to one more."""

    def __init__(
        self, tool_listings: Showing, change_notifier: ChangeNotifier, made: Callable[[], None]
    ) -> None:
        """`made` is called when listings are as the catalog is."""
        self._showing = tool_listings
        self._made = made
        self._change_notifier = change_notifier
        self._again = False
        self._running: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """The tools, or how they are shown, have changed."""
        self._again = True
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._refresh(), name="listings")

    async def _refresh(self) -> None:
        while self._again:
            self._again = False
            await asyncio.sleep(_SETTLE_SECONDS)
            try:
                visibility_groups = await self._showing.refresh()
            except Exception:
                # Clients that list get the same failure with its reason; the next change tries again.
                log.exception("listings not made")
                continue
            self._made()
            if visibility_groups:
                self._change_notifier.list_changed(Kind.TOOLS.capability, visibility_groups)

    async def close(self) -> None:
        """Make nothing more."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
