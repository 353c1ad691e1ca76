"""What the client library adds to a session of the official SDK: time per call, bytes per call, memory."""

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

import httpx2
import msgspec
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer

from bench.delivery.ledger_gateway import SERVER, TOOL, gateway
from bench.load.closed_loop import percentile
from bench.path.summary import Figure, spread
from headgate.tx import TxSession

BARE: Final = "the SDK alone"
PLAIN: Final = "without a key"
KEYED: Final = "with a key"
MEMORY: Final = "a server in the same process"
HTTP: Final = "a gateway over HTTP, rmcp"
_ROUNDS: Final = 7
_EACH: Final = {MEMORY: 200, HTTP: 60}
_QUICK_EACH: Final = {MEMORY: 40, HTTP: 20}
_SESSIONS: Final = 1_000
_KEYS: Final = 1_000
_ARGUMENTS: Final = {"path": "reports/daily", "limit": 10}

_Call = Callable[[], Awaitable[Any]]
_Calls = dict[str, _Call]


class Wrapped(msgspec.Struct, frozen=True, kw_only=True):
    """One way of calling one peer; ratios and what is added are beside the SDK alone in the same round."""

    peer: str
    way: str
    rounds: int
    p50_us: Figure
    p99_us: Figure
    p50_ratio: Figure
    p99_ratio: Figure
    added_p50_us: Figure
    added_p99_us: Figure
    # CPU of the process that calls, in which the near server runs as well.
    cpu_us: Figure
    added_cpu_us: Figure
    # Of the body of a request and of its answer, over HTTP.
    request_bytes: int = 0
    answer_bytes: int = 0


class Weight(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of memory."""

    session: int
    # An answer that is kept for its key.
    key: int


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about the client library."""

    calls: list[Wrapped]
    weight: Weight


def library(*, quick: bool) -> Library:
    """Time, bytes and memory. Raises StartFailed."""
    print("bench: delivery, the client library", file=sys.stderr)
    with gateway({SERVER: {}}) as gateway_process:
        address = f"http://127.0.0.1:{gateway_process.port}/mcp"
        return asyncio.run(_measured(address, quick=quick))


async def _measured(address: str, *, quick: bool) -> Library:
    rounds, each = (2, _QUICK_EACH) if quick else (_ROUNDS, _EACH)
    async with _in_memory() as calls:
        near = await _in_turn(MEMORY, calls, rounds, each[MEMORY])
    async with _over_http(address) as (calls, scales):
        far = await _in_turn(HTTP, calls, rounds, each[HTTP])
        far = [await _weighed(one, calls[one.way], scales) for one in far]
    return Library(calls=[*near, *far], weight=await weight())


@asynccontextmanager
async def _in_memory() -> AsyncIterator[_Calls]:
    server = MCPServer("bench", log_level="ERROR")

    @server.tool()
    def payload_200(path: str, limit: int) -> str:
        return f"{path}: {limit} rows"

    async with Client(server) as bare, TxSession(Client(server)) as tx:
        yield _calls(bare, tx, TOOL)


@asynccontextmanager
async def _over_http(address: str) -> AsyncIterator[tuple[_Calls, "_Scales"]]:
    scales = _Scales()
    async with (
        scales.client() as first,
        scales.client() as second,
        Client(streamable_http_client(address, http_client=first)) as bare,
        TxSession(Client(streamable_http_client(address, http_client=second))) as tx,
    ):
        if "idempotency" not in tx.features:
            raise RuntimeError("the gateway does not speak rmcp with the library")
        yield _calls(bare, tx, f"{SERVER}_{TOOL}"), scales


def _calls(bare: Client, tx: TxSession, tool: str) -> _Calls:
    async def keyed() -> Any:
        return (await tx.call_tool(tool, _ARGUMENTS, idempotency_key=str(uuid4()))).unwrap()

    async def plain() -> Any:
        return (await tx.call_tool(tool, _ARGUMENTS)).unwrap()

    return {BARE: lambda: bare.call_tool(tool, _ARGUMENTS), PLAIN: plain, KEYED: keyed}


async def _in_turn(peer: str, calls: _Calls, rounds: int, each: int) -> list[Wrapped]:
    for call in calls.values():
        await _timed(call, max(10, each // 10))
    found = [{way: await _timed(call, each) for way, call in calls.items()} for _ in range(rounds)]
    return [_summary(peer, way, found) for way in calls]


class _Times(msgspec.Struct, frozen=True):
    """In microseconds."""

    p50: float
    p99: float
    cpu: float


async def _timed(call: _Call, count: int) -> _Times:
    times, cpu = [], time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        result = await call()
        times.append((time.perf_counter() - began) * 1e6)
        if result.is_error:
            raise RuntimeError(f"a call failed: {result.content}")
    cpu = (time.process_time() - cpu) * 1e6 / count
    times.sort()
    return _Times(percentile(times, 0.50), percentile(times, 0.99), cpu)


def _summary(peer: str, way: str, rounds: list[dict[str, _Times]]) -> Wrapped:
    def ratio(value: Callable[[_Times], float]) -> Figure:
        return spread(value(one[way]) / value(one[BARE]) for one in rounds)

    def added(value: Callable[[_Times], float]) -> Figure:
        return spread(value(one[way]) - value(one[BARE]) for one in rounds)

    return Wrapped(
        peer=peer,
        way=way,
        rounds=len(rounds),
        p50_us=spread(one[way].p50 for one in rounds),
        p99_us=spread(one[way].p99 for one in rounds),
        p50_ratio=ratio(lambda one: one.p50),
        p99_ratio=ratio(lambda one: one.p99),
        added_p50_us=added(lambda one: one.p50),
        added_p99_us=added(lambda one: one.p99),
        cpu_us=spread(one[way].cpu for one in rounds),
        added_cpu_us=added(lambda one: one.cpu),
    )


class _Scales:
    """Weighs what goes over HTTP."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0

    def client(self) -> httpx2.AsyncClient:
        """A client whose requests are weighed."""

        async def asked(request: httpx2.Request) -> None:
            self.sent = len(request.content)

        async def answered(response: httpx2.Response) -> None:
            self.received = int(response.headers.get("content-length", 0))

        return httpx2.AsyncClient(event_hooks={"request": [asked], "response": [answered]})


async def _weighed(one: Wrapped, call: _Call, scales: _Scales) -> Wrapped:
    await call()
    return msgspec.structs.replace(one, request_bytes=scales.sent, answer_bytes=scales.received)


class _Quick:
    """A session that answers at once, and weighs nothing."""

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None) -> str:
        """The same answer to everything."""
        return "done"


async def weight() -> Weight:
    """What a session takes beside the SDK's own, and what each key that it remembers takes."""
    quick = _Quick()
    async with TxSession(quick) as tx:
        # What is made once for all is not counted.
        await tx.call_tool(TOOL, _ARGUMENTS, idempotency_key="first")
        sessions: list[TxSession] = []
        before = _traced()
        sessions += [TxSession(quick) for _ in range(_SESSIONS)]
        session = (_traced() - before) // _SESSIONS
        before = _traced()
        for _ in range(_KEYS):
            await tx.call_tool(TOOL, _ARGUMENTS, idempotency_key=str(uuid4()))
        key = (_traced() - before) // _KEYS
    tracemalloc.stop()
    return Weight(session=session, key=key)


def _traced() -> int:
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
