"""A gateway in front of players, and what its clients must see of them."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testkit.gateway_process import GatewayProcess, running_gateway
from tests.real.listing_text import items, members
from tests.replay import differences
from tests.replay.recording import LISTS, Conversation, Exchange, member_text
from tests.replay.recording_clients import Guest, Heard

ROOT = Path(__file__).parents[2]
PLAYER = ["-m", "tests.replay.recorded_server"]
# All players start at once on however few cores there are.
START_SECONDS = 60.0
# How each method names what it is about; the name is the gateway's business.
ABOUT = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
LISTED_BY = {"tools/call": "tools/list", "prompts/get": "prompts/list", "resources/read": "resources/list"}
TEMPLATES = "resources/templates/list"
REFS = {"ref/prompt": ("prompts/list", "name"), "ref/resource": (TEMPLATES, "uri")}
TOLD_WITH_ANSWERS = ("notifications/progress", "notifications/message")
# The public name of everything: by the method that lists it, its server and its own name.
Names = dict[tuple[str, str, str], str]


@dataclass(frozen=True)
class Listed:
    """One item of a listing: whose it is, what it is called there and here, and the text that came."""

    server: str
    name: str
    public: str
    text: str


@dataclass(frozen=True)
class Stage:
    """A running gateway, and the conversations that are played behind it."""

    gateway: GatewayProcess
    cast: dict[str, Conversation] = field(repr=False)

    def pages(self, guest: Guest, method: str) -> tuple[list[str], list[dict[str, str]]]:
        """Every item of a listing, and the other members of each page."""
        member, _ = LISTS[method]
        found: list[str] = []
        rest: list[dict[str, str]] = []
        params: dict[str, Any] = {}
        while True:
            page = guest.ask(method, params).content
            parts = {key: page[start:end] for key, start, end in members(page)}
            found += items(parts.pop(member), 0)
            cursor = parts.pop("nextCursor", None)
            rest.append(parts)
            if cursor is None:
                return found, rest
            params = {"cursor": json.loads(cursor)}

    def originals(self, method: str) -> list[tuple[str, str]]:
        """Every item that the servers listed, with its server, in the order of the configuration."""
        return [(server, text) for server, played in self.cast.items() for text in listed(played, method)]

    def mapped(self, guest: Guest, method: str) -> list[Listed]:
        """Every item that the gateway lists, beside the one that stands at its place at the servers."""
        found, _ = self.pages(guest, method)
        originals = self.originals(method)
        assert len(found) == len(originals), f"{method}: {len(originals)} items became {len(found)}"
        _, key = LISTS[method]
        return [
            Listed(server, json.loads(original)[key], json.loads(text)[key], text)
            for text, (server, original) in zip(found, originals, strict=True)
        ]

    def names(self, guest: Guest) -> Names:
        """The public name of everything: by method, server and own name."""
        return {
            (method, item.server, item.name): item.public
            for method in LISTS
            for item in self.mapped(guest, method)
        }

    def expected(self, server: str, exchange: Exchange, era: str, public: str, names: Names) -> str:
        """What a client of the era must be answered."""

        def public_uri(uri: str) -> str:
            return names.get(("resources/list", server, uri)) or from_template(server, uri, names)

        return differences.expected(exchange, self.cast[server].era, era, public, public_uri)


def listed(played: Conversation, method: str) -> Iterator[str]:
    """The source text of every item that a server listed."""
    member, _ = LISTS[method]
    for page in played.pages(method):
        if page.result is not None:
            yield from items(member_text(page.result, member) or "[]", 0)


@contextmanager
def staged(
    cast: dict[str, Conversation], directory: Path, *spelling: str, **settings: Any
) -> Iterator[Stage]:
    """Run a gateway in front of these players; none of them may be asked what was never recorded."""
    servers = {
        name: {"command": sys.executable, "args": [*PLAYER, played.server, *spelling], "cwd": str(ROOT)}
        for name, played in cast.items()
    }
    # Nothing of the gateway's own: what was recorded is compared with what arrives.
    plain = {"listing": "full", "enableAutoTruncation": False, "listResultTools": False}
    config = {"mcpServers": servers, "proxySettings": plain | settings}
    with running_gateway(config, directory, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready(*cast, seconds=START_SECONDS)
        yield Stage(gateway, cast)
        complaints = {
            name: server["stderr_tail"]
            for name, server in gateway.servers().items()
            if "stderr_tail" in server
        }
        assert complaints == {}


def public_params(server: str, exchange: Exchange, names: Names) -> tuple[dict[str, Any], str]:
    """The params with the names that the gateway gave, and the name of what it is about."""
    params = exchange.params
    if exchange.method == "completion/complete":
        method, key = REFS[params["ref"]["type"]]
        public = names[method, server, params["ref"][key]]
        return params | {"ref": params["ref"] | {key: public}}, public
    key = ABOUT[exchange.method]
    known = names.get((LISTED_BY[exchange.method], server, params[key]))
    public = known or from_template(server, params[key], names)
    return params | {key: public}, public


def from_template(server: str, uri: str, names: Names) -> str:
    """The URI that a client makes of the public template, for a resource that is in no listing."""
    for (method, owner, template), public in names.items():
        if (method, owner) == (TEMPLATES, server) and uri.startswith(template.partition("{")[0]):
            return public.removesuffix(template) + uri
    return uri


def told(exchange: Exchange, token: str) -> list[tuple[str, str]]:
    """The notifications that come with the answer."""
    return [
        (method, differences.progress(params, token) if method == "notifications/progress" else params)
        for method, params in exchange.told
        if method in TOLD_WITH_ANSWERS
    ]


def ask(stage: Stage, guest: Guest, server: str, exchange: Exchange, names: Names) -> Heard:
    """Ask for what was recorded, by its public name; fails unless the answer is the recorded one."""
    params, public = public_params(server, exchange, names)
    token = f"of {server}" if exchange.method == "tools/call" else None
    heard = guest.ask(exchange.method, params, token)
    expected = stage.expected(server, exchange, guest.era, public, names)
    if exchange.method == "tools/call" and differences.has_schema(heard.content, public):
        assert differences.without_schema(heard.content) == json.loads(expected), (server, exchange.key[:200])
    else:
        assert heard.content == expected, (server, exchange.key[:200])
    return heard
