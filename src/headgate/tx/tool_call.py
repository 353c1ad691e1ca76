"""One call of a tool: the request in progress, and the result that its caller gets."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headgate.domain.errors import Effect
from headgate.tx.config import RetryPolicy
from headgate.tx.errors import error_for


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TxResult:
    """How a call ended.

    A tool that answers with `isError` has answered: `final_status` is completed, and it says the rest.
    """

    # The answer as the wrapped session gave it; None when there is none.
    result: Any = None
    # Whether the peer took the call: as it says itself, or because it answered.
    ack: bool = False
    # Whether the server itself answered, with a result or with an error.
    answered: bool = False
    # Whether the peer keeps the call's key, so that a repeat gets the answer after this program has ended.
    durable: bool = False
    # Whether the tool was carried out; None when nobody knows.
    processed: bool | None = None
    # Whether this is the answer of an earlier call with the same key.
    duplicate: bool = False
    attempts: int = 0
    # Completed, failed or timeout.
    final_status: RequestState = RequestState.COMPLETED
    error_code: str | None = None
    # What a server said is cut to 200 characters here, and in full in `error_detail`; both without secrets.
    error_message: str | None = None
    error_detail: str | None = None
    retryable: bool = False
    request_id: str = ""

    @property
    def effect(self) -> Effect:
        """What may have happened at the server."""
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
