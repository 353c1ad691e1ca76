"""Numbers of the call path, counted so cheaply that nobody needs to switch them off."""

from bisect import bisect_left

# Upper bounds in seconds; from a call inside the gateway to one that takes minutes.
BUCKETS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)


class Tally:
    """Calls by outcome, and how long they took."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, str], int] = {}
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    def count(self, server: str, outcome: str, seconds: float) -> None:
        """One call is over; `outcome` is `ok`, `tool_error`, `error` or the code of a failure."""
        key = (server, outcome)
        self.outcomes[key] = self.outcomes.get(key, 0) + 1
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds
