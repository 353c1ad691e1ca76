"""The path of a request and of a listing, step by step."""

from collections.abc import Awaitable, Mapping
from types import MappingProxyType

import msgspec
from msgspec import Raw

from headgate.catalog.argument_correction import may_be_refusal, schema_text, with_schema_on_refusal
from headgate.catalog.errors import ServerNotFound, ToolNotFound
from headgate.catalog.item_lookup import nearest_servers
from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.own_tools import (
    CALL_DEFINITION,
    EXPAND_DEFINITION,
    read_wrapped_call,
    retrieve_definition,
)
from headgate.catalog.public_names import CALL_TOOL, EXPAND_SCHEMA, RETRIEVE_TOOL, RETRIEVE_TOOLS
from headgate.catalog.public_uris import names_server
from headgate.delivery.transactions.tool_definitions import DEFINITIONS as DELIVERY_DEFINITIONS
from headgate.delivery.transactions.tool_definitions import STEP_TOOL
from headgate.domain.errors import HeadgateError, MethodNotFound, UnknownArgument
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.gateway.collaborators import (
    AccessControl,
    CatalogLookup,
    ChunkedTransfers,
    ClientListings,
    GatewayTool,
    InteractiveDelivery,
    LargeResultHandler,
    ServerSubscriptions,
    TaskRegistry,
    TransactionSteps,
)
from headgate.gateway.upstream_calls import UpstreamCalls
from headgate.protocol.result_conversion import with_public_uris, with_resource_uri
from headgate.results.tools import DEFINITIONS as READER_DEFINITIONS

_TASK_RESULT = "tasks/result"
# The gateway's own tools as their schemas are told to whoever called one with a member that it does not have.
_OWN_DEFINITIONS = {
    CALL_TOOL: CALL_DEFINITION,
    EXPAND_SCHEMA: EXPAND_DEFINITION,
    **dict.fromkeys((RETRIEVE_TOOLS, RETRIEVE_TOOL), retrieve_definition(())),
    **READER_DEFINITIONS,
    **DELIVERY_DEFINITIONS,
}


class Gateway:
    """One gate between clients and every server."""

    def __init__(  # noqa: PLR0913 (each is a step of the path)
        self,
        access: AccessControl,
        catalog: CatalogLookup,
        listings: ClientListings,
        delivery: ServerSubscriptions,
        input_bridge: InteractiveDelivery,
        task_registry: TaskRegistry,
        large_results: LargeResultHandler,
        transactions: TransactionSteps,
        transfers: ChunkedTransfers,
        upstream_calls: UpstreamCalls,
        own: Mapping[str, GatewayTool] = MappingProxyType({}),
    ) -> None:
        """`own` are the gateway's own tools by name, and call_tool calls any."""
        self._access = access
        self._catalog = catalog
        self._listings = listings
        self._delivery = delivery
        self._input_bridge = input_bridge
        self._task_registry = task_registry
        self._large_results = large_results
        self._transactions = transactions
        self._transfers = transfers
        self._calls = upstream_calls
        self._gateway_tools = own

    async def call(self, request: McpRequest) -> McpResponse:
        """Carry one tool call to whoever has the tool, and the answer back; raises HeadgateError."""
        # Before resolving, so that guessing tool names is not free.
        self._access.admit(request.caller)
        wrapped = request.name == CALL_TOOL and self._listings.serves_gateway_tools(request)
        try:
            if wrapped:
                request = _unwrap_call(request)
            own = self._gateway_tools.get(request.name)
            if own is not None and self._listings.serves_gateway_tools(request):
                return await own.run(request)
            if self._large_results.is_result_tool(request.name) and self._listings.serves_gateway_tools(
                request
            ):
                return await self._read_large_result(request)
            call, answer = await self._call_or_step(request)
        except (UnknownArgument, ToolNotFound) as error:
            explained = await self._explain_error(error, request, wrapped=wrapped)
            if explained is error:
                raise
            raise explained from error
        # After delivery, so that what is recorded is what the upstream said, not what we showed.
        answer = await self._limit_result(call, answer)
        if not may_be_refusal(answer):
            return answer
        # Whoever has not seen the schema can correct itself by it.
        return with_schema_on_refusal(
            call.item, answer, seen_whole=self._listings.shows_full_schemas(request) and not wrapped
        )

    async def _explain_error(
        self, error: HeadgateError, request: McpRequest, *, wrapped: bool
    ) -> HeadgateError:
        """The error with what helps to correct the call: a schema, or how other tools are found."""
        if isinstance(error, UnknownArgument):
            error = await self._with_schema(request, error)
        if not isinstance(error, ToolNotFound) or not (wrapped or self._listings.lists_search_tool(request)):
            return error
        finder = f"{RETRIEVE_TOOLS} finds others"
        if error.name == CALL_TOOL:
            finder = f"{CALL_TOOL} does not call itself, so give the name of the inner call; {finder}"
        return ToolNotFound(error.name, error.nearest, finder=finder)

    async def _with_schema(self, request: McpRequest, unknown: UnknownArgument) -> HeadgateError:
        """The refusal of a member, with the schema of the tool that it may have been meant for.

        A tool that the caller cannot call is what is wrong first.
        """
        definition = _OWN_DEFINITIONS.get(unknown.target)
        if definition is not None:
            unknown.details = schema_text(
                Item(ItemKind.TOOLS, "", unknown.target, unknown.target, definition)
            )
        elif unknown.target:
            try:
                await self._calls.await_server_of(ItemKind.TOOLS, unknown.target, request.caller)
                tool = self._catalog.resolve(ItemKind.TOOLS, unknown.target, request.caller)
                self._access.permit(request.caller, tool)
            except HeadgateError as error:
                return error
            unknown.details = schema_text(tool)
        return unknown

    async def _read_large_result(self, request: McpRequest) -> McpResponse:
        """Look at a large result: one that is stored, or that of a call that is made now."""
        read_request = await self._large_results.parse_read_request(request)
        if read_request.cache_id:
            name, answer = await self._large_results.read_stored(request, read_request)
            return self._with_stored_uris(request, name, answer)
        params = {**request.params, "arguments": read_request.arguments}
        inner = msgspec.structs.replace(request, name=read_request.tool, params=params, headers=None)
        if inner.name == CALL_TOOL and self._listings.serves_gateway_tools(inner):
            inner = _unwrap_call(inner)
        call, answer = await self._call_or_step(inner)
        if may_be_refusal(answer):
            answer = with_schema_on_refusal(call.item, answer)
        shown = await self._large_results.read_new(call, read_request, answer)
        # What was on disk has not been looked at before.
        return shown if isinstance(answer.result, bytes) else self._calls.with_public_uris(call, shown)

    async def _limit_result(self, call: UpstreamCall, answer: McpResponse) -> McpResponse:
        """What the client is shown of an answer."""
        if call.request.delivery_request is not None and self._transfers.needs_chunks(call.request, answer):
            return await self._transfers.announce_chunks(call.request, answer)
        if self._large_results.passes_unchanged(answer):
            # Nearly always: it is not opened.
            return answer
        if not self._large_results.may_exceed_limit(answer):
            if isinstance(answer.result, bytes):
                return self._large_results.mark_spoofed_notices(answer)
            return await self._large_results.mark_spoofed_notices_on_disk(answer)
        shown = await self._large_results.truncate_if_large(call, answer)
        # What was on disk has not been looked at before.
        return shown if isinstance(answer.result, bytes) else self._calls.with_public_uris(call, shown)

    def _call_or_step(self, request: McpRequest) -> Awaitable[tuple[UpstreamCall, McpResponse]]:
        """Carry one tool call out, by itself or as a step of a transaction; raises HeadgateError.

        Not a coroutine of its own, because every call comes by here.
        """
        if request.name != STEP_TOOL and request.delivery_request is None:
            # Nearly always.
            return self._calls.call_upstream_tool(request)
        if not self._transactions.is_step(request):
            return self._calls.call_upstream_tool(request)
        in_transaction = request.delivery_request is not None and bool(request.delivery_request.transaction)
        # Where the gateway's own tools are not served, a server may have one of that name.
        if in_transaction or self._listings.serves_gateway_tools(request):
            return self._transactions.run_step(request, self._calls.call_upstream_tool)
        return self._calls.call_upstream_tool(request)

    async def get_prompt(self, request: McpRequest) -> McpResponse:
        """One prompt, filled in; raises HeadgateError."""
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
        """What an argument of a prompt or a template could be; raises HeadgateError."""
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
        """A method that the gateway does not know, to the server that is named or meant."""
        self._access.admit(request.caller)
        if self._transfers.is_chunk_method(request.method):
            return await self._transfers.read_chunk(request)
        servers = self._catalog.visible_servers(self._catalog.visibility(request.caller))
        if server is not None and server not in servers:
            raise ServerNotFound(server, nearest_servers(server, servers))
        tool = self._task_registry.tool_of_task(request)
        server = server or (tool.server if tool is not None else None)
        if server is None and len(servers) == 1:
            server = servers[0]
        if server not in servers:
            raise MethodNotFound(request.method, len(servers))
        self._task_registry.check_owner(request)
        call = UpstreamCall(request, Item(ItemKind.TOOLS, server, "", request.method))
        answer = await self._input_bridge.deliver_with_input(call)
        answer = self._task_registry.own_tasks(request, answer)
        self._task_registry.record_task(call, answer)
        if request.method != _TASK_RESULT:
            return answer
        # The result of a tool that went on as a task comes this way.
        return await self._limit_result(
            UpstreamCall(request, _tool_of_server(tool, server) or call.item), answer
        )

    async def subscribe(self, request: McpRequest) -> McpResponse:
        """Hear of every change of a resource; raises HeadgateError."""
        self._access.admit(request.caller)
        return await self._delivery.subscribe(await self._calls.resolve_resource(request), request.caller)

    async def unsubscribe(self, request: McpRequest) -> McpResponse:
        """Do not hear of it any more; raises HeadgateError."""
        return await self._delivery.unsubscribe(request.name, request.caller)

    async def list(self, kind: ItemKind, cursor: str | None, listing_context: ListingContext) -> bytes:
        """One page of a listing; raises InvalidCursor."""
        return await self._listings.list_page(kind, cursor, listing_context)

    def _with_stored_uris(self, request: McpRequest, name: str, answer: McpResponse) -> McpResponse:
        """The same for a part of a stored result, in which links may have their public names already."""
        try:
            server = self._catalog.resolve(ItemKind.TOOLS, name, request.caller).server
        except HeadgateError:
            # It is gone, and where its links lead with it.
            return answer
        if not self._catalog.has_renamed_uris(server) or not isinstance(answer.result, bytes):
            return answer
        public = with_public_uris(
            answer.result, lambda uri: uri if names_server(uri) else self._catalog.public_uri(server, uri)
        )
        return msgspec.structs.replace(answer, result=public)


def _tool_of_server(tool: Item | None, server: str) -> Item | None:
    """The tool, if it is known which one it is and the server has it."""
    return tool if tool is not None and tool.name and tool.server == server else None


def _unwrap_call(request: McpRequest) -> McpRequest:
    """The call that is inside a call of call_tool; raises InvalidArguments."""
    name, arguments = read_wrapped_call(request.params)
    params = {**request.params, "arguments": arguments}
    # Headers repeat the arguments of call_tool, of which there are none that they should.
    return msgspec.structs.replace(request, name=name, params=params, headers=None)
