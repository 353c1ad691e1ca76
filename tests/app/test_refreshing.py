"""A change is looked at even if the look before it failed."""

import asyncio
from collections.abc import Collection

from headgate.app.refreshing import Refreshing
from headgate.server.change_notifier import ChangeNotifier

SECONDS = 10


class Failing:
    """Fails the first time, while something else changes."""

    def __init__(self) -> None:
        self.looked = 0
        self.refreshing: Refreshing | None = None

    async def refresh(self) -> Collection[str]:
        self.looked += 1
        if self.looked == 1 and self.refreshing is not None:
            self.refreshing.wake()
            raise ValueError("no")
        return ()


async def test_a_change_during_a_look_that_fails_is_not_lost() -> None:
    tool_listings, made = Failing(), asyncio.Event()
    refreshing = tool_listings.refreshing = Refreshing(tool_listings, ChangeNotifier(), made.set)
    refreshing.wake()
    await asyncio.wait_for(made.wait(), SECONDS)
    assert tool_listings.looked == 2
    await refreshing.close()
