"""Buckets of tokens: how often a server and each of its tools may be called."""

from collections.abc import Callable

from headgate.domain.care import Rate, ServerCare
from headgate.domain.wildcards import matches_any

# Less than this is not waited for: it is what sums of fractions leave over.
_NOTHING_SECONDS = 1e-6


class Bucket:
    """Fills at its rate up to its burst; a token can be taken before it is there, by whoever waits for it."""

    def __init__(self, rate: Rate, now: Callable[[], float]) -> None:
        self._rate = rate
        self._now = now
        self._tokens = float(rate.burst)
        self._filled_at = now()

    def wait(self) -> float:
        """Seconds until the next token is there."""
        at = self._now()
        self._tokens += max(0.0, at - self._filled_at) * self._rate.per_second
        self._tokens = min(self._tokens, float(self._rate.burst))
        self._filled_at = at
        seconds = (1.0 - self._tokens) / self._rate.per_second
        return seconds if seconds > _NOTHING_SECONDS else 0.0

    def take(self) -> None:
        """Take the token that `wait` spoke of."""
        self._tokens -= 1.0

    def give_back(self) -> None:
        """A token that was taken is not used."""
        self._tokens += 1.0


class Rates:
    """The bucket of a server, and that of each tool that has its own."""

    def __init__(self, server: str, care: ServerCare, now: Callable[[], float]) -> None:
        self._server = server
        self._care = care
        self._now = now
        self._whole = Bucket(care.all.rate, now) if care.all.rate is not None else None
        self._tools: dict[str, Bucket | None] = {}

    @staticmethod
    def in_force(care: ServerCare) -> bool:
        """Whether there is any bucket at all."""
        return care.all.rate is not None or any(own.rate is not None for own in care.tools.values())

    def wait(self, tool: str) -> tuple[float, str]:
        """Seconds until there is a token in every bucket, and whose bucket is the last to have one."""
        waits = [(0.0, "")]
        if self._whole is not None:
            waits.append((self._whole.wait(), repr(self._server)))
        own = self._own(tool)
        if own is not None:
            waits.append((own.wait(), f"{tool!r} of {self._server!r}"))
        return max(waits)

    def take(self, tool: str) -> None:
        """Take one token of every bucket."""
        for bucket in self._both(tool):
            bucket.take()

    def give_back(self, tool: str) -> None:
        """The tokens of a call that was not made."""
        for bucket in self._both(tool):
            bucket.give_back()

    def _both(self, tool: str) -> list[Bucket]:
        return [bucket for bucket in (self._whole, self._own(tool)) if bucket is not None]

    def _own(self, tool: str) -> Bucket | None:
        """What the operator says of the tool by itself; each that a pattern fits has its own bucket."""
        if tool not in self._tools:
            cares = (care for name, care in self._care.tools.items() if matches_any(tool, (name,)))
            care = next(cares, None)
            rate = care.rate if care is not None else None
            self._tools[tool] = Bucket(rate, self._now) if rate is not None else None
        return self._tools[tool]
