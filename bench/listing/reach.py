"""Whether every tool can be called in every mode, listed or not: each one is called."""

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.listing.catalogs import Catalogue
from bench.listing.house import open_house, replaying, wait_for_servers
from bench.listing.visitor import Unreadable, Visitor
from headgate.catalog.names import CALL_TOOL, OWN_NAMES
from headgate.domain.listing import Mode

# Of a mode in which something could not be reached.
_MOST_NAMED: Final = 10
# Who waits for an answer leaves the gateway idle.
_VISITORS: Final = 4

Call = Callable[[Visitor, str], dict[str, Any]]


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """One mode: every tool of every server called by its public name."""

    mode: str
    listed: int
    called: int
    # Answered by the right server's right tool.
    reached: int
    missed: list[str]


def reached(catalogues: Sequence[Catalogue]) -> list[Reached]:
    """Call every tool in every mode, over HTTP, and by call_tool where that is listed."""
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as home,
        replaying(catalogues, Path(home)) as config,
        open_house(config) as house,
    ):
        wait_for_servers(house, len(catalogues))
        expected = {
            (one.server, msgspec.json.decode(tool, type=_Named).name)
            for one in catalogues
            for tool in one.tools
        }
        with Visitor(house.port, "/mcp/full") as visitor:
            visitor.introduce()
            # The gateway answers its own tools itself.
            names = [name for name in _listed(visitor) if name not in OWN_NAMES]
        found = [_by(mode.value, house.port, mode, _directly, names, expected) for mode in Mode]
        found.append(_by(f"search, by {CALL_TOOL}", house.port, Mode.SEARCH, _wrapped, names, expected))
        return found


def _by(
    name: str, port: int, mode: Mode, call: Call, names: Sequence[str], expected: set[tuple[str, str]]
) -> Reached:
    print(f"bench: listing, every tool called, {name}", file=sys.stderr, flush=True)

    def share(number: int) -> tuple[int, set[tuple[str, str]]]:
        with Visitor(port, f"/mcp/{mode}") as visitor:
            visitor.introduce()
            listed = len(_listed(visitor))
            return listed, {_origin(visitor, call, one) for one in names[number::_VISITORS]}

    with ThreadPoolExecutor(_VISITORS) as threads:
        shares = list(threads.map(share, range(_VISITORS)))
    found = set[tuple[str, str]]().union(*(origins for _, origins in shares))
    missed = sorted(f"{server}: {tool}" for server, tool in expected - found)
    return Reached(
        mode=name,
        listed=shares[0][0],
        called=len(names),
        reached=len(expected & found),
        missed=missed[:_MOST_NAMED],
    )


def _listed(visitor: Visitor) -> list[str]:
    names: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = json.loads(visitor.exchange(visitor.request("tools/list", cursor))[1])["result"]
        names += [tool["name"] for tool in page["tools"]]
        if "nextCursor" not in page:
            return names
        cursor = {"cursor": page["nextCursor"]}


def _origin(visitor: Visitor, call: Call, name: str) -> tuple[str, str]:
    """The server and the tool that have answered."""
    try:
        server, tool = (block["text"] for block in call(visitor, name)["content"])
    except (Unreadable, ValueError):
        return "", name
    return server, tool


def _directly(visitor: Visitor, name: str) -> dict[str, Any]:
    return visitor.call(name, {})


def _wrapped(visitor: Visitor, name: str) -> dict[str, Any]:
    return visitor.call(CALL_TOOL, {"name": name, "args": {}})


class _Named(msgspec.Struct):
    name: str
