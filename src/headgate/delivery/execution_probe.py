"""Finds out through the probe tool of a server whether a call was executed."""

import asyncio
import logging
from typing import Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.delivery.argument_template import fill_template, value_at_path
from headgate.delivery.ledger import Operation
from headgate.domain.errors import HeadgateError
from headgate.domain.identity import recorded_identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import DeliveryOptions, McpRequest, McpResponse, UpstreamCall
from headgate.domain.upstream_policy import ToolClass, ToolSafety
from headgate.protocol.result_conversion import is_input_required

log = logging.getLogger("headgate.delivery")

# A client waits for the call in doubt meanwhile.
PROBE_SECONDS = 10.0


class _ProbeContentBlock(msgspec.Struct):
    type: str = ""
    text: str = ""


class _ProbeToolResult(msgspec.Struct, rename="camel"):
    content: list[_ProbeContentBlock] = []
    structured_content: Raw = Raw(b"")
    is_error: bool = False


class ProbeDelivery(Protocol):
    async def send_with_retry(self, call: UpstreamCall, *, kind: ToolClass | None = None) -> McpResponse:
        """The upstream's answer; raises HeadgateError."""


class ExecutionProbe:
    """Calls the probe tool, and reads its answer.

    The answer is the structured content, else the JSON in the first text. With a path, the value at it
    decides; without one, the whole answer. Null, false, zero, empty or no content mean that the call was not
    executed, anything else that it was. An error, an answer without that path, or text that is not JSON
    decides nothing.
    """

    def __init__(self, delivery: ProbeDelivery) -> None:
        self._delivery = delivery

    async def was_executed(self, operation: Operation, policy: ToolSafety) -> bool | None:
        """Whether the operation was executed; None when that cannot be found out. Raises nothing."""
        if policy.probe is None:
            return None
        try:
            probe = policy.probe
            values = {
                "arguments": msgspec.json.decode(operation.arguments or b"{}"),
                "key": operation.key,
                "op_id": operation.op_id,
            }
            arguments = Raw(fill_template(probe.arguments, values))
            caller = recorded_identity(operation.tenant, operation.principal)
            item = Item(ItemKind.TOOLS, operation.server, probe.tool, probe.tool)
            request = McpRequest(caller=caller, name=probe.tool, params={"arguments": arguments})
            call = UpstreamCall(
                request, item, DeliveryOptions(deadline=asyncio.get_running_loop().time() + PROBE_SECONDS)
            )
            async with asyncio.timeout(PROBE_SECONDS):
                answer = await self._delivery.send_with_retry(call, kind=ToolClass.READ)
            return _executed_according_to(answer, policy.probe.happened)
        except (HeadgateError, TimeoutError, ValueError, DecodeError, RecursionError) as error:
            log.warning("probe without an answer", extra={"operation": operation.op_id, "reason": str(error)})
            return None


def _executed_according_to(answer: McpResponse, path: str) -> bool:
    """Whether the call was executed; raises ValueError or DecodeError when the answer does not decide."""
    if not isinstance(answer.result, bytes):
        answer.result.close()
        raise ValueError("its answer is too large")  # noqa: TRY004 - on disk, for its size
    if answer.error:
        raise ValueError("it answered with an error")
    if is_input_required(answer.result):
        raise ValueError("it asked something")
    result = msgspec.json.decode(answer.result, type=_ProbeToolResult)
    if result.is_error:
        # It may mean that nothing was found, or that the search failed.
        raise ValueError("it answered with an error")
    value = None
    if bytes(result.structured_content) not in (b"", b"null"):
        value = msgspec.json.decode(result.structured_content)
    elif text := next((block.text for block in result.content if block.type == "text"), "").strip():
        value = msgspec.json.decode(text)
    if path:
        return bool(value_at_path(path, value))
    # Servers of the official SDK wrap other values than objects.
    return bool(value["result"] if isinstance(value, dict) and value.keys() == {"result"} else value)
