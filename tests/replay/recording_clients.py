"""Clients of both eras that keep the source text of everything they receive."""

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from testkit.clients.streaming_http import Handshaker, Stateless
from testkit.gateway_process import GatewayProcess
from tests.replay.recording import member_text

# So that log messages come; in the handshake era they come by default.
TALKATIVE = {"io.modelcontextprotocol/logLevel": "debug"}


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
    """Sends requests of one era over streamable HTTP, one after the other."""

    def __init__(self, gateway: GatewayProcess, era: str) -> None:
        self.era = era
        self._ids = itertools.count(1)
        self.greeting = "{}"
        self._client: Handshaker | Stateless
        if era == "handshake":
            self._client = Handshaker(gateway.url)
            self.greeting = member_text(self._client.welcome_text, "result") or "{}"
        else:
            self._client = Stateless(gateway.url)

    def ask(self, method: str, params: dict[str, Any], token: str | None = None) -> Heard:
        """The answer to one request, which reports its progress under the token."""
        meta = ({} if token is None else {"progressToken": token}) | (
            TALKATIVE if self.era == "stateless" else {}
        )
        full = params | {"_meta": meta} if meta else params
        id = f"{self.era}-{next(self._ids)}"
        *notifications, answer = self._client.begin(method, full, id).texts()
        assert json.loads(answer)["id"] == id, answer[:500]
        return Heard(
            answer,
            [(json.loads(text)["method"], member_text(text, "params") or "{}") for text in notifications],
        )


@contextmanager
def guest(gateway: GatewayProcess, era: str) -> Iterator[Guest]:
    """A client of that era, ready to ask."""
    yield Guest(gateway, era)


@contextmanager
def guests(gateway: GatewayProcess, eras: list[str]) -> Iterator[list[Guest]]:
    """Several clients at once."""
    with ExitStack() as stack:
        yield [stack.enter_context(guest(gateway, era)) for era in eras]
