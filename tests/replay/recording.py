"""Reads what real servers once said."""

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.real.listing_text import members

PATH = Path(__file__).parents[1] / "data" / "conversations.jsonl.xz"
# The member of its result that each list method fills, and what tells its items apart.
LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}
# What no parser gives back as it was: digits, exponents, escapes, blanks, a key that stands twice.
ODD = r'[1.0, 1E+2,12345678901234567890 , "\u00e9\/\ud83d\ude00", {"b":1 ,"a":2,"b":3}]'
MARK = "the odd one"
# What the gateway settles with the server by itself.
LIFECYCLE = {"server/discover", "initialize"}


@dataclass(frozen=True)
class Exchange:
    """One request, and every line that the server wrote from then until the next one."""

    method: str
    params: dict[str, Any]
    lines: tuple[str, ...] = field(repr=False)

    @property
    def key(self) -> str:
        """What makes another request the same; negotiations differ in what each client says of itself."""
        return self.method if self.method in LIFECYCLE else request_key(self.method, self.params)

    @cached_property
    def answer(self) -> str:
        """The line that holds the result or the error."""
        (found,) = [line for line in self.lines if is_answer(line)]
        return found

    @cached_property
    def result(self) -> str | None:
        """The source text of the result, if there was one."""
        return member_text(self.answer, "result")

    @cached_property
    def error(self) -> str | None:
        """The source text of the error, if there was one."""
        return member_text(self.answer, "error")

    @cached_property
    def told(self) -> list[tuple[str, str]]:
        """The methods and params of what was said before the answer."""
        before = self.lines[: self.lines.index(self.answer)]
        return [
            (json.loads(line)["method"], member_text(line, "params") or "{}")
            for line in before
            if is_message(line)
        ]


@dataclass(frozen=True)
class Conversation:
    """Everything that one server was asked and said."""

    server: str
    package: str
    licence: str
    era: str
    exchanges: tuple[Exchange, ...] = field(repr=False)

    @property
    def greeting(self) -> dict[str, Any]:
        """What the server said about itself when the era was settled."""
        method = "initialize" if self.era == "handshake" else "server/discover"
        (hello,) = [exchange for exchange in self.exchanges if exchange.method == method]
        greeting: dict[str, Any] = json.loads(hello.result or "{}")
        return greeting

    @property
    def requests(self) -> list[Exchange]:
        """What a client would ask for after the listings, each once."""
        asked = [
            found for found in self.exchanges if found.method not in LIFECYCLE and found.method not in LISTS
        ]
        return list({exchange.key: exchange for exchange in reversed(asked)}.values())[::-1]

    def pages(self, method: str) -> list[Exchange]:
        """The pages of one listing."""
        return [exchange for exchange in self.exchanges if exchange.method == method]


def conversations() -> Iterator[Conversation]:
    """Every recorded conversation."""
    with lzma.open(PATH, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield parsed(json.loads(line))


def conversation(server: str) -> Conversation:
    """The conversation with one server; raises LookupError."""
    for found in conversations():
        if found.server == server:
            return found
    raise LookupError(server)


def parsed(recorded: dict[str, Any]) -> Conversation:
    exchanges = (
        Exchange(exchange["method"], exchange["params"], tuple(exchange["lines"]))
        for exchange in recorded.pop("exchanges")
    )
    return Conversation(**recorded, exchanges=tuple(exchanges))


def respelled(recorded: Conversation) -> Conversation:
    """The same conversation with blanks, escapes and unknown members in every message."""
    exchanges = (
        Exchange(exchange.method, exchange.params, tuple(map(respelled_line, exchange.lines)))
        for exchange in recorded.exchanges
    )
    return replace(recorded, exchanges=tuple(exchanges))


def respelled_line(line: str) -> str:
    if not is_message(line):
        return line
    message = json.loads(line)
    result = message.get("result", {})
    listed = [item for member, _ in LISTS.values() for item in result.get(member, [])]
    for part in (result, message.get("error", {}), *listed):
        known = dict(part)
        part.clear()
        # In front, where no alphabet would put it.
        part.update({"x-odd": MARK} | known)
    return json.dumps(message, separators=(" ,  ", " : ")).replace(json.dumps(MARK), ODD)


def request_key(method: str, params: dict[str, Any]) -> str:
    """Method and params without `_meta`, in one spelling."""
    about = {key: value for key, value in params.items() if key != "_meta"}
    return f"{method} {json.dumps(about, sort_keys=True)}"


def is_message(line: str) -> bool:
    """Whether the line is an object; some servers write other things between their messages."""
    return line.startswith("{") and isinstance(parse(line), dict)


def is_answer(line: str) -> bool:
    return is_message(line) and "id" in (message := json.loads(line)) and "method" not in message


def parse(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def member_text(text: str, wanted: str) -> str | None:
    """The source text of a member's value."""
    for key, start, end in members(text):
        if key == wanted:
            return text[start:end]
    return None
