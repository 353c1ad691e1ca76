"""Carries a call of a tool to its server and the answer back."""

from dataclasses import dataclass

import msgspec

from headgate.domain.errors import HeaderMismatch
from headgate.domain.identity import Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.gateway.interfaces import (
    AccessControl,
    CatalogLookup,
    ClientListings,
    InteractiveDelivery,
    ServerSubscriptions,
    TaskRegistry,
)
from headgate.input_requests.task_registry import MAX_TASK_BYTES, TASK_ID_MARKER
from headgate.protocol.mcp_headers import header_mismatch
from headgate.protocol.result_conversion import with_public_uris


@dataclass(eq=False)
class UpstreamCalls:
    """Resolves what a request names and calls it; transactions send their steps with it."""

    _access: AccessControl
    _catalog: CatalogLookup
    _listings: ClientListings
    _delivery: ServerSubscriptions
    _input_bridge: InteractiveDelivery
    _task_registry: TaskRegistry

    async def call_upstream_tool(self, request: McpRequest) -> tuple[UpstreamCall, McpResponse]:
        """Send one tool call to its upstream and return its response; raises HeadgateError."""
        if not self._catalog.is_settled(ItemKind.TOOLS, request.name):
            # A server that is still starting may have the tool.
            await self.await_server_of(ItemKind.TOOLS, request.name, request.caller)
        tool = self._catalog.resolve(ItemKind.TOOLS, request.name, request.caller)
        self._access.permit(request.caller, tool)
        if tool.mirrored_parameters and request.headers is not None:
            _check_mirrored_headers(tool, request, needed=self._listings.shows_verbatim(request))
        request = self._listings.restore_arguments(request, tool)
        self._catalog.count_use(tool)
        self._listings.record_call(request, tool)
        call = UpstreamCall(request, tool)
        answer = await self._input_bridge.deliver_with_input(call)
        if self._catalog.has_renamed_uris(tool.server):
            answer = self.with_public_uris(call, answer)
        result = answer.result
        # The size first: searching all of a large result would slow down every one.
        if isinstance(result, bytes) and len(result) <= MAX_TASK_BYTES and TASK_ID_MARKER in result:
            self._task_registry.record_task(call, answer)
        return call, answer

    async def resolve_prompt(self, request: McpRequest) -> Item:
        """The prompt that the request names; raises HeadgateError."""
        await self.await_server_of(ItemKind.PROMPTS, request.name, request.caller)
        prompt = self._catalog.resolve(ItemKind.PROMPTS, request.name, request.caller)
        self._access.permit(request.caller, prompt)
        return prompt

    async def resolve_resource(self, request: McpRequest) -> Item:
        """The resource that the request names; raises HeadgateError."""
        await self.await_server_of(ItemKind.RESOURCES, request.name, request.caller)
        resource = self._catalog.resolve_resource(request.name, request.caller)
        self._access.permit(request.caller, resource)
        return resource

    async def await_server_of(self, kind: ItemKind, name: str, caller: Identity) -> None:
        """Wait until the server that may have it has listed, and names are stable; raises HeadgateError."""
        if self._catalog.may_be_reassigned(kind, name):
            await self._catalog.wait_for_stable_names()
        server = self._catalog.pending_server(kind, name, caller)
        if server is not None:
            await self._delivery.await_ready(server)

    def with_public_uris(self, call: UpstreamCall, answer: McpResponse) -> McpResponse:
        """The answer with every link to a resource under the name that leads back to its server."""
        server, result = call.item.server, answer.result
        if not self._catalog.has_renamed_uris(server) or not isinstance(result, bytes):
            # Nearly always: nothing is opened.
            return answer
        public = with_public_uris(result, lambda uri: self._catalog.public_uri(server, uri))
        return msgspec.structs.replace(answer, result=public)


def _check_mirrored_headers(tool: Item, request: McpRequest, *, needed: bool) -> None:
    """Refuse headers that say something else than the arguments that they repeat."""
    arguments = bytes(request.params.get("arguments", b""))
    reason = header_mismatch(tool.mirrored_parameters, arguments, request.headers or {}, needed=needed)
    if reason is not None:
        raise HeaderMismatch(reason)
