"""The path of a request that is no tool call: prompt, resource, completion, subscription, other method."""

import msgspec
from msgspec import Raw

from headgate.catalog.errors import ServerNotFound
from headgate.catalog.item_lookup import nearest_servers
from headgate.domain.errors import MethodNotFound
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.gateway.calls import ToolCalls
from headgate.gateway.interfaces import (
    AccessControl,
    CatalogLookup,
    ChunkedTransfers,
    InteractiveDelivery,
    ServerSubscriptions,
    TaskRegistry,
)
from headgate.gateway.upstream_calls import UpstreamCalls
from headgate.protocol.result_conversion import with_resource_uri

_TASK_RESULT = "tasks/result"


class ResourceRequests:
    """Finds what a request names among what its caller sees, and sends it to the server."""

    def __init__(
        self,
        access: AccessControl,
        catalog: CatalogLookup,
        subscriptions: ServerSubscriptions,
        input_bridge: InteractiveDelivery,
        task_registry: TaskRegistry,
        transfers: ChunkedTransfers,
        upstream_calls: UpstreamCalls,
        tool_calls: ToolCalls,
    ) -> None:
        self._access = access
        self._catalog = catalog
        self._subscriptions = subscriptions
        self._input_bridge = input_bridge
        self._task_registry = task_registry
        self._transfers = transfers
        self._calls = upstream_calls
        self._tool_calls = tool_calls

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
        item = await (
            self._calls.resolve_resource(request) if key == "uri" else self._calls.resolve_prompt(request)
        )
        ref[key] = Raw(msgspec.json.encode(item.name))
        params = {**request.params, "ref": Raw(msgspec.json.encode(ref))}
        return await self._input_bridge.deliver_with_input(
            UpstreamCall(msgspec.structs.replace(request, params=params), item)
        )

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
        # This is the result of a tool call that continued as a task.
        return await self._tool_calls.limit_result(
            UpstreamCall(request, _tool_of_server(tool, server) or call.item), answer
        )

    async def subscribe(self, request: McpRequest) -> McpResponse:
        """Subscribe to a resource; raises HeadgateError."""
        self._access.admit(request.caller)
        return await self._subscriptions.subscribe(
            await self._calls.resolve_resource(request), request.caller
        )

    async def unsubscribe(self, request: McpRequest) -> McpResponse:
        """End a subscription; raises HeadgateError."""
        return await self._subscriptions.unsubscribe(request.name, request.caller)


def _tool_of_server(tool: Item | None, server: str) -> Item | None:
    """The tool, if it is known which one it is and the server has it."""
    return tool if tool is not None and tool.name and tool.server == server else None
