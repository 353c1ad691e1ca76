"""Calls that are still under way when the gateway has no more time for them: each gets an answer."""

import asyncio

# The message of a cancellation, as opposed to one for which nobody is left.
_GATEWAY_ENDS = "the gateway ends"


def end_call(task: "asyncio.Task[None] | None") -> None:
    """End the work on a request so that its client still gets an answer."""
    if task is not None:
        task.cancel(_GATEWAY_ENDS)


def taken_back(cancelled: asyncio.CancelledError) -> bool:
    """Whether a call was ended so; then its task goes on, and can still write the answer."""
    if cancelled.args != (_GATEWAY_ENDS,):
        return False
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    return True
