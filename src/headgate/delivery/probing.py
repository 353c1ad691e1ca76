"""Asks a server whether a call has happened, in the way that its operator described."""

import asyncio
import logging
from typing import Any, Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.delivery.ledger import Operation
from headgate.delivery.templates import fill, look_up
from headgate.domain.call import Answer, Call, Caller, Errand, Request
from headgate.domain.care import Care, Probe, ToolClass
from headgate.domain.errors import HeadgateError
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.protocol.result_conversion import is_input_required

log = logging.getLogger("headgate.delivery")

# Somebody waits for the call that is asked about.
PROBE_SECONDS = 10.0


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Result(msgspec.Struct, rename="camel"):
    content: list[_Block] = []
    structured_content: Raw = Raw(b"")
    is_error: bool = False


class Delivery(Protocol):
    """Whatever carries a call out."""

    async def deliver(self, call: Call, *, kind: ToolClass | None = None) -> Answer:
        """The upstream's answer; raises HeadgateError."""


class Probing:
    """Calls the probe tool, and reads its answer.

    The answer is the structured content, else the JSON in the first text. With a path, the member there is
    true or false. Without one, null, false, zero, empty and nothing at all mean that it did not happen, and
    anything else that it did. Nobody can tell from an error, from an answer without that member, or from
    text that is no JSON.
    """

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    async def happened(self, operation: Operation, care: Care) -> bool | None:
        """Whether the operation was carried out; None when nobody can tell. Raises nothing."""
        if care.probe is None:
            return None
        try:
            call = _probe_call(care.probe, operation)
            async with asyncio.timeout(PROBE_SECONDS):
                answer = await self._delivery.deliver(call, kind=ToolClass.READ)
            return _verdict(answer, care.probe.happened)
        except (HeadgateError, TimeoutError, ValueError, DecodeError, RecursionError) as error:
            log.warning("probe without an answer", extra={"operation": operation.op_id, "reason": str(error)})
            return None


def _probe_call(probe: Probe, operation: Operation) -> Call:
    values = {
        "arguments": msgspec.json.decode(operation.arguments or b"{}"),
        "key": operation.key,
        "op_id": operation.op_id,
    }
    arguments = Raw(fill(probe.arguments, values))
    caller = Caller(principal=operation.principal, tenant=operation.tenant)
    item = Item(Kind.TOOLS, operation.server, probe.tool, probe.tool)
    request = Request(caller=caller, name=probe.tool, params={"arguments": arguments})
    return Call(request, item, Errand(deadline=asyncio.get_running_loop().time() + PROBE_SECONDS))


def _verdict(answer: Answer, path: str) -> bool:
    """What the answer says; raises ValueError, and what it cannot be read with, when it says nothing."""
    if not isinstance(answer.result, bytes):
        answer.result.close()
        raise ValueError("its answer is too large")  # noqa: TRY004 - on disk, for its size
    if answer.error:
        raise ValueError("it answered with an error")
    if is_input_required(answer.result):
        raise ValueError("it asked something")
    result = msgspec.json.decode(answer.result, type=_Result)
    if result.is_error:
        # That nothing was found is often told as an error, but so is that the search failed.
        raise ValueError("it answered with an error")
    said = _said(result)
    return bool(look_up(path, said) if path else _unwrapped(said))


def _said(result: _Result) -> Any:
    if bytes(result.structured_content) not in (b"", b"null"):
        return msgspec.json.decode(result.structured_content)
    text = next((block.text for block in result.content if block.type == "text"), "")
    return msgspec.json.decode(text) if text.strip() else None


def _unwrapped(said: Any) -> Any:
    """What a tool returned: servers of the official SDK put what is no object into one called `result`."""
    return said["result"] if isinstance(said, dict) and said.keys() == {"result"} else said
