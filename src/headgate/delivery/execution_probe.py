"""Asks a server through its probe tool whether a call was executed."""

import asyncio
import logging
from typing import Any, Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.delivery.argument_template import fill_template, value_at_path
from headgate.delivery.ledger import Operation
from headgate.domain.errors import HeadgateError
from headgate.domain.identity import recorded_identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import DeliveryOptions, McpRequest, McpResponse, UpstreamCall
from headgate.domain.upstream_policy import Probe, ToolClass, ToolSafety
from headgate.protocol.result_conversion import is_input_required

log = logging.getLogger("headgate.delivery")

# Somebody waits for the call that is asked about.
PROBE_SECONDS = 10.0


class _ProbeContentBlock(msgspec.Struct):
    type: str = ""
    text: str = ""


class _ProbeToolResult(msgspec.Struct, rename="camel"):
    content: list[_ProbeContentBlock] = []
    structured_content: Raw = Raw(b"")
    is_error: bool = False


class ProbeDelivery(Protocol):
    """Whatever carries a call out."""

    async def send_with_retry(self, call: UpstreamCall, *, kind: ToolClass | None = None) -> McpResponse:
        """The upstream's answer; raises HeadgateError."""


class ExecutionProbe:
    """Calls the probe tool, and reads its answer.

    The answer is the structured content, else the JSON in the first text. With a path, the member there is
    true or false. Without one, null, false, zero, empty and nothing at all mean that it did not happen, and
    anything else that it did. Nobody can tell from an error, from an answer without that member, or from
    text that is no JSON.
    """

    def __init__(self, delivery: ProbeDelivery) -> None:
        self._delivery = delivery

    async def was_executed(self, operation: Operation, policy: ToolSafety) -> bool | None:
        """Whether the operation was carried out; None when nobody can tell. Raises nothing."""
        if policy.probe is None:
            return None
        try:
            call = _probe_call(policy.probe, operation)
            async with asyncio.timeout(PROBE_SECONDS):
                answer = await self._delivery.send_with_retry(call, kind=ToolClass.READ)
            return _executed_according_to(answer, policy.probe.happened)
        except (HeadgateError, TimeoutError, ValueError, DecodeError, RecursionError) as error:
            log.warning("probe without an answer", extra={"operation": operation.op_id, "reason": str(error)})
            return None


def _probe_call(probe: Probe, operation: Operation) -> UpstreamCall:
    values = {
        "arguments": msgspec.json.decode(operation.arguments or b"{}"),
        "key": operation.key,
        "op_id": operation.op_id,
    }
    arguments = Raw(fill_template(probe.arguments, values))
    caller = recorded_identity(operation.tenant, operation.principal)
    item = Item(ItemKind.TOOLS, operation.server, probe.tool, probe.tool)
    request = McpRequest(caller=caller, name=probe.tool, params={"arguments": arguments})
    return UpstreamCall(
        request, item, DeliveryOptions(deadline=asyncio.get_running_loop().time() + PROBE_SECONDS)
    )


def _executed_according_to(answer: McpResponse, path: str) -> bool:
    """What the answer says; raises ValueError, and what it cannot be read with, when it says nothing."""
    if not isinstance(answer.result, bytes):
        answer.result.close()
        raise ValueError("its answer is too large")  # noqa: TRY004 - on disk, for its size
    if answer.error:
        raise ValueError("it answered with an error")
    if is_input_required(answer.result):
        raise ValueError("it asked something")
    result = msgspec.json.decode(answer.result, type=_ProbeToolResult)
    if result.is_error:
        # That nothing was found is often told as an error, but so is that the search failed.
        raise ValueError("it answered with an error")
    said = _probe_value(result)
    return bool(value_at_path(path, said) if path else _unwrapped(said))


def _probe_value(result: _ProbeToolResult) -> Any:
    if bytes(result.structured_content) not in (b"", b"null"):
        return msgspec.json.decode(result.structured_content)
    text = next((block.text for block in result.content if block.type == "text"), "")
    return msgspec.json.decode(text) if text.strip() else None


def _unwrapped(said: Any) -> Any:
    """What a tool returned: servers of the official SDK put what is no object into one called `result`."""
    return said["result"] if isinstance(said, dict) and said.keys() == {"result"} else said
