"""Requests on a two-way stream: whatever happens to one, the stream lives on and the client learns of it."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable

from headgate.front.ending import encode_ending, taken_back
from headgate.front.reply import Reply
from headgate.front.sessions import by_the_client
from headgate.wire.violations import INTERNAL_ERROR, Violation, encode_error

log = logging.getLogger("headgate.front")


async def replied(id: bytes, work: Awaitable[Reply]) -> Reply | None:
    """The reply to the request `id`; None when the client has cancelled it."""
    try:
        return await work
    except Violation as violation:
        return Reply(violation.encode())
    except asyncio.CancelledError as cancelled:
        if by_the_client(cancelled):
            return None
        if taken_back(cancelled):
            return Reply(encode_ending(id))
        raise
    except Exception:
        entry = secrets.token_hex(6)
        log.exception("internal error", extra={"entry": entry})
        return Reply(encode_error(id, INTERNAL_ERROR, f"internal error {entry}"))
