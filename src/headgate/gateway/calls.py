"""The path of a tool call: from the name that the client uses, to its server, to the result that it gets."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field

import msgspec

from headgate.catalog.argument_correction import may_be_refusal, schema_text, with_schema_on_refusal
from headgate.catalog.errors import ToolNotFound
from headgate.catalog.name_allocation import names_server
from headgate.catalog.own_tools import (
    CALL_DEFINITION,
    EXPAND_DEFINITION,
    read_wrapped_call,
    retrieve_definition,
)
from headgate.catalog.public_names import CALL_TOOL, EXPAND_SCHEMA, RETRIEVE_TOOL, RETRIEVE_TOOLS
from headgate.delivery.transactions.tool_definitions import DEFINITIONS as DELIVERY_DEFINITIONS
from headgate.delivery.transactions.tool_definitions import STEP_TOOL
from headgate.domain.errors import HeaderMismatch, HeadgateError, UnknownArgument
from headgate.domain.identity import Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.gateway.interfaces import (
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
from headgate.input_requests.task_registry import MAX_TASK_BYTES, TASK_ID_MARKER
from headgate.protocol.mcp_headers import header_mismatch
from headgate.protocol.result_conversion import claims_error, with_public_uris
from headgate.results.tools import DEFINITIONS as READER_DEFINITIONS

# The largest result that is searched for an error as a whole.
_SMALL_BYTES = 8 * 1024
# The gateway's own tools, whose schemas explain an error about an unknown argument.
_OWN_DEFINITIONS = {
    CALL_TOOL: CALL_DEFINITION,
    EXPAND_SCHEMA: EXPAND_DEFINITION,
    **dict.fromkeys((RETRIEVE_TOOLS, RETRIEVE_TOOL), retrieve_definition(())),
    **READER_DEFINITIONS,
    **DELIVERY_DEFINITIONS,
}


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


@dataclass(eq=False)
class ToolCalls:
    """Calls tools of servers and of the gateway itself."""

    _access: AccessControl
    _catalog: CatalogLookup
    _listings: ClientListings
    _large_results: LargeResultHandler
    _transactions: TransactionSteps
    _transfers: ChunkedTransfers
    _calls: UpstreamCalls
    # The gateway's own tools by name; `call_tool` calls any tool.
    _gateway_tools: Mapping[str, GatewayTool] = field(default_factory=dict)

    async def call(self, request: McpRequest) -> McpResponse:
        """Execute one tool call and return its result as the client gets it; raises HeadgateError."""
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
        # After delivery, so that the ledger has the response of the upstream, not an excerpt.
        answer = await self.limit_result(call, answer)
        result = answer.result
        if (
            isinstance(result, bytes)
            and len(result) <= _SMALL_BYTES
            and not answer.error
            and not claims_error(result)
        ):
            # Nearly always: the tool reports no error.
            return answer
        if not may_be_refusal(answer):
            return answer
        # The schema lets the model correct its arguments.
        seen_whole = self._listings.shows_full_schemas(request) and not wrapped
        return with_schema_on_refusal(call.item, answer, seen_whole=seen_whole)

    async def _explain_error(
        self, error: HeadgateError, request: McpRequest, *, wrapped: bool
    ) -> HeadgateError:
        """The error with a hint for the model: a schema, or how to search for tools."""
        if isinstance(error, UnknownArgument):
            error = await self._with_schema(request, error)
        if not isinstance(error, ToolNotFound) or not (wrapped or self._listings.lists_search_tool(request)):
            return error
        finder = f"{RETRIEVE_TOOLS} finds others"
        if error.name == CALL_TOOL:
            finder = f"{CALL_TOOL} does not call itself, so give the name of the inner call; {finder}"
        return ToolNotFound(error.name, error.nearest, finder=finder)

    async def _with_schema(self, request: McpRequest, unknown: UnknownArgument) -> HeadgateError:
        """The error about an unknown argument, with the schema of the tool that it may belong to."""
        # If the caller may not call that tool, that error is returned instead.
        definition = _OWN_DEFINITIONS.get(unknown.target)
        if definition is not None:
            own = Item(ItemKind.TOOLS, "", unknown.target, unknown.target, definition)
            unknown.details = schema_text(own)
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
        """Read a large result: a stored one, or that of a call that is made now."""
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
        excerpt = await self._large_results.read_new(call, read_request, answer)
        # A result on disk still has the URIs of its server.
        return excerpt if isinstance(answer.result, bytes) else self._calls.with_public_uris(call, excerpt)

    async def limit_result(self, call: UpstreamCall, answer: McpResponse) -> McpResponse:
        """The result as the client gets it: unchanged, as an excerpt, or in chunks."""
        if call.request.delivery_request is not None and self._transfers.needs_chunks(call.request, answer):
            return await self._transfers.announce_chunks(call.request, answer)
        if self._large_results.passes_unchanged(answer):
            # Nearly always: it is not opened.
            return answer
        if not self._large_results.may_exceed_limit(answer):
            if isinstance(answer.result, bytes):
                return self._large_results.mark_spoofed_notices(answer)
            return await self._large_results.mark_spoofed_notices_on_disk(answer)
        excerpt = await self._large_results.truncate_if_large(call, answer)
        # A result on disk still has the URIs of its server.
        return excerpt if isinstance(answer.result, bytes) else self._calls.with_public_uris(call, excerpt)

    def _call_or_step(self, request: McpRequest) -> Awaitable[tuple[UpstreamCall, McpResponse]]:
        """Send one tool call, by itself or as a step of a transaction; raises HeadgateError."""
        # Not a coroutine of its own, because every call comes by here.
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

    def _with_stored_uris(self, request: McpRequest, name: str, answer: McpResponse) -> McpResponse:
        """The same for a part of a stored result, in which links may have their public names already."""
        try:
            server = self._catalog.resolve(ItemKind.TOOLS, name, request.caller).server
        except HeadgateError:
            # The tool does not exist any more, so its links lead nowhere.
            return answer
        if not self._catalog.has_renamed_uris(server) or not isinstance(answer.result, bytes):
            return answer
        public = with_public_uris(
            answer.result, lambda uri: uri if names_server(uri) else self._catalog.public_uri(server, uri)
        )
        return msgspec.structs.replace(answer, result=public)


def _unwrap_call(request: McpRequest) -> McpRequest:
    """The call that is inside a call of call_tool; raises InvalidArguments."""
    name, arguments = read_wrapped_call(request.params)
    params = {**request.params, "arguments": arguments}
    # Headers repeat the arguments of call_tool, of which there are none that they should.
    return msgspec.structs.replace(request, name=name, params=params, headers=None)
