"""The Protocols of everything that the path of a request is composed of."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from headgate.catalog.listing_variant import ListingContext
from headgate.domain.identity import Identity, Visibility
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.results.tools import ReadRequest


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

    def pending_server(self, kind: ItemKind, name: str, caller: Identity) -> str | None:
        """The server that such an item of the caller belongs to, if it has not listed it yet."""

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

    def visibility(self, caller: Identity) -> Visibility:
        """What the caller sees of the catalog."""

    def visible_servers(self, visibility: Visibility) -> tuple[str, ...]:
        """The servers that such callers see, in the order of the configuration."""


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

    async def subscribe(self, item: Item, caller: Identity) -> McpResponse:
        """Hear of every change of a resource; raises HeadgateError."""

    async def unsubscribe(self, public_uri: str, caller: Identity) -> McpResponse:
        """One client less hears of it, whatever has become of the resource since; raises HeadgateError."""


class InteractiveDelivery(Protocol):
    """Carries a call to its answer, however often the upstream asks something on the way."""

    def deliver_with_input(self, call: UpstreamCall) -> Awaitable[McpResponse]:
        """The upstream's answer; raises HeadgateError saying what may have happened."""


class TaskRegistry(Protocol):
    """Remembers whose a task is that goes on after its call was answered."""

    def record_task(self, call: UpstreamCall, answer: McpResponse) -> None:
        """Look for a task in the answer."""

    def check_owner(self, request: McpRequest) -> None:
        """Raises HeadgateError where the request is about a task that its caller does not own."""

    def own_tasks(self, request: McpRequest, answer: McpResponse) -> McpResponse:
        """The answer to a request, without the tasks of other owners that it lists."""

    def tool_of_task(self, request: McpRequest) -> Item | None:
        """The tool that began the task of the request, if it is the caller's; it may have no name."""


class LargeResultHandler(Protocol):
    """Keeps large results out of the conversation, and within reach."""

    def passes_unchanged(self, answer: McpResponse) -> bool:
        """Whether the answer is small and has nothing to mark; asked of every answer, so it opens none."""

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
