"""What a caller gets for a call: the answer, and what the delivery of it was like."""

from dataclasses import dataclass
from typing import Any

from headgate.domain.errors import Effect
from headgate.tx.errors import error_for
from headgate.tx.requests import RequestState


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
