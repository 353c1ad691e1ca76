"""One HTTP client that posts small requests, round after round; run by the Python that has the client.

Reads rounds from standard input, one JSON line each, and answers each with what it cost.
"""

import argparse
import asyncio
import importlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from itertools import count
from typing import Final

# Given the body of a request: the status and the body of the answer.
Post = Callable[[bytes], Awaitable[tuple[int, bytes]]]
Connect = Callable[[str], AbstractAsyncContextManager[Post]]

REQUEST_BYTES: Final = 200
_IN_FLIGHT: Final = 16
_HEADERS: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
# A round takes a few seconds; one that takes this long has come to a halt.
_ROUND_SECONDS: Final = 60.0
_MOST_ANSWER_BYTES: Final = 1 << 20


class WrongAnswer(Exception):
    """The upstream answered something else than what was asked."""


def main() -> None:
    """Serve rounds until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("url")
    options = parser.parse_args()
    run = importlib.import_module("uvloop").run
    _say({"version": version("headgate-mcp" if options.client == "headgate" else options.client)})
    for line in sys.stdin:
        requests = json.loads(line)["requests"]
        _say(run(_round(CLIENTS[options.client], options.url, requests)))


def request(number: int) -> bytes:
    """A tool call of exactly REQUEST_BYTES for every id of seven digits."""
    head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":' % number
    head += b'{"name":"payload_200","arguments":{"path":"'
    return head + b"x" * (REQUEST_BYTES - len(head) - 4) + b'"}}}'


async def _round(connect: Connect, url: str, requests: int) -> dict[str, float]:
    ids = count(1_000_000)
    async with asyncio.timeout(_ROUND_SECONDS), connect(url) as post:
        # Not counted: all connections are opened, and what is made on first use is made.
        await _post_all(post, iter([next(ids) for _ in range(max(requests // 10, _IN_FLIGHT))]))
        numbers = iter([next(ids) for _ in range(requests)])
        began, cpu = time.perf_counter(), time.process_time()
        await _post_all(post, numbers)
        return {"cpu": time.process_time() - cpu, "seconds": time.perf_counter() - began}


async def _post_all(post: Post, numbers: Iterator[int]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(_IN_FLIGHT):
            tasks.create_task(_post_on(post, numbers))


async def _post_on(post: Post, numbers: Iterator[int]) -> None:
    for number in numbers:
        status, body = await post(request(number))
        # The same parser for all, so that only the clients differ.
        answer = json.loads(body)
        if status != 200 or answer["id"] != number or "result" not in answer:
            raise WrongAnswer(f"{status} {body[:200]!r}")


# Each client as its documentation shows it: one of it for all requests, its own defaults, headers that
# never change given once. Imported by name: no environment has all of them.


@asynccontextmanager
async def _headgate(url: str) -> AsyncIterator[Post]:
    library = importlib.import_module("headgate.upstream.http.http1_client")
    connecting = importlib.import_module("headgate.upstream.http.http_connector")
    origin = connecting.Origin(url)
    client = library.Http1Client(connecting.OriginConnector(origin, 10.0))
    headers = "".join(f"{name}: {value}\r\n" for name, value in _HEADERS.items()).encode()

    async def post(body: bytes) -> tuple[int, bytes]:
        response = await client.send_http("POST", origin.target, headers, body)
        try:
            return response.status, await response.read(_MOST_ANSWER_BYTES)
        finally:
            response.close()

    try:
        yield post
    finally:
        client.close()


@asynccontextmanager
async def _aiohttp(url: str) -> AsyncIterator[Post]:
    async with importlib.import_module("aiohttp").ClientSession(headers=_HEADERS) as session:

        async def post(body: bytes) -> tuple[int, bytes]:
            async with session.post(url, data=body) as response:
                return response.status, await response.read()

        yield post


@asynccontextmanager
async def _pyreqwest(url: str) -> AsyncIterator[Post]:
    builder = importlib.import_module("pyreqwest.client").ClientBuilder()
    async with builder.default_headers(_HEADERS).build() as client:

        async def post(body: bytes) -> tuple[int, bytes]:
            response = await client.post(url).body_bytes(body).build().send()
            return response.status, (await response.bytes()).to_bytes()

        yield post


@asynccontextmanager
async def _httpx2(url: str) -> AsyncIterator[Post]:
    async with importlib.import_module("httpx2").AsyncClient(headers=_HEADERS) as client:

        async def post(body: bytes) -> tuple[int, bytes]:
            response = await client.post(url, content=body)
            return response.status_code, response.content

        yield post


CLIENTS: Final[dict[str, Connect]] = {
    "headgate": _headgate,
    "aiohttp": _aiohttp,
    "pyreqwest": _pyreqwest,
    "httpx2": _httpx2,
}


def _say(message: dict[str, float] | dict[str, str]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
