"""Section `warm`: how soon a gateway with many servers answers after a start, without and with its catalog.

The servers of the second start wait for a file that is made only after everything was measured.
"""

import json
import lzma
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import machine
from bench.load.client import Client, Refused
from bench.options import Options
from bench.process import ROOT, running, wait_until
from bench.tables import figure, table
from testkit.gateway_process import free_port, http_get
from testkit.procfs import resident_bytes

_SERVERS: Final = 50
_TOOLS: Final = 100
_QUICK_SERVERS: Final = 4
_SERVER: Final = ROOT / "bench" / "retrieval" / "listed_server.py"
_CATALOGS: Final = ROOT / "tests" / "data" / "catalogs.jsonl.xz"


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start: seconds from the beginning of the process."""

    catalog: str
    listing: str
    connected: int
    first_answer_seconds: float
    # All pages, with every tool of every server.
    listed_seconds: float | None
    # A search that finds something.
    found_seconds: float
    found: str
    resident_mib: float


def run(options: Options) -> dict[str, object]:
    """Start without a catalog, then with one, in both listing modes; print the table and return it."""
    servers = _QUICK_SERVERS if options.quick else _SERVERS
    starts = []
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as home:
        place = Path(home)
        config, start_file = _prepare(place, servers)
        query = _real_tools()[0]["description"][:100]
        for mode in ("full", "search"):
            for catalog in ("none", "warm"):
                print(f"bench: warm: {mode}, catalog {catalog}", file=sys.stderr, flush=True)
                if catalog == "none":
                    start_file.touch()
                else:
                    start_file.unlink()
                start = _start(config, place / mode, mode, catalog, servers * _TOOLS, query)
                starts.append(start)
    print(_report(starts, servers))
    return {
        "machine": machine.describe_python(),
        "load_after": machine.load_average(),
        "servers": servers,
        "tools": servers * _TOOLS,
        "starts": msgspec.to_builtins(starts),
    }


def _prepare(place: Path, servers: int) -> tuple[Path, Path]:
    """A configuration of servers with tools of real ones, all of which wait for one file."""
    tools = _real_tools()
    start_file = place / "start"
    entries = {}
    for number in range(servers):
        listing = place / f"{number}.json"
        own = [
            {**tools[(number * _TOOLS + one) % len(tools)], "name": f"tool_{one}"} for one in range(_TOOLS)
        ]
        # The names of real tools where they are not taken yet, because search goes by them.
        names = dict.fromkeys(tools[(number * _TOOLS + one) % len(tools)]["name"] for one in range(_TOOLS))
        for one, name in zip(own, names, strict=False):
            one["name"] = name
        listing.write_text(json.dumps({"tools": own}))
        wait = f"while [ ! -e {shlex.quote(str(start_file))} ]; do sleep 1; done"
        serve = shlex.join([sys.executable, str(_SERVER), str(listing)])
        entries[f"server{number}"] = {"command": "sh", "args": ["-c", f"{wait}; exec {serve}"]}
    config = place / "headgate.json"
    config.write_text(json.dumps({"mcpServers": entries}))
    return config, start_file


def _real_tools() -> list[dict[str, Any]]:
    with lzma.open(_CATALOGS) as lines:
        return [tool for line in lines for tool in json.loads(line)["listing"]["tools"]]


def _start(config: Path, data: Path, mode: str, catalog: str, tools: int, query: str) -> Start:
    port = free_port()
    command = [sys.executable, "-m", "headgate", "serve", "--config", str(config), "--transport", "http"]
    command += ["--port", str(port), "--data-dir", str(data), "--listing", mode]
    began = time.perf_counter()
    with running(command, environment={"HEADGATE_EMBEDDER": "BM25"}) as pid:
        first = wait_until(_answered(lambda: _introduced(port) is not None), pid, "headgate")
        client = _introduced(port)
        assert client is not None
        listed = None
        if mode == "full":
            listed = wait_until(_answered(lambda: client.listing()[0] == tools), pid, "tools/list")
        found: list[str] = []

        def search() -> bool:
            answer = client.request(
                "tools/call", {"name": "retrieve_tools", "arguments": {"query": query, "limit": 1}}
            )
            found[:] = [tool["name"] for tool in answer["structuredContent"]["tools"]]
            return bool(found)

        searched = wait_until(_answered(search), pid, "retrieve_tools")
        if catalog == "none":
            # Everything must have been kept before this start ends.
            wait_until(_answered(lambda: _ready(port) == tools // _TOOLS), pid, "every server")
        return Start(
            catalog=catalog,
            listing=mode,
            connected=_ready(port),
            first_answer_seconds=first - began,
            listed_seconds=listed - began if listed is not None else None,
            found_seconds=searched - began,
            found=found[0],
            resident_mib=resident_bytes(pid) / 2**20,
        )


def _introduced(port: int) -> Client | None:
    client = Client(port, "legacy")
    client.introduce()
    return client


def _ready(port: int) -> int:
    servers = http_get(port, "/ready").json()["servers"]
    return sum(server["state"] == "ready" for server in servers)


def _answered(work: Callable[[], bool]) -> Callable[[], bool]:
    def answered() -> bool:
        try:
            return work()
        except (OSError, Refused, KeyError, ValueError):
            return False

    return answered


def _report(starts: list[Start], servers: int) -> str:
    rows = [
        [
            f"{one.listing}, catalog {one.catalog}",
            str(one.connected),
            figure(one.first_answer_seconds),
            figure(one.listed_seconds),
            figure(one.found_seconds),
            figure(one.resident_mib),
        ]
        for one in starts
    ]
    title = f"{servers} servers of {_TOOLS} tools: seconds from the start of the process"
    header = ["listing", "connected", "first answer", "all tools listed", "tool found", "MiB"]
    return table(title, header, rows)
