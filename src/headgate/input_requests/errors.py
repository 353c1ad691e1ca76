"""Errors of input requests: a refused `requestState`, a withdrawn input request."""

from headgate.domain.errors import Effect, HeadgateError


class InputRequestWithdrawn(HeadgateError):
    """A call ended while its server waited for input of the client, because others needed the place.

    Not an UpstreamError: the server did nothing wrong, and another attempt would only ask again.
    """

    code = "RESOURCE_EXHAUSTED"
    # The server may have begun before it requested input.
    effect = Effect.UNKNOWN

    def __init__(self, upstream: str, reason: str) -> None:
        super().__init__(
            f"the call ended before {upstream!r} got the input that it asked its client for: {reason}",
            hint="check whether it was carried out, then call again and answer sooner",
        )


class TaskNotFound(HeadgateError):
    """A task that does not exist for the caller; nothing was sent."""

    code = "INVALID_PARAMS"

    def __init__(self, id: str) -> None:
        super().__init__(
            f"there is no task {id[:100]!r}", hint="use the taskId that the call of the tool returned"
        )


class RequestStateRefused(HeadgateError):
    """A `requestState` that cannot be accepted; nothing happened."""

    code = "INVALID_PARAMS"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the requestState is refused: {reason}", hint="send the request again without it to start over"
        )
