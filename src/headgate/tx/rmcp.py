"""The rmcp metadata of requests and answers, and the negotiation of features."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from headgate.domain.delivery_request import FEATURES
from headgate.protocol.rmcp import META, META_ALIAS, VERSION, RmcpRequestMeta, supports_version
from headgate.tx.tool_call import TxRequest

ONE_NAME = (META,)
BOTH_NAMES = (META, META_ALIAS)


def capability(features: Collection[str]) -> dict[str, Any]:
    """The capability of the client under `experimental.rmcp`."""
    return {"version": VERSION, "features": [feature for feature in FEATURES if feature in features]}


def negotiated_features(capabilities: object, offered: Collection[str]) -> frozenset[str] | None:
    """The offered features that the server announces too; None when it does not announce rmcp."""
    announced = _announced(capabilities, META) or _announced(capabilities, META_ALIAS)
    if announced is None:
        return None
    features = announced.get("features")
    named = features if isinstance(features, list | tuple) else ()
    return frozenset(offered).intersection(name for name in named if isinstance(name, str))


def meta_names_of(capabilities: object) -> tuple[str, ...]:
    """The names of the metadata for a server; one that announces only the alias gets both."""
    by_alias = _announced(capabilities, META) is None and _announced(capabilities, META_ALIAS) is not None
    return BOTH_NAMES if by_alias else ONE_NAME


def _announced(capabilities: object, name: str) -> Mapping[str, Any] | None:
    """The announcement under that name, if its version is supported."""
    experimental = capabilities.get("experimental") if isinstance(capabilities, Mapping) else None
    announced = experimental.get(name) if isinstance(experimental, Mapping) else None
    version = announced.get("version") if isinstance(announced, Mapping) else None
    return announced if isinstance(version, str) and supports_version(version) else None


def delivery_metadata_of(meta: object) -> Mapping[str, Any]:
    """The delivery metadata in the `_meta` of an answer, under either name; empty without any."""
    for name in BOTH_NAMES:
        delivery_status = meta.get(name) if isinstance(meta, Mapping) else None
        if isinstance(delivery_status, Mapping):
            return delivery_status
    return {}


def request_meta(request: TxRequest, features: frozenset[str], now: float) -> dict[str, Any]:
    is_keyed = request.idempotency_key is not None and "idempotency" in features
    is_step = request.transaction_id is not None and "transactions" in features
    request_metadata = RmcpRequestMeta(
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
    meta: dict[str, Any] = msgspec.to_builtins(request_metadata)
    return meta
