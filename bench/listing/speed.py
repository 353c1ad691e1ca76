"""How long tools/list takes in each mode with 100, 1,000 and 10,000 tools, beside a server of bare bytes."""

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench.listing.catalogs import Catalogue, of_size
from bench.listing.gateway_process import GatewayProcess, open_gateway_process, replaying, wait_for_servers
from bench.listing.mcp_client import McpClient, Unreadable
from bench.process import running, wait_until
from bench.readiness import wait_for_port
from headgate.catalog.public_names import EXPAND_SCHEMA
from headgate.domain.listing_mode import ListingMode
from testkit.gateway_process import free_port
from testkit.procfs import cpu_seconds, resident_bytes

SIZES: Final = (100, 1_000, 10_000)
QUICK_SIZES: Final = (100,)
# The mode that a gateway starts in comes first: that is the one that it prepares by itself.
_MODES: Final = (
    ListingMode.AUTO,
    ListingMode.FULL,
    ListingMode.PARTITIONED,
    ListingMode.SLIM,
    ListingMode.BUDGET,
    ListingMode.SEARCH,
    ListingMode.DYNAMIC,
)
_ROUNDS: Final = 50
_ROUNDS_OF_ALL: Final = 10
_EXPANSIONS: Final = 200
# A gateway that uses less than this share of a processor for so long has nothing left to do.
_REST_SECONDS: Final = 0.5
_IDLE: Final = 0.05
_BARE: Final = Path(__file__).resolve().with_name("bare.py")


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """tools/list in one mode with so many tools; milliseconds as the client sees them."""

    mode: str
    tools: int
    listed: int
    pages: int
    first_page_bytes: int
    bytes: int
    # The handshake and all pages, for the first time; auto: after the start, while servers connect.
    first_ms: float
    # The first page, prepared, and the same bytes from a server that does nothing else.
    p50_ms: float
    p95_ms: float
    bare_p50_ms: float
    # All pages one after the other, and the same.
    all_p50_ms: float
    bare_all_p50_ms: float

    @property
    def ratio(self) -> float:
        """The first page beside bare bytes."""
        return self.p50_ms / self.bare_p50_ms


class Sized(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway with so many tools."""

    tools: int
    servers: int
    # From the start of the process to all pages of mode auto, the tools being known from the last start.
    started_ms: float
    # expandSchema of tools that are drawn.
    expand_p50_ms: float
    expand_p95_ms: float
    expand_most_ms: float
    resident_mib: float


class Speed(msgspec.Struct, frozen=True):
    """Both tables."""

    timed: list[Timed]
    sized: list[Sized]


def speed(catalogues: Sequence[Catalogue], sizes: Sequence[int]) -> Speed:
    """Every mode at every size."""
    found = [_at_size(of_size(catalogues, size), size) for size in sizes]
    return Speed([one for timed, _ in found for one in timed], [sized for _, sized in found])


def _at_size(catalogues: Sequence[Catalogue], tools: int) -> tuple[list[Timed], Sized]:
    print(f"bench: listing, tools/list of {tools:,} tools", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as home:
        place = Path(home)
        with replaying(catalogues, place) as config:
            with open_gateway_process(config) as gateway_process:
                # So that the next start knows every tool.
                wait_for_servers(gateway_process, len(catalogues))
            with open_gateway_process(config) as gateway_process:
                first = _first(gateway_process, ListingMode.AUTO)
                started = time.perf_counter() - gateway_process.began
                wait_for_servers(gateway_process, len(catalogues))
                _settle(gateway_process)
                timed = [_timed(gateway_process, mode, tools, place, first) for mode in _MODES]
                return timed, _sized(gateway_process, catalogues, tools, started * 1000)


def _settle(gateway_process: GatewayProcess) -> None:
    """Wait until nothing is made in the background any more. Raises StartFailed."""
    before = -1.0

    def rests() -> bool:
        nonlocal before
        last, before = before, cpu_seconds(gateway_process.pid)
        time.sleep(_REST_SECONDS)
        return before - last < _REST_SECONDS * _IDLE

    wait_until(rests, gateway_process.pid, "a moment of rest")


class _Answers(msgspec.Struct, frozen=True):
    """All pages as they came the first time."""

    seconds: float
    pages: list[bytes]
    cursors: list[str]
    listed: int


def _first(gateway_process: GatewayProcess, mode: ListingMode) -> _Answers:
    """Shake hands and take all pages, as a client does that has just come."""
    pages: list[bytes] = []
    cursors: list[str] = []
    listed = 0
    began = time.perf_counter()
    with _introduced(gateway_process, mode) as mcp_client:
        spent = time.perf_counter() - began
        while True:
            params = {"cursor": cursors[-1]} if cursors else {}
            began = time.perf_counter()
            pages.append(mcp_client.exchange(mcp_client.request("tools/list", params))[1])
            spent += time.perf_counter() - began
            # What the client makes of it is its own affair.
            result = json.loads(pages[-1])["result"]
            listed += len(result["tools"])
            if "nextCursor" not in result:
                return _Answers(spent, pages, cursors, listed)
            cursors.append(result["nextCursor"])


@contextmanager
def _introduced(gateway_process: GatewayProcess, mode: ListingMode) -> Iterator[McpClient]:
    with McpClient(gateway_process.port, f"/mcp/{mode}") as mcp_client:
        mcp_client.introduce()
        yield mcp_client


def _timed(
    gateway_process: GatewayProcess, mode: ListingMode, tools: int, place: Path, started: _Answers
) -> Timed:
    first = started if mode is ListingMode.AUTO else _first(gateway_process, mode)
    # After the start servers have told their tools once more; that is the listing to compare.
    now = _first(gateway_process, mode)
    with _introduced(gateway_process, mode) as mcp_client, _bare(now.pages, place / mode) as bare:
        cursors: list[dict[str, str]] = [{}, *({"cursor": cursor} for cursor in now.cursors)]
        asked = [mcp_client.request("tools/list", one) for one in cursors]
        bare_asked = [bare.request("tools/list", one, f"/{at}") for at, one in enumerate(cursors)]
        page, bare_page = _rounds(
            _ROUNDS,
            lambda: _expect(mcp_client.exchange(asked[0]), now.pages[0]),
            lambda: _expect(bare.exchange(bare_asked[0]), now.pages[0]),
        )
        whole, bare_whole = _rounds(
            _ROUNDS_OF_ALL,
            lambda: [mcp_client.exchange(one) for one in asked],
            lambda: [bare.exchange(one) for one in bare_asked],
        )
    return Timed(
        mode=mode,
        tools=tools,
        listed=now.listed,
        pages=len(now.pages),
        first_page_bytes=len(now.pages[0]),
        bytes=sum(map(len, now.pages)),
        first_ms=first.seconds * 1000,
        p50_ms=median(page),
        p95_ms=_p95(page),
        bare_p50_ms=median(bare_page),
        all_p50_ms=median(whole),
        bare_all_p50_ms=median(bare_whole),
    )


def _rounds(
    rounds: int, ours: Callable[[], object], bare: Callable[[], object]
) -> tuple[list[float], list[float]]:
    """Milliseconds of both, in turn, so that both see the same of what else runs on the machine."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, times in zip((ours, bare), found, strict=True):
            began = time.perf_counter()
            work()
            times.append((time.perf_counter() - began) * 1000)
    return found


def _expect(answer: tuple[bytes, bytes], page: bytes) -> None:
    if answer[1] != page:
        raise Unreadable(f"not the page that came before: {answer[1][:200]!r}")


@contextmanager
def _bare(pages: Sequence[bytes], place: Path) -> Iterator[McpClient]:
    place.mkdir()
    for number, page in enumerate(pages):
        (place / str(number)).write_bytes(page)
    port = free_port()
    with running([sys.executable, "-IS", str(_BARE), str(port), str(place)]) as pid:
        wait_for_port(port, pid, "the bare server")
        with McpClient(port, "/0") as mcp_client:
            yield mcp_client


def _sized(
    gateway_process: GatewayProcess, catalogues: Sequence[Catalogue], tools: int, started_ms: float
) -> Sized:
    with _introduced(gateway_process, ListingMode.SLIM) as mcp_client:
        names = [
            f"{one.server}:{msgspec.json.decode(tool, type=_Named).name}"
            for one in catalogues
            for tool in one.tools
        ]
        times = []
        for name in random.Random(tools).choices(names, k=_EXPANSIONS):
            params = {"name": EXPAND_SCHEMA, "arguments": {"toolName": name}}
            request = mcp_client.request("tools/call", params)
            began = time.perf_counter()
            _, body = mcp_client.exchange(request)
            times.append((time.perf_counter() - began) * 1000)
            if "result" not in json.loads(body):
                raise Unreadable(f"{name}: {body[:300]!r}")
    return Sized(
        tools=tools,
        servers=len(catalogues),
        started_ms=started_ms,
        expand_p50_ms=median(times),
        expand_p95_ms=_p95(times),
        expand_most_ms=max(times),
        resident_mib=resident_bytes(gateway_process.pid) / 2**20,
    )


def _p95(times: Sequence[float]) -> float:
    return sorted(times)[round((len(times) - 1) * 0.95)]


class _Named(msgspec.Struct):
    name: str
