"""The path of a request that is no tool call: prompt, resource, completion, subscription, other method."""

from dataclasses import dataclass

import msgspec
from msgspec import Raw

from headgate.catalog.errors import ServerNotFound
from headgate.catalog.item_lookup import nearest_servers
from headgate.domain.errors import MethodNotFound
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.gateway.calls import ToolCalls, UpstreamCalls
from headgate.gateway.interfaces import (
    AccessControl,
    CatalogLookup,
    ChunkedTransfers,
    InteractiveDelivery,
    ServerSubscriptions,
    TaskRegistry,
)
from headgate.protocol.result_conversion import with_resource_uri

_TASK_RESULT = "tasks/result"


@dataclass(eq=False)
class ResourceRequests:
    """Finds what a request names among what its caller sees, and sends it to the server."""

    _access: AccessControl
    _catalog: CatalogLookup
    _subscriptions: ServerSubscriptions
    _input_bridge: InteractiveDelivery
    _task_registry: TaskRegistry
    _transfers: ChunkedTransfers
    _calls: UpstreamCalls
    _tool_calls: ToolCalls

    async def get_prompt(self, request: McpRequest) -> McpResponse:
        """A prompt with its arguments filled in; raises HeadgateError."""
        self._access.admit(request.caller)
        call = UpstreamCall(request, await self._calls.resolve_prompt(request))
        return self._calls.with_public_uris(call, await self._input_bridge.deliver_with_input(call))

    async def read_resource(self, request: McpRequest) -> McpResponse:
        """The contents of one resource; raises HeadgateError."""
        self._access.admit(request.caller)
        resource = await self._calls.resolve_resource(request)
        answer = await self._input_bridge.deliver_with_input(UpstreamCall(request, resource))
        if resource.name == resource.public_name or not isinstance(answer.result, bytes):
            # What is on disk is not opened.
            return answer
        result = with_resource_uri(answer.result, resource.name, resource.public_name)
        return msgspec.structs.replace(answer, result=result)

    async def complete(self, request: McpRequest) -> McpResponse:
        """Completions of an argument of a prompt or template; raises HeadgateError."""
        self._access.admit(request.caller)
        ref = msgspec.json.decode(request.params["ref"], type=dict[str, Raw])
        key = "uri" if "uri" in ref else "name"
        resolve = self._calls.resolve_resource if key == "uri" else self._calls.resolve_prompt
        item = await resolve(request)
        ref[key] = Raw(msgspec.json.encode(item.name))
        params = {**request.params, "ref": Raw(msgspec.json.encode(ref))}
        call = UpstreamCall(msgspec.structs.replace(request, params=params), item)
        return await self._input_bridge.deliver_with_input(call)

    async def forward(self, request: McpRequest, server: str | None) -> McpResponse:
        """Forward an unknown method to the named server, or the only one; raises HeadgateError."""
        self._access.admit(request.caller)
        if self._transfers.is_chunk_method(request.method):
            return await self._transfers.read_chunk(request)
        servers = self._catalog.visible_servers(self._catalog.visibility(request.caller))
        if server is not None and server not in servers:
            raise ServerNotFound(server, nearest_servers(server, servers))
        tool = self._task_registry.tool_of_task(request, server)
        server = server or (tool.server if tool is not None else None)
        if server is None and len(servers) == 1:
            server = servers[0]
        if server not in servers:
            raise MethodNotFound(request.method, len(servers))
        self._task_registry.check_owner(request, server)
        call = UpstreamCall(request, Item(ItemKind.TOOLS, server, "", request.method))
        answer = await self._input_bridge.deliver_with_input(call)
        answer = self._task_registry.own_tasks(call, answer)
        self._task_registry.record_task(call, answer)
        if request.method != _TASK_RESULT:
            return answer
        # This is the result of a tool call that continued as a task; it may be known of which tool.
        if tool is not None and tool.name and tool.server == server:
            call = UpstreamCall(request, tool)
        return await self._tool_calls.limit_result(call, answer)

    async def subscribe(self, request: McpRequest) -> McpResponse:
        """Subscribe to a resource; raises HeadgateError."""
        self._access.admit(request.caller)
        resource = await self._calls.resolve_resource(request)
        return await self._subscriptions.subscribe(resource, request.caller)

    async def unsubscribe(self, request: McpRequest) -> McpResponse:
        """End a subscription; raises HeadgateError."""
        return await self._subscriptions.unsubscribe(request.name, request.caller)
