"""The gateway of these tests: a shop, the files that agents work on, documents, and a server that is down."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testkit.clients.streaming_http import Handshaker
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.parts import Parts
from testkit.upstreams import (
    configuration,
    listings_over_http,
    server_command,
    stdio_entry,
    tool,
    write_listing,
)
from tests.model_view.agents import Agent, converse
from tests.model_view.model import ModelView, Step
from tests.real.knowledge import BY_WORDS, told, write_all

START_SECONDS = 40.0
# Every conversation takes seconds; a loaded machine may take many times that.
TEST_SECONDS = 240
FILE_LINES = 3000
LAST_LINE = f"line {FILE_LINES - 1} of the book"


@dataclass(frozen=True, slots=True)
class Site:
    """A running gateway, and where agents live and work."""

    gateway: GatewayProcess
    parts: Parts
    place: Path

    @property
    def work(self) -> Path:
        """Return the directory that agents work in, which the server of files may read."""
        return self.place / "work"

    @property
    def book(self) -> str:
        """Return the path of a large file."""
        return str(self.work / "book.txt")

    def talk(self, agent: Agent, steps: list[Step], mode: str, answer: str | None = None) -> ModelView:
        """Let an agent make these calls through the address of a listing mode."""
        entry = {"url": f"{self.gateway.url}/{mode}"}
        return self.talk_through(agent, steps, entry, answer)

    def talk_through(
        self, agent: Agent, steps: list[Step], entry: Mapping[str, Any], answer: str | None = None
    ) -> ModelView:
        """Let an agent make these calls through this entry of its configuration."""
        return converse(
            agent,
            steps,
            entry,
            parts=self.parts,
            directory=self.place / "homes",
            work=self.work,
            answer=answer,
        )

    def listed(self, mode: str) -> dict[str, dict[str, Any]]:
        """Return the tools that the gateway lists in a mode, by name."""
        reply = Handshaker(f"{self.gateway.url}/{mode}").ask("tools/list", {})
        assert "nextCursor" not in reply["result"]
        return {each["name"]: each for each in reply["result"]["tools"]}


@contextmanager
def running_site(parts: Parts, place: Path) -> Iterator[Site]:
    """Run the gateway; one of its servers is stopped once its tools are known."""
    work = place / "work"
    work.mkdir()
    book = "\n".join(f"line {number} of the book" for number in range(FILE_LINES))
    (work / "book.txt").write_text(book, encoding="utf-8")
    write_all(place / "docs", {"marmot.md": "# Marmots\n\nA marmot whistles when an eagle comes.\n"})
    told(place, "ingest", "docs", "--data-dir", place / "gateway" / "data")
    listings = place / "listings"
    listings.mkdir()
    write_listing(listings / "depot.json", [tool("fetch", "Fetch a parcel from the depot.")])
    with ExitStack() as stack:
        with listings_over_http(listings) as origin:
            config = site_configuration(parts, work, f"{origin}/depot")
            more = {**BY_WORDS, "HEADGATE_EMBEDDER": "BM25"}
            gateway = stack.enter_context(
                running_gateway(config, place / "gateway", environment=more, start_seconds=START_SECONDS)
            )
            gateway.wait_until_ready(seconds=START_SECONDS)
        yield Site(gateway, parts, place)


def site_configuration(
    parts: Parts, work: Path, depot: str | None = None, *, era: str = "legacy"
) -> dict[str, Any]:
    """Return the configuration of a gateway with the shop and the files, and the rest where the depot is."""
    shop = server_command("sdk_servers.shop", era, site=True)
    files = [str(parts.node), str(parts.npm_bin("mcp-server-filesystem")), str(work)]
    servers: dict[str, dict[str, Any]] = {
        "shop": stdio_entry(shop),
        "files": stdio_entry(files),
    }
    if depot is not None:
        servers |= {"depot": {"url": depot}, "knowledge": {"builtin": "knowledge"}}
    return configuration(servers, listResultTools=True)
