"""Notices that files were added, changed or removed, once nobody is writing them any more."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Final

# Somebody who writes all the time does not keep the others waiting for longer than so many looks.
_MOST_LOOKS: Final = 10

Looks = Mapping[str, object]
Look = Callable[[], Awaitable[Looks]]
Sleep = Callable[[float], Awaitable[object]]


async def changes(
    look: Look, interval_seconds: float, *, sleep: Sleep = asyncio.sleep
) -> AsyncGenerator[frozenset[str], None]:
    """Which files are to be read anew: at first all of them, then those that changed; never ends by itself.

    `look` tells what each file looks like. What changes while the caller reads is noticed after that.
    """
    settled = await look()
    yield frozenset(settled)
    before, looks = settled, 0
    while True:
        await sleep(interval_seconds)
        now = await look()
        changed = _differing(settled, now)
        looks = looks + 1 if changed else 0
        if changed and (not changed & _differing(before, now) or looks >= _MOST_LOOKS):
            settled, before, looks = now, now, 0
            yield changed
        before = now


def _differing(one: Looks, other: Looks) -> frozenset[str]:
    return frozenset(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
