"""Errors that only the server side raises."""

from headgate.domain.errors import Effect, HeadgateError, ResourceExhausted


class GatewayShuttingDown(HeadgateError):
    """The gateway ended before the call was answered."""

    code = "NETWORK_ERROR"
    number = 1003
    http_status = 503
    effect = Effect.UNKNOWN

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the gateway ended while {what[:200]!r} was under way, so it may have been carried out",
            hint="check whether it was carried out before trying again, "
            "or send the same call with the same idempotency key if it had one",
        )


class TooManySubscriptions(ResourceExhausted):
    """A client may not subscribe to one more resource; nothing was sent."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"the subscription is refused: {reason}")
        self.hint = hint
