"""The errors of the library, each with an error code of the gateway and whether a retry may help."""

from headgate.domain.errors import Effect


class TxError(Exception):
    """A call, a transaction or a use of the library failed."""

    def __init__(
        self,
        message: str,
        error_code: str = "INTERNAL",
        retryable: bool = False,  # noqa: FBT001, FBT002 - the documented signature
        *,
        effect: Effect = Effect.NONE,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        # In full; `message` quotes at most 200 characters of a server.
        self.detail = detail or message
        self.error_code = error_code
        self.retryable = retryable
        self.effect = effect


class TxTimeoutError(TxError):
    """No answer came in time."""


class TxNetworkError(TxError):
    """The peer could not be reached, or was lost before it answered."""


class TxSequenceError(TxError):
    """A step of a transaction came out of order."""


class TxConflictError(TxError):
    """An idempotency key names another call; nothing was sent."""


class TxInDoubtError(TxError):
    """An earlier call with this key may have been executed; this one was not sent."""


_BY_CODE: dict[str, type[TxError]] = {
    "TIMEOUT": TxTimeoutError,
    "IN_PROGRESS": TxTimeoutError,
    "CONNECTION_ERROR": TxNetworkError,
    "NETWORK_ERROR": TxNetworkError,
    "SEQUENCE_ERROR": TxSequenceError,
    "CONFLICT": TxConflictError,
    "IN_DOUBT": TxInDoubtError,
}


def error_for(message: str, error_code: str, *, retryable: bool, effect: Effect, detail: str = "") -> TxError:
    kind = _BY_CODE.get(error_code, TxError)
    return kind(message, error_code, retryable, effect=effect, detail=detail)
