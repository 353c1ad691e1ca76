"""Section `walks`: how many functions and modules of Headgate one request runs through when all is warm.

`PYTHONPATH=OTHER/src python -m bench.walks` measures another checkout with the same walks.
"""

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.load.client import Client, Refused
from bench.options import Options
from bench.process import ROOT, StartFailed, running, wait_until
from bench.tables import table
from testkit.gateway_process import free_port

# Module and qualified name, as bench.walk_recorder reports them.
Function = tuple[str, str]

# The goal for a plain call: what a reader can follow in one sitting.
MOST_MODULES: Final = 35
MOST_FUNCTIONS: Final = 90

_RECORDER: Final = ("-m", "bench.walk_recorder")
# Must be the name that bench.walk_recorder reads; importing it would import Headgate.
_ADDRESS: Final = "HEADGATE_WALK_RECORDER"
# Requests before the first one that counts: the first loads modules and fills caches.
_WARM_UP: Final = 3
# A function belongs to a walk if most recordings have it, so that periodic tasks do not count.
_RECORDINGS: Final = 5
# What a request leaves to be done after its reply, such as writing to the ledger, belongs to its walk.
_SETTLE_SECONDS: Final = 0.1
_DOCUMENTS: Final = ROOT / "examples" / "knowledge" / "documents"
_QUERIES: Final = (
    "who do we call when the servers are down",
    "notice to end the hosting agreement",
    "how long are invoices kept",
    "which vendor delivers the paper",
    "what does the support contract cost",
    "when does the office lease end",
    "who approves a new supplier",
    "backup of the database",
)

# Sends the requests of one walk; the number makes each repetition a request of its own.
Walk = Callable[[Client, int], None]


class WalkFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The functions of one walk in the order of their first call."""

    walk: str
    functions: list[Function]

    @property
    def modules(self) -> list[str]:
        """The modules of the functions, each once."""
        return list(dict.fromkeys(module for module, _ in self.functions))


def run(options: Options) -> dict[str, object]:
    """Record every walk, print one table and return its figures."""
    found = measure()
    print(report(found, list_functions=options.list_functions))
    return {"walks": msgspec.to_builtins(found)}


def measure() -> list[WalkFigures]:
    """The figures of each walk, against the Headgate that this Python imports. Raises StartFailed."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="bench-walks-") as folder, _gateway(Path(folder)) as gateway:
        port, commands = gateway
        client = Client(port, "legacy")
        client.introduce()
        for name, walk in _walks(client).items():
            print(f"bench: walks, {name}", file=sys.stderr, flush=True)
            figures.append(WalkFigures(walk=name, functions=_record(client, walk, commands)))
        client.leave()
    return figures


def report(found: list[WalkFigures], *, list_functions: bool) -> str:
    """The table, and with `list_functions` the functions of each walk by module."""
    rows = [[one.walk, str(len(one.modules)), str(len(one.functions))] for one in found]
    text = table("walks: what one request runs through", ("walk", "modules", "functions"), rows)
    if list_functions:
        for one in found:
            text += f"\n\n{one.walk}\n" + "\n".join(f"  {module}  {name}" for module, name in one.functions)
    return text


def _walks(client: Client) -> dict[str, Walk]:
    small, large = client.public_name("payload_200"), client.public_name("payload_100k")
    knowledge = "knowledge_semantic_search"

    def plain(client: Client, _number: int) -> None:
        _call(client, small, {"path": "reports/daily"})

    def keyed(client: Client, number: int) -> None:
        _call(client, small, {}, {"io.headgate/idempotencyKey": f"walk-{number}"})

    def stored(client: Client, _number: int) -> None:
        result = _call(client, large, {})
        cache_id = json.dumps(result).partition("cache_id ")[2][:24]
        _call(client, "proxy_search", {"cache_id": cache_id, "pattern": "row 0000042"})

    def retrieve(client: Client, number: int) -> None:
        _call(client, "retrieve_tools", {"query": f"prepared bytes {number}"})

    def search_knowledge(client: Client, number: int) -> None:
        _call(client, knowledge, {"query": _QUERIES[number % len(_QUERIES)]})

    return {
        "plain call": plain,
        "keyed call": keyed,
        "stored result and a search in it": stored,
        "retrieve_tools": retrieve,
        "knowledge search": search_knowledge,
    }


def _call(
    client: Client, tool: str, arguments: dict[str, Any], meta: dict[str, str] | None = None
) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": arguments} | ({"_meta": meta} if meta else {})
    result = client.request("tools/call", params)
    if result.get("isError"):
        raise StartFailed(f"{tool} failed: {json.dumps(result)[:500]}")
    return result


def _record(client: Client, walk: Walk, commands: "Connection[str, list[Function]]") -> list[Function]:
    for number in range(_WARM_UP):
        walk(client, number)
    recordings: list[list[Function]] = []
    for number in range(_WARM_UP, _WARM_UP + _RECORDINGS):
        time.sleep(_SETTLE_SECONDS)
        commands.send("start")
        commands.recv()
        walk(client, number)
        time.sleep(_SETTLE_SECONDS)
        commands.send("stop")
        recordings.append(commands.recv())
    times = Counter(function for recording in recordings for function in recording)
    order = dict.fromkeys(function for recording in recordings for function in recording)
    return [function for function in order if times[function] * 2 > _RECORDINGS]


@contextmanager
def _gateway(folder: Path) -> "Iterator[tuple[int, Connection[str, list[Function]]]]":
    """The port of a gateway with a stdio server and documents, and the connection to its recorder."""
    config, data = folder / "headgate.json", folder / "data"
    server = {"command": sys.executable, "args": ["-m", "testkit.servers.prepared_stdio"], "cwd": str(ROOT)}
    settings = {"embedder": "BM25", "knowledge": {"tokenBudget": 0}}
    config.write_text(
        json.dumps(
            {
                "mcpServers": {"walks": server, "knowledge": {"builtin": "knowledge"}},
                "proxySettings": settings,
            }
        )
    )
    common = ["--config", str(config), "--data-dir", str(data)]
    subprocess.run(
        [sys.executable, "-m", "headgate", "knowledge", "ingest", str(_DOCUMENTS), *common],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    port = free_port()
    address = str(folder / "recorder")
    with Listener(address) as listener:
        command = [sys.executable, *_RECORDER, "serve", *common, "--transport", "http", "--port", str(port)]
        with running(command, environment={_ADDRESS: address}) as pid:
            commands: Connection[str, list[Function]] = listener.accept()
            wait_until(lambda: _answers(port), pid, "headgate")
            yield port, commands


def _answers(port: int) -> bool:
    client = Client(port, "legacy")
    try:
        client.introduce()
        return bool(client.public_name("payload_200")) and bool(client.public_name("semantic_search"))
    except (OSError, Refused, http.client.HTTPException):
        return False
    finally:
        client.leave()


def main() -> None:
    """Run this section alone, without importing the others."""
    parser = argparse.ArgumentParser(prog="python -m bench.walks", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the functions of each walk in order")
    print(report(measure(), list_functions=parser.parse_args().list))


if __name__ == "__main__":
    main()
