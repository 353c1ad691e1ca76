"""The Protocols of everything that the path of a request is composed of."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from headgate.catalog.listing_variant import ListingContext
from headgate.domain.identity import Identity, Visibility
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.results.tools import ReadRequest


class AccessControl(Protocol):
    """Decides what a caller may do."""

    def admit(self, caller: Identity) -> None:
        """Count the request; raises when the caller exceeds its rate limit."""

    def permit(self, caller: Identity, item: Item) -> None:
        """Raises when the caller may not use it."""


class CatalogLookup(Protocol):
    """Resolves names and URIs to what servers offer."""

    def is_settled(self, kind: ItemKind, name: str) -> bool:
        """Whether the tool or prompt of that name is known and keeps its name; on the path of every call."""

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
    """Knows the tool list of each client."""

    def shows_full_schemas(self, request: McpRequest) -> bool:
        """Whether the client sees the whole definition of every tool."""

    def lists_search_tool(self, request: McpRequest) -> bool:
        """Whether what finds tools is on the client's list."""

    def shows_verbatim(self, request: McpRequest) -> bool:
        """Whether the client sees every definition as its server wrote it, including mirrored headers."""

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
        """Wait until the server has listed; raises HeadgateError with the cause."""

    async def subscribe(self, item: Item, caller: Identity) -> McpResponse:
        """Subscribe to a resource; raises HeadgateError."""

    async def unsubscribe(self, public_uri: str, caller: Identity) -> McpResponse:
        """End the subscription of one client; raises HeadgateError."""


class InteractiveDelivery(Protocol):
    """Sends a call and handles the input requests of its upstream."""

    def deliver_with_input(self, call: UpstreamCall) -> Awaitable[McpResponse]:
        """The upstream's answer; raises HeadgateError saying what may have happened."""


class TaskRegistry(Protocol):
    """Knows the owner of each task that continues after its call has returned."""

    def record_task(self, call: UpstreamCall, answer: McpResponse) -> None:
        """Look for a task in the answer."""

    def check_owner(self, request: McpRequest, server: str) -> None:
        """Raises HeadgateError where the request is about a task at the server that is not its caller's."""

    def own_tasks(self, call: UpstreamCall, answer: McpResponse) -> McpResponse:
        """The answer to a call, without the tasks of other owners that it lists; raises HeadgateError."""

    def tool_of_task(self, request: McpRequest, server: str | None = None) -> Item | None:
        """The tool that began the task of the request, if it is the caller's; it may have no name.

        At that server, or without one at the latest that has a task of that id.
        """


class LargeResultHandler(Protocol):
    """Stores large results and returns excerpts."""

    def passes_unchanged(self, answer: McpResponse) -> bool:
        """Whether the answer is small and has nothing to mark; it decodes nothing, as on every path."""

    def may_exceed_limit(self, answer: McpResponse) -> bool:
        """Whether the answer may be too large; it decodes nothing."""

    def mark_spoofed_notices(self, answer: McpResponse) -> McpResponse:
        """The answer, in which nothing that its server wrote looks like a notice of the gateway."""

    async def mark_spoofed_notices_on_disk(self, answer: McpResponse) -> McpResponse:
        """The same of an answer whose result may be on disk."""

    async def truncate_if_large(self, call: UpstreamCall, answer: McpResponse) -> McpResponse:
        """The answer, or an excerpt of it with a notice."""

    def is_result_tool(self, tool: str) -> bool:
        """Whether the gateway's own tool of that name reads large results."""

    async def parse_read_request(self, request: McpRequest) -> ReadRequest:
        """What a call of such a tool is about; raises InvalidArguments."""

    async def read_stored(self, request: McpRequest, read_request: ReadRequest) -> tuple[str, McpResponse]:
        """The tool of a stored result, and the requested part; raises HeadgateError."""

    async def read_new(
        self, call: UpstreamCall, read_request: ReadRequest, answer: McpResponse
    ) -> McpResponse:
        """The requested part of a result that has just arrived; raises HeadgateError."""


# Sends a tool call to its upstream, and returns it with the tool that it resolved to.
ToolCaller = Callable[[McpRequest], Awaitable[tuple[UpstreamCall, McpResponse]]]


class TransactionSteps(Protocol):
    """Makes steps of a whole out of single calls."""

    def is_step(self, request: McpRequest) -> bool:
        """Whether the request is a step; it decodes nothing."""

    async def run_step(self, request: McpRequest, use: ToolCaller) -> tuple[UpstreamCall, McpResponse]:
        """Make the step; raises HeadgateError."""


class ChunkedTransfers(Protocol):
    """Hands very large results over in parts, to clients that can put them together."""

    def needs_chunks(self, request: McpRequest, answer: McpResponse) -> bool:
        """Whether the answer has to be sent in chunks; it decodes nothing."""

    async def announce_chunks(self, request: McpRequest, answer: McpResponse) -> McpResponse:
        """What announces the parts."""

    def is_chunk_method(self, method: str) -> bool:
        """Whether the method requests a chunk."""

    async def read_chunk(self, request: McpRequest) -> McpResponse:
        """The part; raises HeadgateError."""
