"""Token buckets that limit how often an upstream and each of its tools are called."""

from collections.abc import Callable

from headgate.domain.upstream_policy import Rate, UpstreamPolicy
from headgate.domain.wildcards import matches_any

# Less than this is not waited for: it is what sums of fractions leave over.
_NEGLIGIBLE_SECONDS = 1e-6


class TokenBucket:
    """Fills at its rate up to its burst; a token can be taken before it is there, by whoever waits for it."""

    def __init__(self, rate: Rate, now: Callable[[], float]) -> None:
        self._rate = rate
        self._now = now
        self._tokens = float(rate.burst)
        self._filled_at = now()

    def seconds_until_token(self) -> float:
        """Seconds until the next token is there."""
        at = self._now()
        self._tokens += max(0.0, at - self._filled_at) * self._rate.per_second
        self._tokens = min(self._tokens, float(self._rate.burst))
        self._filled_at = at
        seconds = (1.0 - self._tokens) / self._rate.per_second
        return seconds if seconds > _NEGLIGIBLE_SECONDS else 0.0

    def take_token(self) -> None:
        """Take the token that `wait` spoke of."""
        self._tokens -= 1.0

    def return_token(self) -> None:
        """A token that was taken is not used."""
        self._tokens += 1.0


class UpstreamRateLimit:
    """The bucket of a server, and that of each tool that has its own."""

    def __init__(self, server: str, policy: UpstreamPolicy, now: Callable[[], float]) -> None:
        self._server = server
        self._policy = policy
        self._now = now
        self._server_bucket = TokenBucket(policy.all.rate, now) if policy.all.rate is not None else None
        self._tool_buckets: dict[str, TokenBucket | None] = {}

    @staticmethod
    def is_configured(policy: UpstreamPolicy) -> bool:
        """Whether there is any bucket at all."""
        return policy.all.rate is not None or any(own.rate is not None for own in policy.tools.values())

    def seconds_until_token(self, tool: str) -> tuple[float, str]:
        """Seconds until there is a token in every bucket, and whose bucket is the last to have one."""
        waits = [(0.0, "")]
        if self._server_bucket is not None:
            waits.append((self._server_bucket.seconds_until_token(), repr(self._server)))
        own = self._tool_bucket(tool)
        if own is not None:
            waits.append((own.seconds_until_token(), f"{tool!r} of {self._server!r}"))
        return max(waits)

    def take_tokens(self, tool: str) -> None:
        """Take one token of every bucket."""
        for bucket in self._buckets(tool):
            bucket.take_token()

    def return_tokens(self, tool: str) -> None:
        """The tokens of a call that was not made."""
        for bucket in self._buckets(tool):
            bucket.return_token()

    def _buckets(self, tool: str) -> list[TokenBucket]:
        return [bucket for bucket in (self._server_bucket, self._tool_bucket(tool)) if bucket is not None]

    def _tool_bucket(self, tool: str) -> TokenBucket | None:
        """What the operator says of the tool by itself; each that a pattern fits has its own bucket."""
        if tool not in self._tool_buckets:
            policies = (policy for name, policy in self._policy.tools.items() if matches_any(tool, (name,)))
            policy = next(policies, None)
            rate = policy.rate if policy is not None else None
            self._tool_buckets[tool] = TokenBucket(rate, self._now) if rate is not None else None
        return self._tool_buckets[tool]
