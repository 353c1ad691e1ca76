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
from bench.listing.gateway_process import open_gateway_process, replaying, wait_for_servers
from bench.listing.mcp_client import McpClient, Unreadable
from headgate.catalog.public_names import CALL_TOOL, OWN_NAMES
from headgate.domain.listing_mode import ListingMode

# Of a mode in which something could not be reached.
_MOST_NAMED: Final = 10
# Who waits for an answer leaves the gateway idle.
_VISITORS: Final = 4

Call = Callable[[McpClient, str], dict[str, Any]]


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
        open_gateway_process(config) as gateway_process,
    ):
        wait_for_servers(gateway_process, len(catalogues))
        expected = {
            (one.server, msgspec.json.decode(tool, type=_Named).name)
            for one in catalogues
            for tool in one.tools
        }
        with McpClient(gateway_process.port, "/mcp/full") as mcp_client:
            mcp_client.introduce()
            # The gateway answers its own tools itself.
            names = [name for name in _listed(mcp_client) if name not in OWN_NAMES]
        found = [
            _by(mode.value, gateway_process.port, mode, _directly, names, expected) for mode in ListingMode
        ]
        found.append(
            _by(
                f"search, by {CALL_TOOL}", gateway_process.port, ListingMode.SEARCH, _wrapped, names, expected
            )
        )
        return found


def _by(
    name: str, port: int, mode: ListingMode, call: Call, names: Sequence[str], expected: set[tuple[str, str]]
) -> Reached:
    print(f"bench: listing, every tool called, {name}", file=sys.stderr, flush=True)

    def share(number: int) -> tuple[int, set[tuple[str, str]]]:
        with McpClient(port, f"/mcp/{mode}") as mcp_client:
            mcp_client.introduce()
            listed = len(_listed(mcp_client))
            return listed, {_origin(mcp_client, call, one) for one in names[number::_VISITORS]}

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


def _listed(mcp_client: McpClient) -> list[str]:
    names: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = json.loads(mcp_client.exchange(mcp_client.request("tools/list", cursor))[1])["result"]
        names += [tool["name"] for tool in page["tools"]]
        if "nextCursor" not in page:
            return names
        cursor = {"cursor": page["nextCursor"]}


def _origin(mcp_client: McpClient, call: Call, name: str) -> tuple[str, str]:
    """The server and the tool that have answered."""
    try:
        server, tool = (block["text"] for block in call(mcp_client, name)["content"])
    except (Unreadable, ValueError):
        return "", name
    return server, tool


def _directly(mcp_client: McpClient, name: str) -> dict[str, Any]:
    return mcp_client.call(name, {})


def _wrapped(mcp_client: McpClient, name: str) -> dict[str, Any]:
    return mcp_client.call(CALL_TOOL, {"name": name, "args": {}})


class _Named(msgspec.Struct):
    name: str
