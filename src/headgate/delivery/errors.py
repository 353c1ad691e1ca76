"""Errors of idempotent delivery, transactions and the ledger."""

from headgate.domain.errors import Effect, HeadgateError

_RECOVER_HINT = "the operator stops the gateway, runs `headgate operations recover` and decides what it lists"


class IdempotencyKeyReused(HeadgateError):
    """An idempotency key that names another call; nothing was sent."""

    code = "CONFLICT"

    def __init__(self, key: str, difference: str) -> None:
        super().__init__(
            f"the idempotency key {key[:200]!r} was used before with {difference}",
            hint="use a new key for a new call, and the same arguments to repeat one",
        )


class TransactionStepReused(HeadgateError):
    """A step of a transaction that was made before as another call; nothing was sent."""

    code = "CONFLICT"

    def __init__(self, transaction: str, step: int, difference: str) -> None:
        super().__init__(
            f"step {step} of transaction {transaction[:100]!r} was made before with {difference}",
            hint="send the same call to repeat a step, and a new one under the next number or a new key",
        )


class OperationInProgress(HeadgateError):
    """The first call with this key takes longer than the caller waits."""

    code = "IN_PROGRESS"
    retryable = True
    # Nothing by this call; what the first one does is not known yet.
    effect = Effect.UNKNOWN

    def __init__(self, what: str, op_id: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(
            f"{what!r} is still being carried out for the first call with this key (operation {op_id})",
            hint="send the same call with the same key again later, or ask get_operation",
            retry_after_seconds=retry_after_seconds,
        )


class OperationInDoubt(HeadgateError):
    """The first call with this key may have been executed; it is not sent again."""

    code = "IN_DOUBT"
    effect = Effect.UNKNOWN

    def __init__(self, what: str, op_id: str) -> None:
        super().__init__(
            f"the first call of {what!r} with this key may have been carried out (operation {op_id}), "
            "so it is not sent again",
            hint="check whether it was, then settle it with resolve_operation; "
            'or repeat it with "on_doubt": "retry" if a second time does no harm',
        )


class StepOutOfOrder(HeadgateError):
    """A step of a transaction that is not the next one; nothing was sent."""

    code = "SEQUENCE_ERROR"

    def __init__(self, transaction: str, expected: int, received: int) -> None:
        self.expected = expected
        self.received = received
        super().__init__(
            f"transaction {transaction[:100]!r} expected step {expected} and received {received}",
            hint=f"send step {expected} first",
        )


class TransactionFailed(HeadgateError):
    """A step or a compensation failed, or the transaction does not allow the request."""

    code = "TRANSACTION_ERROR"

    def __init__(self, message: str, *, hint: str, effect: Effect = Effect.NONE) -> None:
        super().__init__(message, hint=hint)
        self.effect = effect


class LedgerUnavailable(HeadgateError):
    """The ledger cannot be written, so a call that must not happen twice is not sent; READ calls go on."""

    code = "SERVICE_UNAVAILABLE"
    retryable = True

    def __init__(self, reason: str, *, effect: Effect = Effect.NONE, damaged: bool = False) -> None:
        """`damaged` means that calls are refused until the operator recovers the ledger."""
        then = {
            Effect.NONE: "so the call was not sent",
            Effect.DONE: "so the answer of a call that was carried out is lost",
            Effect.UNKNOWN: "and whether the call was carried out is not known",
        }
        super().__init__(
            f"the ledger {'is damaged' if damaged else 'cannot be written'} ({reason}), {then[effect]}",
            hint=_RECOVER_HINT if damaged else "free disk space or mend the data directory, then try again",
            retry_after_seconds=None if damaged else 5.0,
        )
        self.effect = effect
        self.retryable = effect is Effect.NONE and not damaged


class RecordedResponseExpired(HeadgateError):
    """The call with this key was executed, and the ledger does not keep its answer any more."""

    code = "RESULT_NOT_FOUND"
    effect = Effect.DONE

    def __init__(self, tool: str, op_id: str) -> None:
        super().__init__(
            f"the first call of {tool!r} with this key was carried out (operation {op_id}), so it is not "
            "sent again, and its answer is no longer kept",
            hint="ask the server for its outcome; a larger ledgerMaxBytes keeps answers longer",
        )


class TransferNotFound(HeadgateError):
    """No chunked transfer has this id for this caller; unknown ids and those of others are the same."""

    code = "RESULT_NOT_FOUND"

    def __init__(self, transfer_id: str) -> None:
        super().__init__(
            f"Transfer {transfer_id[:100]!r} not found or expired",
            hint="ask get_operation if the call was recorded; make any other again only if that does no harm",
        )


class OperationNotFound(HeadgateError):
    """No operation has this id for this caller; unknown and expired ids and those of others are the same."""

    code = "RESULT_NOT_FOUND"

    def __init__(self, op_id: str) -> None:
        super().__init__(
            f"Operation {op_id[:100]!r} not found or expired",
            hint="the op_id of a recorded call is in the _meta of its answer",
        )
