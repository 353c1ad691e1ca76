"""Requests that are still under way when the gateway has no more time for them: each gets an answer."""

import asyncio

from headgate.wire.violations import INTERNAL_ERROR, encode_error

# The message of a cancellation, as opposed to one for which nobody is left.
_GATEWAY_ENDS = "the gateway ends"


def end_call(task: "asyncio.Task[None] | None") -> None:
    """End the work on a request so that its client still gets an answer."""
    if task is not None:
        task.cancel(_GATEWAY_ENDS)


def encode_ending(id: bytes) -> bytes:
    """The answer to a request that no server has to carry out: the client may send it again."""
    # Another gateway may be there by then.
    return encode_error(id, INTERNAL_ERROR, "the gateway is shutting down; try again in a second")


def taken_back(cancelled: asyncio.CancelledError) -> bool:
    """Whether a request was ended so; then its task goes on, and can still write the answer."""
    if cancelled.args != (_GATEWAY_ENDS,):
        return False
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    return True
