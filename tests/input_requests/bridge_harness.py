"""A dialogue in memory: a server that follows a script, a client of either era, and a clock for both."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw

from headgate.domain.client_profile import ClientProfile, profile_of
from headgate.domain.identity import Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import ClientSession, McpRequest, McpResponse, UpstreamCall
from headgate.input_requests.input_bridge import InputBridge
from headgate.input_requests.request_state import RequestStateSealer
from headgate.storage.files.sealer import KEY_BYTES, Sealer
from tests.upstream.conversation import Client

ABLE = profile_of(b'{"elicitation":{},"sampling":{},"roots":{}}')
FORM: dict[str, Any] = {"message": "how much?", "requestedSchema": {"type": "object"}}
DONE = McpResponse(b'{"resultType":"complete","content":[]}', typed=True)
OLD_DONE = McpResponse(b'{"content":[]}')

Step = McpResponse | Exception | Callable[[UpstreamCall], Awaitable[McpResponse]]


def ask_for(state: str | None = None, **questions: Any) -> McpResponse:
    """A result of the stateless era that asks for something."""
    asked = {key: {"method": method, "params": params} for key, (method, params) in questions.items()}
    members: dict[str, Any] = {"resultType": "input_required"}
    if asked:
        members["inputRequests"] = asked
    if state is not None:
        members["requestState"] = state
    return McpResponse(json.dumps(members).encode(), typed=True)


class ScriptedServer:
    """Does one step of its script for each call, and the last one again and again."""

    def __init__(self, *script: Step, holds: bool = False) -> None:
        self.script = list(script)
        self.received: list[UpstreamCall] = []
        self.cancelled = 0
        self._holds = holds

    def sends_requests_during_calls(self, server: str) -> bool:
        return self._holds

    async def send_recorded(self, call: UpstreamCall) -> McpResponse:
        self.received.append(call)
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, Exception):
            raise step
        if isinstance(step, McpResponse):
            return step
        try:
            return await step(call)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def params(self, number: int = -1) -> dict[str, Any]:
        """What came with a call."""
        received = self.received[number].request.params
        return {key: json.loads(bytes(value)) for key, value in received.items()}


class BridgeHarness:
    """Where a client and a server talk by way of the gateway."""

    def __init__(self, *script: Step, holds: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.server = ScriptedServer(*script, holds=holds)
        seal = Sealer([bytes(KEY_BYTES)], clock=loop.time)
        self.input_bridge = InputBridge(self.server, RequestStateSealer(seal, loop.time))

    async def deliver_with_input(self, call: UpstreamCall) -> McpResponse:
        return await self.input_bridge.deliver_with_input(call)

    async def turn(self, **request: Any) -> dict[str, Any]:
        """The result that a stateless client is given."""
        answer = await self.deliver_with_input(stateless(**request))
        assert isinstance(answer.result, bytes)
        found: dict[str, Any] = json.loads(answer.result)
        return found


def stateless(
    *,
    arguments: Any = None,
    state: Any = None,
    responses: Any = None,
    who: str = "ann",
    server: str = "bank",
    name: str = "pay",
    method: str = "tools/call",
    profile: ClientProfile = ABLE,
    channel: Client | None = None,
    **more: Any,
) -> UpstreamCall:
    """A request of a client that can only be asked by way of its answer."""
    params: dict[str, Any] = {"arguments": arguments if arguments is not None else {"amount": 7}}
    if responses is not None:
        params["inputResponses"] = responses
    if state is not None:
        params["requestState"] = state
    request = McpRequest(
        caller=Identity(principal=who),
        method=method,
        params=raw(params),
        profile=profile,
        channel=channel,
        **more,
    )
    return UpstreamCall(request, Item(ItemKind.TOOLS, server, name, f"{server}_{name}"))


def handshake(client: Client, profile: ClientProfile = ABLE) -> UpstreamCall:
    """A request of a client that can be asked while it waits."""
    request = McpRequest(
        caller=Identity(principal="ann"),
        params=raw({"arguments": {"amount": 7}}),
        profile=profile,
        session=ClientSession("session", client),
        channel=client,
    )
    return UpstreamCall(request, Item(ItemKind.TOOLS, "bank", "pay", "bank_pay"))


def raw(params: dict[str, Any]) -> dict[str, Raw]:
    return {key: Raw(json.dumps(value).encode()) for key, value in params.items()}
