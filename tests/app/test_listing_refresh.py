"""A change is looked at even if the look before it failed."""

import asyncio
from collections.abc import Collection

from headgate.app.listing_refresh import ListingRefresher
from headgate.domain.identity import everything_visible
from headgate.event_loop import BackgroundTasks
from headgate.server.change_notifier import ChangeNotifier

SECONDS = 10


class Failing:
    """Fails the first time, while something else changes."""

    def __init__(self) -> None:
        self.looked = 0
        self.refreshing: ListingRefresher | None = None

    async def refresh(self) -> Collection[str]:
        self.looked += 1
        if self.looked == 1 and self.refreshing is not None:
            self.refreshing.schedule()
            raise ValueError("no")
        return ()


async def test_a_change_during_a_look_that_fails_is_not_lost() -> None:
    tool_listings, made = Failing(), asyncio.Event()
    async with BackgroundTasks() as tasks:
        refreshing = ListingRefresher(tool_listings, ChangeNotifier(everything_visible), made.set, tasks)
        tool_listings.refreshing = refreshing
        refreshing.schedule()
        await asyncio.wait_for(made.wait(), SECONDS)
    assert tool_listings.looked == 2
