"""The paths of the gateway that are not MCP: health, readiness, metrics and the front page."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from headgate import __version__
from headgate.console.metrics import Counters, Gauges, exposition
from headgate.console.tally import Tally
from headgate.domain.listing import Mode
from headgate.domain.server import ServerStatus, State

_TEXT = b"text/plain; charset=utf-8"
_JSON = b"application/json"


class Fleet(Protocol):
    """The upstreams, as an operator sees them."""

    @property
    def settled(self) -> bool:
        """Whether every server has been reached or has failed once."""

    def statuses(self) -> list[ServerStatus]:
        """Every server's state and numbers."""


class Readiness(msgspec.Struct, frozen=True):
    """Whether clients should be sent here, and why."""

    ready: bool
    servers: list[ServerStatus]


class Pages:
    """The operator's pages."""

    def __init__(
        self,
        fleet: Fleet,
        tally: Tally,
        gauges: Callable[[], Gauges],
        counters: Callable[[], Counters],
        listings: Callable[[], object] = list,
    ) -> None:
        """`listings` tells what clients see, as anything that can be written as JSON."""
        self._fleet = fleet
        self._tally = tally
        self._gauges = gauges
        self._counters = counters
        self._listings = listings
        self.draining = False

    def __call__(self, method: str, path: str) -> tuple[int, bytes, bytes]:
        """The status, the content type and the body that answer a request."""
        pages = {
            "/health": self._health,
            "/ready": self._ready,
            "/metrics": self._metrics,
            "/listing": self._listing,
            "/": self._front,
        }
        page = pages.get(path)
        if page is None:
            modes = ", ".join(f"/mcp/{mode}" for mode in Mode)
            told = (
                f"there is nothing here; MCP clients connect to /mcp, or in a mode of their own to {modes}\n"
            )
            return 404, _TEXT, told.encode()
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"method not allowed\n"
        return page()

    def _health(self) -> tuple[int, bytes, bytes]:
        return 200, _JSON, msgspec.json.encode({"status": "ok", "version": __version__})

    def readiness(self) -> Readiness:
        """Ready once every server was tried, as long as one of them works."""
        servers = self._fleet.statuses()
        wanted = [server for server in servers if server.state is not State.DISABLED]
        working = not wanted or any(server.state in (State.READY, State.IDLE) for server in wanted)
        return Readiness(self._fleet.settled and working and not self.draining, servers)

    def _ready(self) -> tuple[int, bytes, bytes]:
        readiness = self.readiness()
        return 200 if readiness.ready else 503, _JSON, msgspec.json.encode(readiness)

    def _metrics(self) -> tuple[int, bytes, bytes]:
        body = exposition(self._tally, self._fleet.statuses(), self._gauges(), self._counters())
        return 200, b"text/plain; version=0.0.4; charset=utf-8", body

    def _listing(self) -> tuple[int, bytes, bytes]:
        return 200, _JSON, msgspec.json.encode(self._listings())

    def _front(self) -> tuple[int, bytes, bytes]:
        lines = [
            f"Headgate {__version__}",
            "",
            "MCP: /mcp   health: /health   readiness: /ready   metrics: /metrics   listings: /listing",
            "",
        ]
        for server in self._fleet.statuses():
            told = f"  {server.name:24} {server.state:10} {server.tools:5} tools"
            remark = "stopped until it is used" if server.state is State.IDLE else server.last_error
            lines.append(f"{told}   {remark}" if remark else told)
        return 200, _TEXT, ("\n".join(lines) + "\n").encode()
