"""Requests still in flight when the drain is over: each is interrupted and still gets a reply."""

import asyncio

from headgate.domain.errors import Effect, HeadgateError
from headgate.protocol.jsonrpc_errors import INTERNAL_ERROR, encode_error

# The message of a cancellation at shutdown, as opposed to one because the client has left.
_SHUTDOWN_MESSAGE = "the gateway ends"


class GatewayShuttingDown(HeadgateError):
    """The gateway ended before the call was answered."""

    code = "NETWORK_ERROR"
    http_status = 503
    effect = Effect.UNKNOWN

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the gateway ended while {what[:200]!r} was under way, so it may have been carried out",
            hint="check whether it was carried out before trying again, "
            "or send the same call with the same idempotency key if it had one",
        )


def interrupt_task(task: "asyncio.Task[None] | None") -> None:
    """Cancel the work on a request so that its client still gets a reply."""
    if task is not None:
        task.cancel(_SHUTDOWN_MESSAGE)


def encode_shutdown_error(id: bytes) -> bytes:
    """The reply to a request that was not sent to a server: the client may send it again."""
    # Another gateway may be there by then.
    return encode_error(id, INTERNAL_ERROR, "the gateway is shutting down; try again in a second")


def absorb_interrupt(cancelled: asyncio.CancelledError) -> bool:
    """Whether a request was interrupted; then its task continues and can still write the reply."""
    if cancelled.args != (_SHUTDOWN_MESSAGE,):
        return False
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    return True
