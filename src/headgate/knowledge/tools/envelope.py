"""What goes around a result: pagination, warnings, and what desktop clients want to know of the answer."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from headgate import __version__
from headgate.knowledge.search.query import SearchNotice as Notice

# Up to this a number is one token, from there on two: models read numbers in groups of three digits.
_ONE_TOKEN = 1000


class EnvelopeMetadata(msgspec.Struct, frozen=True):
    """When an answer is given, what it is called, and which version gives it."""

    # Seconds since 1970.
    wall_clock: Callable[[], float]
    # Another one each time.
    request_id: Callable[[], str]
    version: str = __version__


class ExecutionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer came about."""

    operation: str
    tokens_estimated: int
    cache_hit: bool
    execution_time_ms: float


def pagination(cursor: str | None, page_size: int, total: int) -> dict[str, Any]:
    """Where the page stands in the whole."""
    return {
        "cursor": cursor,
        "page_size": page_size,
        "has_more": cursor is not None,
        "total_available": total,
    }


def with_warnings(answer: dict[str, Any], warnings: Sequence[Notice]) -> dict[str, Any]:
    """The answer with the warnings, when there are some."""
    return {**answer, "warnings": encode_warnings(warnings)} if warnings else answer


def encode_warnings(warnings: Iterable[Notice]) -> list[dict[str, str]]:
    """Each with level, code, message and suggestion."""
    return [msgspec.structs.asdict(warning) for warning in warnings]


def desktop_envelope(
    answer: dict[str, Any], warnings: Sequence[Notice], handling: ExecutionInfo, metadata: EnvelopeMetadata
) -> dict[str, Any]:
    """The answer in its envelope; `tokens_used` is not known yet, see `with_tokens`."""
    return {
        "_metadata": envelope_header(handling.operation, "success", metadata),
        **answer,
        "execution_context": {
            "tokens_estimated": handling.tokens_estimated,
            "tokens_used": 0,
            "cache_hit": handling.cache_hit,
            "execution_time_ms": handling.execution_time_ms,
        },
        "warnings": encode_warnings(warnings),
    }


def envelope_header(operation: str, status: str, metadata: EnvelopeMetadata) -> dict[str, Any]:
    """What an envelope begins with."""
    return {
        "operation": operation,
        "version": metadata.version,
        "timestamp": iso_timestamp(metadata.wall_clock()),
        "request_id": metadata.request_id(),
        "status": status,
    }


def with_tokens(answer: dict[str, Any], tokens: int) -> int:
    """Write into the envelope how many tokens the answer has, that number among them; returns it."""
    used = tokens + 1 if tokens >= _ONE_TOKEN else tokens
    answer["execution_context"]["tokens_used"] = used
    return used


def iso_timestamp(seconds: float) -> str | None:
    """A moment as ISO 8601 in UTC; None for one that nobody knows."""
    if seconds <= 0:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
