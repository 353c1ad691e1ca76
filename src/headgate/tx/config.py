"""The settings of a session: timeouts, retries, deduplication and features."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from headgate.domain.delivery_request import FEATURES
from headgate.domain.errors import ERROR_CODES

RETRYABLE_ERRORS: Final = frozenset({"CONNECTION_ERROR", "TIMEOUT", "NETWORK_ERROR", "TEMPORARY_FAILURE"})
_LONGEST_KEY: Final = 255
# Reserved for the gateway's own keys.
_RESERVED: Final = "headgate:"
# The largest relative deviation of a delay, in either direction.
_JITTER: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a call is attempted, and the delays in between; raises ValueError out of range.

    A policy never makes a retry safe: a call that may have been executed is retried only if the tool allows.
    """

    max_attempts: int = 3
    base_delay_ms: float = 1000
    max_delay_ms: float = 30_000
    backoff_multiplier: float = 2.0
    # Plus or minus 20 %, so that clients that failed together do not retry together.
    jitter: bool = True
    # TEMPORARY_FAILURE covers every error that the peer marks as retryable.
    retryable_errors: Collection[str] = RETRYABLE_ERRORS

    def __post_init__(self) -> None:
        _check("max_attempts", self.max_attempts, 1, 10)
        _check("base_delay_ms", self.base_delay_ms, 100)
        _check("max_delay_ms", self.max_delay_ms, 1000)
        _check("backoff_multiplier", self.backoff_multiplier, 1, 10)
        codes: object = self.retryable_errors
        if isinstance(codes, str) or not isinstance(codes, Collection):
            raise TypeError(f"retryable_errors must be a collection of codes such as TIMEOUT, not {codes!r}")
        if unknown := [code for code in codes if not (isinstance(code, str) and code in ERROR_CODES)]:
            raise ValueError(
                f"retryable_errors must be codes of errors such as TIMEOUT, and {unknown[0]!r} is none"
            )

    def delay_ms(self, failures: int, random: float) -> float:
        """The delay after so many failures, with a random number in [0, 1)."""
        delay = min(self.max_delay_ms, self.base_delay_ms * self.backoff_multiplier ** (failures - 1))
        if self.jitter:
            delay *= 1 + _JITTER * (2 * random - 1)
        return delay


@dataclass(frozen=True, slots=True, kw_only=True)
class TxConfig:
    """How a session delivers its calls; raises ValueError out of range."""

    # Bounds each attempt, from waiting for a free slot to the last byte of the answer.
    default_timeout_ms: float = 30_000
    max_concurrent_requests: int = 10
    # How long a key is remembered in this process, and how many of them.
    deduplication_window_ms: float = 300_000
    max_keys: int = 10_000
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    # Whether unexpected exceptions are retryable.
    retry_unknown: bool = False
    # Whether the annotations of tools (read-only, idempotent) are trusted.
    trust_annotations: bool = True
    # The rmcp features that the client offers.
    features: Collection[str] = FEATURES
    transaction_timeout_ms: float = 300_000
    # The largest result that is assembled from chunks.
    max_transfer_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        _check("default_timeout_ms", self.default_timeout_ms, 1000, 600_000)
        _check("max_concurrent_requests", self.max_concurrent_requests, 1, 100)
        _check("deduplication_window_ms", self.deduplication_window_ms, 10_000, 3_600_000)
        _check("max_keys", self.max_keys, 1)
        _check("transaction_timeout_ms", self.transaction_timeout_ms, 1, 7_200_000)
        _check("max_transfer_bytes", self.max_transfer_bytes, 1)
        check_policy(self.retry_policy)
        if unknown := sorted(set(self.features) - set(FEATURES)):
            raise ValueError(f"features must be among {', '.join(FEATURES)}, not {unknown[0]!r}")


def check_timeout(timeout_ms: float) -> float:
    """The timeout, if it is valid; raises ValueError."""
    _check("timeout_ms", timeout_ms, 1, 7_200_000)
    return timeout_ms


def check_key(key: str | None) -> str | None:
    """The key, if it is valid; raises ValueError or TypeError."""
    if key is None:
        return None
    if not isinstance(key, str):
        raise TypeError(f"idempotency_key must be a text, not {key!r}")
    if not (0 < len(key) <= _LONGEST_KEY and key.isprintable()):
        raise ValueError(f"idempotency_key must be 1 to {_LONGEST_KEY} printable characters")
    if key.startswith(_RESERVED):
        raise ValueError(f"idempotency_key must not begin with {_RESERVED!r}")
    return key


def check_arguments(arguments: Any) -> dict[str, Any] | None:
    """The arguments, if they are valid; raises TypeError."""
    if arguments is None:
        return None
    if not isinstance(arguments, Mapping):
        raise TypeError(f"arguments must be a dict with string keys, not {type(arguments).__name__}")
    if strange := [key for key in arguments if not isinstance(key, str)]:
        raise TypeError(f"arguments must be a dict with string keys, not one with the key {strange[0]!r}")
    return arguments if isinstance(arguments, dict) else dict(arguments)


def check_policy(policy: RetryPolicy) -> RetryPolicy:
    """The policy, if it is one; raises TypeError."""
    if not isinstance(policy, RetryPolicy):
        raise TypeError(f"retry_policy must be a RetryPolicy, not {policy!r}")
    return policy


def _check(name: str, value: object, least: float, most: float = inf) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Written so that NaN is refused too.
    if not is_number or not least <= value <= most:  # type: ignore[operator]
        limits = f"at least {least:.15g}" if most == inf else f"from {least:.15g} to {most:.15g}"
        raise ValueError(f"{name} must be {limits}, not {value!r}")
