"""A stdio server that plays one recorded conversation: python -m tests.replay.player SERVER [respelled].

What a request was answered with is answered again, byte for byte but for ids and progress tokens. Of
requests that come together the last is answered first, so that mixed-up answers are detected.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from tests.real.listing_text import members
from tests.replay.recording import (
    Conversation,
    Exchange,
    conversation,
    is_answer,
    parse,
    request_key,
    respelled,
)

LISTEN, DISCOVER, INITIALIZE = "subscriptions/listen", "server/discover", "initialize"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
# Not recorded, because its answer is always the same.
EMPTY_ANSWERS = {"ping", "logging/setLevel"}


class Player:
    """Answers in the words of the recording."""

    def __init__(self, played: Conversation) -> None:
        self._exchanges = {exchange.key: exchange for exchange in reversed(played.exchanges)}
        self._era = played.era

    def lines(self, message: dict[str, Any]) -> Iterator[str]:
        """What the server writes when it reads the message."""
        method = message.get("method", "")
        if method == "notifications/initialized":
            yield from self._after_answer(INITIALIZE)
        if "id" not in message or not method:
            return
        params = message.get("params", {})
        exchange = self._exchanges.get(
            method if method in (DISCOVER, INITIALIZE) else request_key(method, params)
        )
        if exchange is not None:
            yield from played(exchange, message["id"], params.get("_meta", {}).get("progressToken"))
        elif method in EMPTY_ANSWERS:
            yield json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}})
        elif method == LISTEN and self._era == "stateless":
            told = params | {"_meta": {SUBSCRIPTION: message["id"]}}
            acknowledged = "notifications/subscriptions/acknowledged"
            yield json.dumps({"jsonrpc": "2.0", "method": acknowledged, "params": told})
        else:
            sys.stderr.write(f"not recorded: {json.dumps(message)}\n")
            sys.stderr.flush()
            error = {"code": -32601, "message": "Not recorded"}
            yield json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})

    def _after_answer(self, method: str) -> tuple[str, ...]:
        exchange = self._exchanges.get(method)
        return exchange.lines[exchange.lines.index(exchange.answer) + 1 :] if exchange else ()


def played(exchange: Exchange, id: Any, token: Any) -> Iterator[str]:
    """The lines of the exchange under another id and token."""
    for line in exchange.lines:
        if is_answer(line):
            yield with_value(line, ("id",), id)
            if exchange.method == INITIALIZE:
                return
        elif (parse(line) or {}).get("method") != "notifications/progress":
            yield line
        elif token is not None:
            yield with_value(line, ("params", "progressToken"), token)


def with_value(text: str, path: tuple[str, ...], value: Any) -> str:
    """The object with another value at the path, every other byte as it was."""
    for key, start, end in members(text):
        if key == path[0]:
            inner = with_value(text[start:end], path[1:], value) if path[1:] else json.dumps(value)
            return text[:start] + inner + text[end:]
    raise LookupError(path)


def main() -> None:
    """Play until the input ends."""
    server, *spelling = sys.argv[1:]
    recorded = conversation(server)
    player, rest = Player(respelled(recorded) if spelling else recorded), b""
    while data := os.read(0, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        for line in reversed(lines):
            for said in player.lines(json.loads(line)):
                sys.stdout.buffer.write(said.encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
