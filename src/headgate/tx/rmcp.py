"""What this library says in the words of rmcp, and what it has in common with its peer."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from headgate.domain.ticket import FEATURES
from headgate.tx.requests import TxRequest
from headgate.wire.rmcp import META, VERSION, Asked, speaks


def capability(features: Collection[str]) -> dict[str, Any]:
    """What a client says of itself under `experimental.rmcp`."""
    return {"version": VERSION, "features": [feature for feature in FEATURES if feature in features]}


def agreed(capabilities: object, offered: Collection[str]) -> frozenset[str] | None:
    """The features that a server has too, by its capabilities; None when it does not speak rmcp."""
    experimental = capabilities.get("experimental") if isinstance(capabilities, Mapping) else None
    said = experimental.get(META) if isinstance(experimental, Mapping) else None
    if not isinstance(said, Mapping):
        return None
    version, features = said.get("version"), said.get("features")
    if not isinstance(version, str) or not speaks(version):
        return None
    named = features if isinstance(features, list | tuple) else ()
    return frozenset(offered).intersection(name for name in named if isinstance(name, str))


def request_meta(request: TxRequest, features: frozenset[str], now: float) -> dict[str, Any]:
    """What goes with one attempt; what is absent is omitted."""
    is_keyed = request.idempotency_key is not None and "idempotency" in features
    is_step = request.transaction_id is not None and "transactions" in features
    asked = Asked(
        version=VERSION,
        request_id=request.request_id,
        transaction_id=request.transaction_id if is_step else None,
        sequence=request.sequence if is_step else None,
        idempotency_key=request.idempotency_key if is_keyed else None,
        on_doubt="retry" if is_keyed and request.retries_doubt else None,
        expect_ack="ack" in features,
        retry_count=request.attempts - 1,
        timeout_ms=max(1, int(request.timeout_ms)),
        timestamp=datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    )
    meta: dict[str, Any] = msgspec.to_builtins(asked)
    return meta
