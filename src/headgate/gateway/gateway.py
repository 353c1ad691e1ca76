"""The path of a request and of a listing, step by step."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import msgspec
from msgspec import Raw

from headgate.catalog.argument_correction import may_be_refusal, schema_text, with_schema_on_refusal
from headgate.catalog.errors import ServerNotFound, ToolNotFound
from headgate.catalog.item_lookup import nearest_servers
from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.own_tool_arguments import read_wrapped_call
from headgate.catalog.own_tools import CALL_DEFINITION, EXPAND_DEFINITION, retrieve_definition
from headgate.catalog.public_names import CALL_TOOL, EXPAND_SCHEMA, RETRIEVE_TOOL, RETRIEVE_TOOLS
from headgate.catalog.public_uris import names_server
from headgate.delivery.transactions.tool_definitions import DEFINITIONS as DELIVERY_DEFINITIONS
from headgate.domain.errors import HeaderMismatch, HeadgateError, MethodNotFound, UnknownArgument
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import Identity, McpRequest, McpResponse, UpstreamCall
from headgate.protocol.mcp_headers import header_mismatch
from headgate.protocol.result_conversion import with_public_uris, with_resource_uri
from headgate.results.tools import DEFINITIONS as READER_DEFINITIONS
from headgate.results.tools import ReadRequest

_TASK_RESULT = "tasks/result"
# The gateway's own tools as their schemas are told to whoever called one with a member that it does not have.
_OWN_DEFINITIONS = {
    CALL_TOOL: CALL_DEFINITION,
    EXPAND_SCHEMA: EXPAND_DEFINITION,
    **dict.fromkeys((RETRIEVE_TOOLS, RETRIEVE_TOOL), retrieve_definition(())),
    **READER_DEFINITIONS,
    **DELIVERY_DEFINITIONS,
}


class AccessControl(Protocol):
    """Decides who may do what."""

    def admit(self, caller: Identity) -> None:
        """Count the request; raises when the caller asks too often."""

    def permit(self, caller: Identity, item: Item) -> None:
        """Raises when the caller may not use it."""


class CatalogLookup(Protocol):
    """Knows everything that servers offer, and its names."""

    def is_settled(self, kind: ItemKind, name: str) -> bool:
        """Whether the tool or prompt of that name is known and stays the same; asked of every call."""

    def pending_server(self, kind: ItemKind, name: str) -> str | None:
        """The server that such a thing belongs to, if it has not told what it has yet."""

    def may_be_reassigned(self, kind: ItemKind, name: str) -> bool:
        """Whether a server that is still starting may get the name from the one that has it now."""

    async def wait_for_stable_names(self) -> None:
        """Wait until names stay as they are; bounded."""

    def resolve(self, kind: ItemKind, name: str, caller: Identity) -> Item:
        """The tool or prompt of that name; raises ToolNotFound or PromptNotFound with the nearest ones."""

    def count_use(self, tool: Item) -> None:
        """Count a call of the tool."""

    def resolve_resource(self, uri: str, caller: Identity) -> Item:
        """Where a resource is read; raises ResourceNotFound."""

    def has_renamed_uris(self, server: str) -> bool:
        """Whether clients know some of the server's URIs under another name."""

    def public_uri(self, server: str, uri: str) -> str:
        """What clients call this resource of the server."""

    def servers(self) -> tuple[str, ...]:
        """The servers, in the order of the configuration."""


class ClientListings(Protocol):
    """Knows what each client sees."""

    def shows_full_schemas(self, request: McpRequest) -> bool:
        """Whether the client sees the whole definition of every tool."""

    def lists_search_tool(self, request: McpRequest) -> bool:
        """Whether what finds tools is on the client's list."""

    def shows_verbatim(self, request: McpRequest) -> bool:
        """Whether the client sees every definition as its server wrote it, also what headers it asks for."""

    def serves_gateway_tools(self, request: McpRequest) -> bool:
        """Whether the client is served the gateway's own tools, so that their names mean them."""

    def record_call(self, request: McpRequest, tool: Item) -> None:
        """The client calls the tool."""

    def restore_arguments(self, request: McpRequest, tool: Item) -> McpRequest:
        """The request with the arguments that the tool's own schema wants, where the client saw another."""

    async def list_page(self, kind: ItemKind, cursor: str | None, listing_context: ListingContext) -> bytes:
        """One page of a listing: the members of its result, without its braces."""


class GatewayTool(Protocol):
    """A tool of the gateway itself."""

    async def run(self, request: McpRequest) -> McpResponse:
        """The answer to one call; raises HeadgateError."""


class ServerSubscriptions(Protocol):
    """Carries requests to their upstream."""

    async def await_ready(self, server: str) -> None:
        """Wait until the server has told what it has; raises HeadgateError with the cause."""

    async def subscribe(self, item: Item) -> McpResponse:
        """Hear of every change of a resource; raises HeadgateError."""

    async def unsubscribe(self, public_uri: str) -> McpResponse:
        """One client less hears of it, whatever has become of the resource since; raises HeadgateError."""


class InteractiveDelivery(Protocol):
    """Carries a call to its answer, however often the upstream asks something on the way."""

    def deliver_with_input(self, call: UpstreamCall) -> Awaitable[McpResponse]:
        """The upstream's answer; raises HeadgateError saying what may have happened."""


class TaskRegistry(Protocol):
    """Remembers whose a task is that goes on after its call was answered."""

    def record_task(self, call: UpstreamCall, answer: McpResponse) -> None:
        """Look for a task in the answer."""

    def tool_of_task(self, request: McpRequest) -> Item | None:
        """The tool that began the task of the request, if it is the caller's; it may have no name."""


class LargeResultHandler(Protocol):
    """Keeps large results out of the conversation, and within reach."""

    def may_exceed_limit(self, answer: McpResponse) -> bool:
        """Whether the answer may be too large; asked of every answer, so it opens none."""

    def mark_spoofed_notices(self, answer: McpResponse) -> McpResponse:
        """The answer, in which nothing that its server wrote looks like a notice of the gateway."""

    async def mark_spoofed_notices_on_disk(self, answer: McpResponse) -> McpResponse:
        """The same of an answer whose result may be on disk."""

    async def truncate_if_large(self, call: UpstreamCall, answer: McpResponse) -> McpResponse:
        """What the client is shown of the answer."""

    def is_result_tool(self, tool: str) -> bool:
        """Whether the gateway's own tool of that name reads large results."""

    async def parse_read_request(self, request: McpRequest) -> ReadRequest:
        """What a call of such a tool is about; raises InvalidArguments."""

    async def read_stored(self, request: McpRequest, read_request: ReadRequest) -> tuple[str, McpResponse]:
        """The tool that a stored result is of, and what was asked for of it; raises HeadgateError."""

    async def read_new(
        self, call: UpstreamCall, read_request: ReadRequest, answer: McpResponse
    ) -> McpResponse:
        """What was asked for of a result that has just come; raises HeadgateError."""


# Carries a tool call to its upstream as any other, and says which tool it was.
ToolCaller = Callable[[McpRequest], Awaitable[tuple[UpstreamCall, McpResponse]]]


class TransactionSteps(Protocol):
    """Makes steps of a whole out of single calls."""

    def is_step(self, request: McpRequest) -> bool:
        """Whether the request is a step; asked of every call, so it opens nothing."""

    async def run_step(self, request: McpRequest, use: ToolCaller) -> tuple[UpstreamCall, McpResponse]:
        """Make the step; raises HeadgateError."""


class ChunkedTransfers(Protocol):
    """Hands very large results over in parts, to clients that can put them together."""

    def needs_chunks(self, request: McpRequest, answer: McpResponse) -> bool:
        """Whether the answer is to go in parts; asked of every answer, so it opens none."""

    async def announce_chunks(self, request: McpRequest, answer: McpResponse) -> McpResponse:
        """What announces the parts."""

    def is_chunk_method(self, method: str) -> bool:
        """Whether a client asks with this method for a part."""

    async def read_chunk(self, request: McpRequest) -> McpResponse:
        """The part; raises HeadgateError."""


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
                await self._await_server_of(ItemKind.TOOLS, unknown.target)
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
        return shown if isinstance(answer.result, bytes) else self._with_public_uris(call, shown)

    async def _limit_result(self, call: UpstreamCall, answer: McpResponse) -> McpResponse:
        """What the client is shown of an answer."""
        if self._transfers.needs_chunks(call.request, answer):
            return await self._transfers.announce_chunks(call.request, answer)
        if not self._large_results.may_exceed_limit(answer):
            # Nearly always: it is not opened.
            if isinstance(answer.result, bytes):
                return self._large_results.mark_spoofed_notices(answer)
            return await self._large_results.mark_spoofed_notices_on_disk(answer)
        shown = await self._large_results.truncate_if_large(call, answer)
        # What was on disk has not been looked at before.
        return shown if isinstance(answer.result, bytes) else self._with_public_uris(call, shown)

    def _call_or_step(self, request: McpRequest) -> Awaitable[tuple[UpstreamCall, McpResponse]]:
        """Carry one tool call out, by itself or as a step of a transaction; raises HeadgateError.

        Not a coroutine of its own, because every call comes by here.
        """
        if not self._transactions.is_step(request):
            # Nearly always.
            return self.call_upstream_tool(request)
        in_transaction = request.delivery_request is not None and bool(request.delivery_request.transaction)
        # Where the gateway's own tools are not served, a server may have one of that name.
        if in_transaction or self._listings.serves_gateway_tools(request):
            return self._transactions.run_step(request, self.call_upstream_tool)
        return self.call_upstream_tool(request)

    async def call_upstream_tool(self, request: McpRequest) -> tuple[UpstreamCall, McpResponse]:
        """Carry one tool call to its upstream, and the answer back; raises HeadgateError."""
        if not self._catalog.is_settled(ItemKind.TOOLS, request.name):
            # A server that is still starting may have the tool, so it is too early to say that nobody has.
            await self._await_server_of(ItemKind.TOOLS, request.name)
        tool = self._catalog.resolve(ItemKind.TOOLS, request.name, request.caller)
        self._access.permit(request.caller, tool)
        if tool.mirrored_parameters and request.headers is not None:
            _check_mirrored_headers(tool, request, needed=self._listings.shows_verbatim(request))
        request = self._listings.restore_arguments(request, tool)
        self._catalog.count_use(tool)
        self._listings.record_call(request, tool)
        call = UpstreamCall(request, tool)
        answer = self._with_public_uris(call, await self._input_bridge.deliver_with_input(call))
        self._task_registry.record_task(call, answer)
        return call, answer

    async def get_prompt(self, request: McpRequest) -> McpResponse:
        """One prompt, filled in; raises HeadgateError."""
        self._access.admit(request.caller)
        call = UpstreamCall(request, await self._resolve_prompt(request))
        return self._with_public_uris(call, await self._input_bridge.deliver_with_input(call))

    async def read_resource(self, request: McpRequest) -> McpResponse:
        """The contents of one resource; raises HeadgateError."""
        self._access.admit(request.caller)
        resource = await self._resolve_resource(request)
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
        item = await (self._resolve_resource(request) if key == "uri" else self._resolve_prompt(request))
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
        servers = self._catalog.servers()
        if server is not None and server not in servers:
            raise ServerNotFound(server, nearest_servers(server, servers))
        tool = self._task_registry.tool_of_task(request)
        server = server or (tool.server if tool is not None else None)
        if server is None and len(servers) == 1:
            server = servers[0]
        if server not in servers:
            raise MethodNotFound(request.method, len(servers))
        call = UpstreamCall(request, Item(ItemKind.TOOLS, server, "", request.method))
        answer = await self._input_bridge.deliver_with_input(call)
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
        return await self._delivery.subscribe(await self._resolve_resource(request))

    async def unsubscribe(self, request: McpRequest) -> McpResponse:
        """Do not hear of it any more; raises HeadgateError."""
        return await self._delivery.unsubscribe(request.name)

    async def list(self, kind: ItemKind, cursor: str | None, listing_context: ListingContext) -> bytes:
        """One page of a listing; raises InvalidCursor."""
        return await self._listings.list_page(kind, cursor, listing_context)

    def _with_public_uris(self, call: UpstreamCall, answer: McpResponse) -> McpResponse:
        """The answer with every link to a resource under the name that leads back to its server."""
        server, result = call.item.server, answer.result
        if not self._catalog.has_renamed_uris(server) or not isinstance(result, bytes):
            # Nearly always: nothing is opened.
            return answer
        public = with_public_uris(result, lambda uri: self._catalog.public_uri(server, uri))
        return msgspec.structs.replace(answer, result=public)

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

    async def _resolve_prompt(self, request: McpRequest) -> Item:
        await self._await_server_of(ItemKind.PROMPTS, request.name)
        prompt = self._catalog.resolve(ItemKind.PROMPTS, request.name, request.caller)
        self._access.permit(request.caller, prompt)
        return prompt

    async def _resolve_resource(self, request: McpRequest) -> Item:
        await self._await_server_of(ItemKind.RESOURCES, request.name)
        resource = self._catalog.resolve_resource(request.name, request.caller)
        self._access.permit(request.caller, resource)
        return resource

    async def _await_server_of(self, kind: ItemKind, name: str) -> None:
        if self._catalog.may_be_reassigned(kind, name):
            await self._catalog.wait_for_stable_names()
        server = self._catalog.pending_server(kind, name)
        if server is not None:
            await self._delivery.await_ready(server)


def _tool_of_server(tool: Item | None, server: str) -> Item | None:
    """The tool, if it is known which one it is and the server has it."""
    return tool if tool is not None and tool.name and tool.server == server else None


def _unwrap_call(request: McpRequest) -> McpRequest:
    """The call that is inside a call of call_tool; raises InvalidArguments."""
    name, arguments = read_wrapped_call(request.params)
    params = {**request.params, "arguments": arguments}
    # Headers repeat the arguments of call_tool, of which there are none that they should.
    return msgspec.structs.replace(request, name=name, params=params, headers=None)


def _check_mirrored_headers(tool: Item, request: McpRequest, *, needed: bool) -> None:
    """Refuse headers that say something else than the arguments that they repeat."""
    arguments = bytes(request.params.get("arguments", b""))
    reason = header_mismatch(tool.mirrored_parameters, arguments, request.headers or {}, needed=needed)
    if reason is not None:
        raise HeaderMismatch(reason)
