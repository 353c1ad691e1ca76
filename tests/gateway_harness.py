"""A gateway in memory: its rules are real, its servers do what a test says."""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Raw

from headgate.access.local import LocalAccess
from headgate.catalog.known_clients import KnownClients
from headgate.catalog.tool_pool import ToolPools
from headgate.domain.call import LOCAL, Answer, Call, Caller, Request
from headgate.domain.kind import Kind
from headgate.domain.listing import Mode
from headgate.gateway.gateway import (
    AccessControl,
    Gateway,
    GatewayTool,
    LargeResultHandler,
    ToolCaller,
    TransactionSteps,
)
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

    def mark_spoofed_notices(self, answer: Answer) -> Answer:
        return answer

    async def mark_spoofed_notices_on_disk(self, answer: Answer) -> Answer:
        return answer

    def may_exceed_limit(self, answer: Answer) -> bool:
        return False

    async def truncate_if_large(self, call: Call, answer: Answer) -> Answer:
        return answer

    def is_result_tool(self, tool: str) -> bool:
        return False

    async def parse_read_request(self, request: Request) -> ReadRequest:
        raise NotImplementedError

    async def read_stored(self, request: Request, read_request: ReadRequest) -> tuple[str, Answer]:
        raise NotImplementedError

    async def read_new(self, call: Call, read_request: ReadRequest, answer: Answer) -> Answer:
        raise NotImplementedError


class NoTransactions:
    """Every call stands alone."""

    def is_step(self, request: Request) -> bool:
        return False

    async def run_step(self, request: Request, use: ToolCaller) -> tuple[Call, Answer]:
        raise NotImplementedError


class WholeTransfers:
    """Every result goes in one piece."""

    def needs_chunks(self, request: Request, answer: Answer) -> bool:
        return False

    async def announce_chunks(self, request: Request, answer: Answer) -> Answer:
        raise NotImplementedError

    def is_chunk_method(self, method: str) -> bool:
        return False

    async def read_chunk(self, request: Request) -> Answer:
        raise NotImplementedError


class GatewayHarness:
    """A gateway before servers that have not told what they have yet."""

    def __init__(
        self,
        *servers: str,
        answer: Answer = DONE,
        access: AccessControl | None = None,
        mode: Mode = Mode.FULL,
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
        self.gateway = Gateway(
            access or LocalAccess(),
            self.catalog,
            self.tool_listings,
            delivery,
            InputBridge(delivery, RequestStateSealer(Sealer([bytes(KEY_BYTES)]))),
            MemoryTaskRegistry(),
            responses or WholeResponses(),
            transactions or NoTransactions(),
            WholeTransfers(),
            own,
        )

    @property
    def sent(self) -> list[Call]:
        """Every call that reached a server."""
        return self.desk.upstream.received

    def offer(self, server: str, kind: Kind, *definitions: dict[str, Any]) -> None:
        """Let a server tell what it has."""
        self.catalog.replace_listing(server, kind, [json.dumps(each).encode() for each in definitions])


def request(
    method: str, name: str = "", params: dict[str, Any] | None = None, who: str = "", **more: Any
) -> Request:
    """A request whose params are given as values."""
    raw = {key: Raw(json.dumps(value).encode()) for key, value in (params or {}).items()}
    return Request(caller=Caller(who) if who else LOCAL, method=method, name=name, params=raw, **more)


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
