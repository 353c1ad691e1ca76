"""Requests still in flight when the drain is over: each is interrupted and still gets a reply."""

import asyncio

from headgate.protocol.jsonrpc_errors import INTERNAL_ERROR, encode_error

# The message of a cancellation at shutdown, as opposed to one because the client has left.
_SHUTDOWN_MESSAGE = "the gateway ends"


def interrupt_task(task: "asyncio.Task[None] | None") -> None:
    """End the work on a request so that its client still gets an answer."""
    if task is not None:
        task.cancel(_SHUTDOWN_MESSAGE)


def encode_shutdown_error(id: bytes) -> bytes:
    """The answer to a request that no server has to carry out: the client may send it again."""
    # Another gateway may be there by then.
    return encode_error(id, INTERNAL_ERROR, "the gateway is shutting down; try again in a second")


def absorb_interrupt(cancelled: asyncio.CancelledError) -> bool:
    """Whether a request was ended so; then its task goes on, and can still write the answer."""
    if cancelled.args != (_SHUTDOWN_MESSAGE,):
        return False
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    return True
