"""Open question: does it pay to ask several questions in one call of retrieve_tools?"""

import asyncio
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
from mcp.client.client import Client
from mcp_types import CallToolResult, TextContent

from bench.process import running, wait_until
from bench.retrieval.peers import count_tokens
from bench.retrieval.replies import TOOLS, real_tools, requests_for
from bench.tables import table
from headgate.domain.item import Item
from testkit.gateway_process import free_port
from testkit.upstreams import server_command, stdio_entry

_SIZES: Final = (2, 3, 5)
_ROUNDS: Final = 30
_SECONDS: Final = 30.0

# Sends the questions and gives back every request with its answer.
Way = Callable[[Client, Sequence[str]], Awaitable[list[tuple[dict[str, Any], str]]]]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """So many questions in one way; medians over the rounds."""

    questions: int
    way: str
    milliseconds: float
    # Of arguments and answers together, as a model reads them.
    tokens: float
    reply_bytes: float


def batching() -> list[Batch]:
    """Through a gateway over HTTP, with the tools of real servers and the official client."""
    items = real_tools(TOOLS)
    requests = requests_for(items, max(_SIZES) * _ROUNDS)
    with _gateway(items) as url:
        return asyncio.run(_batches(url, requests))


@contextmanager
def _gateway(items: Sequence[Item]) -> Iterator[str]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as home:
        config = Path(home) / "headgate.json"
        config.write_text(json.dumps({"mcpServers": _servers(items, Path(home))}))
        command = [sys.executable, "-m", "headgate", "serve", "--config", str(config)]
        command += ["--transport", "http", "--port", str(port), "--data-dir", home, "--listing", "search"]
        print(f"bench: retrieval, a gateway with {len(items):,} tools", file=sys.stderr, flush=True)
        with running(command, environment={"MCPPROXY_EMBEDDER": "BM25"}) as pid:
            wait_until(lambda: _is_ready(port), pid, "headgate")
            yield f"http://127.0.0.1:{port}/mcp"


def _servers(items: Sequence[Item], home: Path) -> dict[str, Any]:
    tools: dict[str, list[Any]] = {}
    for item in items:
        tools.setdefault(item.server, []).append(msgspec.json.decode(item.definition))
    servers = {}
    for number, (server, own) in enumerate(tools.items()):
        file = home / f"{number}.json"
        file.write_bytes(msgspec.json.encode({"tools": own}))
        servers[server] = stdio_entry(server_command("servers.listing", file))
    return servers


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=_SECONDS) as answer:
            servers = json.load(answer)["servers"]
    except OSError:
        return False
    return all(server.get("state") == "ready" for server in servers)


async def _batches(url: str, requests: Sequence[str]) -> list[Batch]:
    found = []
    async with Client(url, read_timeout_seconds=_SECONDS) as client:
        # The first search after a start waits for the index.
        await _call(client, {"query": requests[0]})
        for size in _SIZES:
            batches = [requests[start : start + size] for start in range(0, size * _ROUNDS, size)]
            found += await _compared(client, batches)
    return found


async def _compared(client: Client, batches: Sequence[Sequence[str]]) -> list[Batch]:
    """Every way with the same questions; they take turns, and another one begins each time."""
    ways: dict[str, Way] = {
        "a call each, one after the other": _in_turn,
        "a call each, all at once": _at_once,
        "one call with queries": _in_one,
    }
    rounds: dict[str, list[_Round]] = {name: [] for name in ways}
    order = list(ways)
    for questions in batches:
        order = [*order[1:], order[0]]
        for name in order:
            began = time.perf_counter()
            exchanged = await ways[name](client, questions)
            rounds[name].append(_Round(time.perf_counter() - began, exchanged))
    return [_batch(name, len(batches[0]), own) for name, own in rounds.items()]


class _Round(msgspec.Struct, frozen=True):
    seconds: float
    exchanged: list[tuple[dict[str, Any], str]]


def _batch(name: str, questions: int, rounds: Sequence[_Round]) -> Batch:
    texts = ["\n".join(json.dumps(asked) + answer for asked, answer in one.exchanged) for one in rounds]
    return Batch(
        questions=questions,
        way=name,
        milliseconds=median(one.seconds for one in rounds) * 1000,
        tokens=median(count_tokens(texts)),
        reply_bytes=median(sum(len(answer.encode()) for _, answer in one.exchanged) for one in rounds),
    )


async def _in_turn(client: Client, questions: Sequence[str]) -> list[tuple[dict[str, Any], str]]:
    return [await _call(client, {"query": question}) for question in questions]


async def _at_once(client: Client, questions: Sequence[str]) -> list[tuple[dict[str, Any], str]]:
    return await asyncio.gather(*(_call(client, {"query": question}) for question in questions))


async def _in_one(client: Client, questions: Sequence[str]) -> list[tuple[dict[str, Any], str]]:
    return [await _call(client, {"queries": list(questions)})]


async def _call(client: Client, arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    result = await client.call_tool("retrieve_tools", arguments)
    assert isinstance(result, CallToolResult)
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert not result.is_error, block.text
    return arguments, block.text


HEADER: Final = ("how", "questions", "ms", "tokens", "bytes of replies")


def rows(found: Sequence[Batch]) -> list[tuple[str, ...]]:
    """The cells of the table, one row for each way and number of questions."""
    return [
        (
            one.way,
            str(one.questions),
            f"{one.milliseconds:.1f}",
            f"{one.tokens:,.0f}",
            f"{one.reply_bytes:,.0f}",
        )
        for one in found
    ]


def print_batching(found: Sequence[Batch]) -> str:
    """The three ways for each number of questions."""
    return table("open question: several questions in one call (medians)", HEADER, rows(found))
