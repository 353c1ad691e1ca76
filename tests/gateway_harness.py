"""A gateway in memory: its rules are real, its servers do what a test says."""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Raw

from headgate.access.local import LocalAccess
from headgate.catalog.listing_variant import KnownClients
from headgate.catalog.tool_pool import ToolPools
from headgate.delivery.upstream_delivery import UpstreamDelivery
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.gateway.calls import ToolCalls, UpstreamCalls
from headgate.gateway.gateway import Gateway
from headgate.gateway.interfaces import (
    AccessControl,
    GatewayTool,
    LargeResultHandler,
    ToolCaller,
    TransactionSteps,
)
from headgate.gateway.resources import ResourceRequests
from headgate.input_requests.input_bridge import InputBridge
from headgate.input_requests.request_state import RequestStateSealer
from headgate.input_requests.task_registry import MemoryTaskRegistry
from headgate.results.tools import ReadRequest
from headgate.storage.files.sealer import KEY_BYTES, Sealer
from tests.catalog.sample_catalog import catalog_of
from tests.catalog.sample_listings import tool_listings_of
from tests.delivery.scripted_upstream import DONE, DeliveryHarness


class WholeResponses:
    """Shows what the upstream said, and keeps nothing."""

    def passes_unchanged(self, answer: McpResponse) -> bool:
        return False

    def mark_spoofed_notices(self, answer: McpResponse) -> McpResponse:
        return answer

    async def mark_spoofed_notices_on_disk(self, answer: McpResponse) -> McpResponse:
        return answer

    def may_exceed_limit(self, answer: McpResponse) -> bool:
        return False

    async def truncate_if_large(self, call: UpstreamCall, answer: McpResponse) -> McpResponse:
        return answer

    def is_result_tool(self, tool: str) -> bool:
        return False

    async def parse_read_request(self, request: McpRequest) -> ReadRequest:
        raise NotImplementedError

    async def read_stored(self, request: McpRequest, read_request: ReadRequest) -> tuple[str, McpResponse]:
        raise NotImplementedError

    async def read_new(
        self, call: UpstreamCall, read_request: ReadRequest, answer: McpResponse
    ) -> McpResponse:
        raise NotImplementedError


class NoTransactions:
    """Every call stands alone."""

    def is_step(self, request: McpRequest) -> bool:
        return False

    async def run_step(self, request: McpRequest, use: ToolCaller) -> tuple[UpstreamCall, McpResponse]:
        raise NotImplementedError


class WholeTransfers:
    """Every result goes in one piece."""

    def needs_chunks(self, request: McpRequest, answer: McpResponse) -> bool:
        return False

    async def announce_chunks(self, request: McpRequest, answer: McpResponse) -> McpResponse:
        raise NotImplementedError

    def is_chunk_method(self, method: str) -> bool:
        return False

    async def read_chunk(self, request: McpRequest) -> McpResponse:
        raise NotImplementedError


class UnrecordedDelivery:
    """Sends calls without a ledger."""

    def __init__(self, delivery: UpstreamDelivery) -> None:
        self._delivery = delivery

    def sends_requests_during_calls(self, server: str) -> bool:
        return self._delivery.sends_requests_during_calls(server)

    async def send_recorded(self, call: UpstreamCall) -> McpResponse:
        return await self._delivery.send_with_retry(call)


class GatewayHarness:
    """A gateway before servers that have not told what they have yet."""

    def __init__(
        self,
        *servers: str,
        answer: McpResponse = DONE,
        access: AccessControl | None = None,
        mode: ListingMode = ListingMode.FULL,
        own: Mapping[str, GatewayTool] = MappingProxyType({}),
        prefixed: bool = True,
        clients: KnownClients | None = None,
        responses: LargeResultHandler | None = None,
        transactions: TransactionSteps | None = None,
    ) -> None:
        self.desk = DeliveryHarness(answer)
        self.catalog = catalog_of(*(servers or ("bank",)), prefixed=prefixed)
        self.pools = ToolPools(15, lambda: 0.0)
        self.tool_listings = tool_listings_of(
            mode, self.catalog, pools=self.pools, clients=clients, reserved=prefixed
        )
        delivery = self.desk.delivery
        access = access or LocalAccess()
        input_bridge = InputBridge(
            UnrecordedDelivery(delivery), RequestStateSealer(Sealer([bytes(KEY_BYTES)]))
        )
        task_registry = MemoryTaskRegistry()
        self.upstream_calls = UpstreamCalls(
            access, self.catalog, self.tool_listings, delivery, input_bridge, task_registry
        )
        transfers = WholeTransfers()
        calls = ToolCalls(
            access,
            self.catalog,
            self.tool_listings,
            responses or WholeResponses(),
            transactions or NoTransactions(),
            transfers,
            self.upstream_calls,
            own,
        )
        resources = ResourceRequests(
            access,
            self.catalog,
            delivery,
            input_bridge,
            task_registry,
            transfers,
            self.upstream_calls,
            calls,
        )
        self.gateway = Gateway(calls, resources, self.tool_listings)

    @property
    def sent(self) -> list[UpstreamCall]:
        """Every call that reached a server."""
        return self.desk.upstream.received

    def offer(self, server: str, kind: ItemKind, *definitions: dict[str, Any]) -> None:
        """Let a server tell what it has."""
        self.catalog.replace_listing(server, kind, [json.dumps(each).encode() for each in definitions])


def request(
    method: str, name: str = "", params: dict[str, Any] | None = None, who: str = "", **more: Any
) -> McpRequest:
    """A request whose params are given as values."""
    raw = {key: Raw(json.dumps(value).encode()) for key, value in (params or {}).items()}
    return McpRequest(
        caller=Identity(principal=who) if who else LOCAL_IDENTITY,
        method=method,
        name=name,
        params=raw,
        **more,
    )


class Large:
    """A result that is on disk, as far as anybody can tell."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)
        self.first = content[:1]
        self.opened = self.closed = False

    def chunks(self) -> Iterator[bytes]:
        self.opened = True
        for start in range(0, self.size, 7):
            yield self._content[start : start + 7]

    def close(self) -> None:
        self.closed = True
