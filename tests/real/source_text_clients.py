"""Clients that return the source text of each result, for comparisons that no parser may disturb."""

import json
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

from testkit.clients.plain_http import LEGACY
from testkit.clients.streaming_http import ANSWER_SECONDS, CLIENT_INFO, ENVELOPE, Handshaker, Stateless
from tests.real.listing_text import members

HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT_INFO}


class RawClient(Protocol):
    """Sends one request and returns the source text of its result."""

    def ask(self, method: str, params: dict[str, Any]) -> str:
        """Raises AssertionError when the answer is an error."""


class StdioClient:
    """Speaks one era to a child process."""

    def __init__(self, process: subprocess.Popen[bytes], era: str) -> None:
        self._process = process
        self._envelope = {"_meta": ENVELOPE} if era == "modern" else {}
        self._next_id = 0

    def ask(self, method: str, params: dict[str, Any]) -> str:
        self._next_id += 1
        params = params | self._envelope
        self.tell({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        while True:
            line = self._line()
            message = json.loads(line)
            if message.get("id") == self._next_id and "method" not in message:
                return result_of(line)

    @property
    def pid(self) -> int:
        return self._process.pid

    def hang_up(self) -> None:
        """Close the server's input, as a client that leaves does."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def tell(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        # Enough for servers that answer one request with one write, as all of them here do.
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        assert ready, f"no answer within {ANSWER_SECONDS} s"
        line = self._process.stdout.readline().decode()
        assert line, "the server closed its output"
        return line


@contextmanager
def stdio_client(
    command: Sequence[str], environment: Mapping[str, str], era: str = "legacy"
) -> Iterator[StdioClient]:
    """Start the server, and in the legacy era shake hands; it ends with the block."""
    with subprocess.Popen(
        command,
        env=environment,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            client = StdioClient(process, era)
            if era == "legacy":
                client.ask("initialize", HELLO)
                client.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
            yield client
        finally:
            process.kill()


class HttpTextClient:
    """Speaks either era to a streamable HTTP endpoint."""

    def __init__(self, client: Handshaker | Stateless) -> None:
        self._client = client

    def ask(self, method: str, params: dict[str, Any]) -> str:
        stream = self._client.begin(method, params)
        *_, answer = stream.texts()
        assert stream.status < 300, f"{method} was answered with {stream.status}: {answer}"
        return result_of(answer)


def legacy_http_client(url: str) -> "nullcontext[HttpTextClient]":
    return nullcontext(HttpTextClient(Handshaker(url)))


def modern_http_client(url: str) -> "nullcontext[HttpTextClient]":
    return nullcontext(HttpTextClient(Stateless(url)))


def result_of(text: str) -> str:
    """The source text of a response's result."""
    for key, start, end in members(text):
        if key == "result":
            return text[start:end]
    raise AssertionError(f"not a result: {text[:500]}")


def pages(client: RawClient) -> Iterator[str]:
    """Each page of tools/list, by its cursor."""
    cursor: dict[str, Any] = {}
    while True:
        page = client.ask("tools/list", cursor)
        yield page
        following = json.loads(page).get("nextCursor")
        if following is None:
            return
        cursor = {"cursor": following}
