"""How long every operation takes through a gateway that runs, with the work in a process of its own."""

import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

import msgspec

from bench.listing.gateway_process import GatewayProcess
from bench.listing.mcp_client import McpClient, Unreadable
from bench.responses.large_result_gateway import SERVER, cache_id_of, texts_of, visiting
from bench.responses.operations import EXCERPT, JSON, OPERATIONS
from bench.responses.speed import kinds
from bench.responses.workloads import items, log

_SIZE: Final = 3_000_000
_QUICK_SIZE: Final = 150_000
_ROUNDS: Final = 9
_QUICK_ROUNDS: Final = 1
# No reply has more; a whole result has.
_MOST_BYTES: Final = 64 * 1024


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """One operation as an agent sees it, from the request to the last byte of the reply."""

    operation: str
    kind: str
    size: int
    # The very first one starts the process that does the work.
    first_ms: float
    ms: float


def tool_of(kind: str) -> str:
    """What the tool is called that gives this kind."""
    return f"large_{kind.lower()}"


def sized(*, quick: bool) -> int:
    """How many bytes the texts have."""
    return _QUICK_SIZE if quick else _SIZE


def large_texts(*, quick: bool) -> dict[str, str]:
    """What is looked at, by the name of its tool."""
    size = sized(quick=quick)
    return {tool_of(kind): (items if kind == JSON else log)(size) for kind in kinds()}


def carried(gateway_process: GatewayProcess, *, quick: bool) -> list[Carried]:
    """Every operation that an agent can ask for. Raises Unreadable."""
    size, rounds = sized(quick=quick), _QUICK_ROUNDS if quick else _ROUNDS
    found = []
    with visiting(gateway_process) as mcp_client:
        for kind in kinds():
            said = f"bench: responses, {size / 1e6:g} MB of {kind} through a gateway"
            print(said, file=sys.stderr, flush=True)
            for name, tool, arguments in _calls(mcp_client, kind):
                first, usual = _timed(mcp_client, tool, arguments, rounds)
                found.append(Carried(operation=name, kind=kind, size=size, first_ms=first, ms=usual))
    return found


def _calls(mcp_client: McpClient, kind: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What each operation is called, its tool, and the arguments."""
    tool = f"{SERVER}_{tool_of(kind)}"
    yield EXCERPT, tool, {}
    cache_id = cache_id_of(mcp_client.call(tool, {}))
    for one in OPERATIONS:
        if one.kind == kind and one.tool:
            yield one.name, one.tool, one.arguments | {"cache_id": cache_id}


def _timed(mcp_client: McpClient, tool: str, arguments: dict[str, Any], rounds: int) -> tuple[float, float]:
    """Milliseconds of the first time and the median of the others."""
    request = mcp_client.request("tools/call", {"name": tool, "arguments": arguments})
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        _, body = mcp_client.exchange(request)
        times.append((time.perf_counter() - began) * 1000)
    result = msgspec.json.decode(body)["result"]
    if result.get("isError") or len(body) > _MOST_BYTES:
        raise Unreadable(f"{tool}: {texts_of(result)[0][:300]}")
    return times[0], median(times[1:])
