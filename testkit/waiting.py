"""Waiting for something to become true, always under a bound."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

# Short enough that a wait ends soon after its condition holds, long enough to leave the cores to the work.
PAUSE_SECONDS = 0.02


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Return once `condition` holds; raise TimeoutError naming `what` when it does not within `seconds`."""
    give_up_at = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(PAUSE_SECONDS)


async def eventually(condition: Callable[[], Any], seconds: float, what: str) -> float:
    """Do what `wait_until` does without blocking the loop; the condition may be a coroutine function."""
    started = time.monotonic()
    while True:
        holds = condition()
        if asyncio.iscoroutine(holds):
            holds = await holds
        waited = time.monotonic() - started
        if holds:
            return waited
        if waited > seconds:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(PAUSE_SECONDS)
