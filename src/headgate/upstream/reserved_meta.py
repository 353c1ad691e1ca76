"""Removes `_meta` keys reserved for the gateway from a server's answers."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from headgate.domain.errors import HeadgateError
from headgate.domain.mcp_request import McpResponse
from headgate.domain.payload import Payload
from headgate.protocol.message_meta import (
    SplicedJson,
    UnreadableMeta,
    is_reserved,
    is_reserved_or_connection_key,
    may_be_reserved,
    without_reserved,
    without_reserved_in_error,
    without_reserved_on_disk,
)
from headgate.upstream.message_assembly import SpooledValue, discard_payload, unusable_answer

# To open a larger result takes so long that others would notice.
_LARGE_BYTES = 256 * 1024


class ReservedMetaFilter:
    """Cleans the answers of one server."""

    def __init__(self, server: str, *, stateless: bool) -> None:
        self._server = server
        # Such a server says with every result who it is, which ends at the gateway.
        self._unwanted = is_reserved_or_connection_key if stateless else is_reserved
        self._late: set[asyncio.Task[None]] = set()

    async def strip_reserved(self, answer: McpResponse, what: str) -> McpResponse:
        """The answer without them; raises InvalidAnswer for one that cannot be opened."""
        try:
            if answer.error:
                return msgspec.structs.replace(answer, error=without_reserved_in_error(answer.error))
            return msgspec.structs.replace(answer, result=await self._result(answer.result))
        except (UnreadableMeta, OSError) as error:
            discard_payload(answer.result)
            raise unusable_answer(self._server, what, error) from error

    async def _result(self, result: Payload) -> Payload:
        if not isinstance(result, bytes):
            return await asyncio.to_thread(without_reserved_on_disk, result, self._unwanted)
        if len(result) <= _LARGE_BYTES:
            return without_reserved(result)
        return await asyncio.to_thread(without_reserved, result)

    def wrap_late_callback(
        self, on_late: Callable[[McpResponse], None], what: str
    ) -> Callable[[McpResponse], None]:
        """Tells the same without them."""

        def tell(answer: McpResponse) -> None:
            if not may_have_reserved(answer):
                on_late(answer)
                return
            task = asyncio.get_running_loop().create_task(
                self._forward_late(answer, on_late, what), name="late"
            )
            self._late.add(task)
            task.add_done_callback(self._late.discard)

        return tell

    async def _forward_late(
        self, answer: McpResponse, on_late: Callable[[McpResponse], None], what: str
    ) -> None:
        # What cannot be opened is no answer.
        with suppress(HeadgateError):
            on_late(await self.strip_reserved(answer, what))


def may_have_reserved(answer: McpResponse) -> bool:
    """Whether the answer has to be opened; asked of every answer."""
    result = answer.result
    if isinstance(result, bytes):
        if b"_" not in result and b"\\" not in result and not answer.error:
            # Nearly always; to look for a single byte costs next to nothing.
            return False
        return may_be_reserved(result) or bool(answer.error and may_be_reserved(answer.error))
    return isinstance(result, SplicedJson) or (isinstance(result, SpooledValue) and result.marked)
