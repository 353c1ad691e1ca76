"""Time that passes when a test says so."""

from collections.abc import Callable


class Sleeper:
    """Remembers how long it was told to sleep, and does not."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        """Have slept."""
        self.slept.append(seconds)


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.seconds


def middle() -> float:
    """A random number that leaves every delay as it is."""
    return 0.5


NO_CHANCE: Callable[[], float] = middle
