"""One call of a tool: the request in flight, and the result for its caller."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headgate.domain.errors import Effect
from headgate.tx.config import RetryPolicy
from headgate.tx.errors import error_for


class RequestState(StrEnum):
    """The state of a request; the last three are final."""

    PENDING = "pending"
    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"


@dataclass(slots=True, kw_only=True, eq=False)
class TxRequest:
    request_id: str
    tool: str
    arguments: dict[str, Any] | None
    timeout_ms: float
    retry_policy: RetryPolicy
    idempotency_key: str | None = None
    # Whether to send the call even if an earlier one may have been executed.
    retries_doubt: bool = False
    transaction_id: str | None = None
    sequence: int | None = None
    meta: dict[str, Any] | None = None
    progress_callback: Callable[..., Any] | None = None
    state: RequestState = RequestState.PENDING
    # Attempts so far, including those that were not sent.
    attempts: int = 0
    # Whether some attempt may have reached the peer.
    sent: bool = False
    # Whether an attempt may have been executed without an answer.
    in_doubt: bool = False
    # Whether that attempt belongs to an earlier call with the same key.
    repeats_doubt: bool = False
    # Whether it was last sent to a peer that keeps its key.
    durable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TxResult:
    """How a call ended; a tool that answers with `isError` has answered, and is completed."""

    # The answer of the wrapped session, if any.
    result: Any = None
    # Whether the peer accepted the call: it acknowledged or answered it.
    ack: bool = False
    # Whether the server itself answered, with a result or with an error.
    answered: bool = False
    # Whether the peer keeps the key, so that a repeat gets the answer after this program has ended.
    durable: bool = False
    # Whether the tool was executed; None when unknown.
    processed: bool | None = None
    # Whether this is the answer of an earlier call with the same key.
    duplicate: bool = False
    attempts: int = 0
    # Completed, failed or timeout.
    final_status: RequestState = RequestState.COMPLETED
    error_code: str | None = None
    # Text of a server is cut to 200 characters here, and in full in `error_detail`; both are redacted.
    error_message: str | None = None
    error_detail: str | None = None
    retryable: bool = False
    request_id: str = ""

    @property
    def effect(self) -> Effect:
        """Whether the server executed the call."""
        if self.processed is None:
            return Effect.UNKNOWN
        return Effect.DONE if self.processed else Effect.NONE

    def unwrap(self) -> Any:
        """The answer; raises TxTimeoutError, TxNetworkError or another TxError when the delivery failed."""
        if self.final_status is RequestState.COMPLETED:
            return self.result
        raise error_for(
            self.error_message or "the call failed",
            self.error_code or "INTERNAL",
            retryable=self.retryable,
            effect=self.effect,
            detail=self.error_detail or "",
        )
