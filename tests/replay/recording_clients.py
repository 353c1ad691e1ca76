"""Clients of both eras that keep the source text of everything they receive."""

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from testkit.gateway_process import HOST, GatewayProcess
from tests.real.source_text_clients import ENVELOPE, HELLO, LEGACY, MODERN
from tests.replay.recording import member_text

ANSWER_SECONDS = 20
BOTH = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
# So that log messages come; in the handshake era they come by default.
TALKATIVE = ENVELOPE | {"io.modelcontextprotocol/logLevel": "debug"}


@dataclass(frozen=True)
class Heard:
    """An answer, and the methods and params of the notifications that came before it."""

    answer: str
    told: list[tuple[str, str]]

    @property
    def content(self) -> str:
        """The source text of the result or of the error."""
        return member_text(self.answer, "result") or member_text(self.answer, "error") or ""


class Guest:
    """Sends requests of one era over streamable HTTP, one after the other on one connection."""

    def __init__(self, era: str, connection: HTTPConnection) -> None:
        self.era = era
        self._connection = connection
        self._ids = itertools.count(1)
        self._session: dict[str, str] = {}
        # What the gateway said about itself in the handshake.
        self.greeting = "{}"

    def ask(self, method: str, params: dict[str, Any], token: str | None = None) -> Heard:
        """The answer to one request, which tells its progress under the token."""
        meta = ({} if token is None else {"progressToken": token}) | (
            TALKATIVE if self.era == "stateless" else {}
        )
        id = f"{self.era}-{next(self._ids)}"
        full = params | {"_meta": meta} if meta else params
        response = self._post({"jsonrpc": "2.0", "id": id, "method": method, "params": full})
        messages = [text for text in texts(response) if text]
        *told, answer = messages
        assert json.loads(answer)["id"] == id, answer[:500]
        return Heard(
            answer, [(json.loads(text)["method"], member_text(text, "params") or "{}") for text in told]
        )

    def shake_hands(self) -> None:
        """Open a session."""
        response = self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO})
        self.greeting = member_text(texts(response)[-1], "result") or "{}"
        self._session = {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": response.headers["Mcp-Session-Id"]}
        assert self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}).read() == b""

    def _post(self, message: dict[str, Any]) -> HTTPResponse:
        self._connection.request("POST", "/mcp", json.dumps(message), BOTH | self._headers(message))
        return self._connection.getresponse()

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        if self.era == "handshake":
            return self._session
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
        about = message["params"].get("uri", message["params"].get("name"))
        return headers if about is None else headers | {"Mcp-Name": about}


@contextmanager
def guest(gateway: GatewayProcess, era: str) -> Iterator[Guest]:
    """A client of that era, ready to ask."""
    with closing(HTTPConnection(HOST, gateway.port, timeout=ANSWER_SECONDS)) as connection:
        mcp_client = Guest(era, connection)
        if era == "handshake":
            mcp_client.shake_hands()
        yield mcp_client


@contextmanager
def guests(gateway: GatewayProcess, eras: list[str]) -> Iterator[list[Guest]]:
    """Several clients at once."""
    with ExitStack() as stack:
        yield [stack.enter_context(guest(gateway, era)) for era in eras]


def texts(response: HTTPResponse) -> list[str]:
    """The messages of a response, whether it is one or a stream of them."""
    body = response.read().decode()
    if response.headers.get_content_subtype() != "event-stream":
        return [body]
    lines = [line for line in body.split("\n") if line.startswith("data:")]
    return [line.removeprefix("data:").strip() for line in lines]
