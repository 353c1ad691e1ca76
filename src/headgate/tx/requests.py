"""One call on its way: what was asked, how it is to be sent, and how far it has come."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headgate.tx.config import RetryPolicy


class RequestState(StrEnum):
    """How far a request has come; the last three are final."""

    PENDING = "pending"
    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"


@dataclass(slots=True, kw_only=True, eq=False)
class TxRequest:
    """A call that has not ended yet."""

    request_id: str
    tool: str
    arguments: dict[str, Any] | None
    timeout_ms: float
    retry_policy: RetryPolicy
    idempotency_key: str | None = None
    # Whether a call that may have happened is to be made again all the same.
    retries_doubt: bool = False
    transaction_id: str | None = None
    sequence: int | None = None
    meta: dict[str, Any] | None = None
    progress_callback: Callable[..., Any] | None = None
    state: RequestState = RequestState.PENDING
    # So many times it has been sent, or tried to.
    attempts: int = 0
    # Whether some attempt may have reached the peer.
    sent: bool = False
    # Whether some attempt may have been carried out without an answer.
    in_doubt: bool = False
    # Whether that was an attempt of an earlier call with the same key.
    repeats_doubt: bool = False
    # Whether it was last sent to a peer that keeps its key.
    durable: bool = False
