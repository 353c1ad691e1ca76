"""Servers that list what a test says and start when it says so, and gateways that have met them before."""

import itertools
import json
import shutil
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testkit.clients.streaming_http import Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import changing_listing_command, configuration, stdio_entry, tool, write_listing
from tests.real.source_text_clients import modern_http_client, pages

START_SECONDS = 60.0
NOTICE_SECONDS = 20.0
BY_WORDS = {"HEADGATE_EMBEDDER": "BM25"}


@dataclass(frozen=True)
class Yard:
    """Servers that list what the test says, each of which waits for a file before it answers."""

    place: Path
    names: Sequence[str]

    def listing(self, name: str) -> Path:
        return self.place / f"{name}.json"

    def start_file(self, name: str) -> Path:
        return self.place / f"{name}.start"

    def offer(self, name: str, *tools: Message) -> None:
        """Let the server list these from now on."""
        write_listing(self.listing(name), tools)

    def open(self, *names: str) -> None:
        for name in names or self.names:
            self.start_file(name).touch()

    def shut(self) -> None:
        for name in self.names:
            self.start_file(name).unlink(missing_ok=True)

    def entry(self, name: str, *more: str, **settings: Any) -> dict[str, Any]:
        command = changing_listing_command(name, self.listing(name), self.start_file(name))
        # The same again makes another definition of the same server.
        waits = [argument for path in more for argument in ("--wait-for", path)]
        return stdio_entry([*command, *waits], **settings)

    def config(self, **settings: Any) -> dict[str, Any]:
        return configuration({name: self.entry(name) for name in self.names}, **settings)

    def gateway(
        self, config: dict[str, Any] | None = None, **environment: str
    ) -> AbstractContextManager[GatewayProcess]:
        """A gateway that has the data of the one before, and does not wait for its servers."""
        return running_gateway(
            config or self.config(),
            self.place / "gateway",
            environment=BY_WORDS | environment,
            wait_for_servers=False,
            start_seconds=START_SECONDS,
        )

    @property
    def data(self) -> Path:
        return self.place / "gateway" / "data"

    @property
    def catalog(self) -> Path:
        return self.data / "proxy.db"

    def remembered(self) -> dict[str, list[str]]:
        """The tools of each server that the file knows anything of."""
        with closing(sqlite3.connect(self.catalog)) as file:
            servers = file.execute("SELECT name FROM servers UNION SELECT server_name FROM listings")
            known: dict[str, list[str]] = {name: [] for (name,) in servers}
            for server, name in file.execute("SELECT server_name, name FROM tools ORDER BY position"):
                known.setdefault(server, []).append(name)
            return known


# Five servers, and what they have.

TOOLS = {
    "bakery": [tool("bake", "Bake a loaf of bread.")],
    "dairy": [tool("churn", "Churn butter from milk."), tool("skim", "Skim the cream.")],
    "mill": [tool("grind", "Grind grain to flour.")],
    "forge": [tool("shoe", "Shoe a horse.")],
    "inn": [tool("lodge", "Lodge a traveller.")],
}
KNOWN = ["bakery_bake", "dairy_churn", "dairy_skim", "mill_grind", "forge_shoe", "inn_lodge"]


def met_village(place: Path) -> Yard:
    """The five servers, after a gateway has met them; what it remembers of them is kept."""
    yard = Yard(place, tuple(TOOLS))
    for name, tools in TOOLS.items():
        yard.offer(name, *tools)
    yard.open()
    with yard.gateway() as gateway:
        gateway.wait_until_ready(*yard.names, seconds=START_SECONDS)
    shutil.copytree(yard.data, yard.place / "kept")
    return yard


def put_back(village: Yard) -> Yard:
    """Everything as it was when the gateway had met them, and every server waiting for its file."""
    village.shut()
    for name, tools in TOOLS.items():
        village.offer(name, *tools)
        village.listing(name).with_suffix(".more").unlink(missing_ok=True)
    shutil.rmtree(village.place / "gateway")
    shutil.copytree(village.place / "kept", village.data)
    return village


# As many tools as a test wants.

VERBS = ("create", "delete", "list", "update", "archive", "share", "export", "import", "merge", "rename")
THINGS = (
    "invoice",
    "calendar",
    "ticket",
    "branch",
    "photo",
    "contract",
    "sensor",
    "recipe",
    "flight",
    "song",
)


def hundred(server: str) -> list[Message]:
    return [
        tool(f"{verb}_{thing}", f"{verb.title()} a {thing} at {server}, by its identifier.")
        for verb, thing in itertools.product(VERBS, THINGS)
    ]


# What clients of a gateway see and do.


def definitions(gateway: GatewayProcess) -> list[Message]:
    with modern_http_client(gateway.url) as client:
        return [one for page in pages(client) for one in json.loads(page)["tools"]]


def listed(gateway: GatewayProcess) -> list[str]:
    with modern_http_client(gateway.url) as client:
        return [one["name"] for page in pages(client) for one in json.loads(page)["tools"]]


def call(client: Handshaker | Stateless, name: str, /, **arguments: Any) -> Message:
    result: Message = client.ask("tools/call", {"name": name, "arguments": arguments})["result"]
    return result


def found(client: Handshaker | Stateless, query: str, **more: Any) -> list[str]:
    answer = call(client, "retrieve_tools", query=query, **more)["structuredContent"]
    return [one["name"] for one in answer["tools"]]


def text(result: Message) -> str:
    (block,) = result["content"]
    words: str = block["text"]
    return words


def states(gateway: GatewayProcess) -> set[str]:
    return {server["state"] for server in gateway.servers().values()}


class Errand(threading.Thread):
    """A call that is under way while the test goes on."""

    def __init__(self, work: Callable[[], Message]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._result: Message | None = None
        self.start()

    def run(self) -> None:
        self._result = self._work()

    def result(self) -> Message:
        self.join(NOTICE_SECONDS)
        assert self._result is not None, "the call was not answered"
        return self._result
