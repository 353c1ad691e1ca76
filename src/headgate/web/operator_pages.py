"""The paths that are not MCP: health, readiness, metrics, listings and the start page."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from headgate import __version__
from headgate.domain.listing_mode import ListingMode
from headgate.domain.server_spec import ServerState, ServerStatus
from headgate.web.metrics import CallMetrics, Counters, Gauges, exposition

_TEXT = b"text/plain; charset=utf-8"
_JSON = b"application/json"
_OLD_DEFINITION_KEPT = "its old definition stays in force, because the new one is rejected"
_RECORDED_CALLS_REFUSED = (
    "calls that must not happen twice are refused until the operator stops the gateway and runs "
    "`headgate operations recover`"
)


class UpstreamStatuses(Protocol):
    """The upstreams, as an operator sees them."""

    @property
    def settled(self) -> bool:
        """Whether every server has been reached or has failed once."""

    def statuses(self) -> list[ServerStatus]:
        """Every server's state and numbers."""


class ConfigurationStatus(Protocol):
    """What of the configuration is not in force."""

    @property
    def rejected(self) -> Mapping[str, str]:
        """The servers whose entries are wrong, and what is wrong with each."""

    @property
    def problem(self) -> str | None:
        """What is wrong with the last edit of the file; None while the file is in force."""


class Readiness(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether clients should be sent here, and why."""

    ready: bool
    servers: list[ServerStatus]
    configuration_error: str | None = None
    ledger_error: str | None = None


@dataclass(eq=False)
class OperatorPages:
    """The operator's pages."""

    _fleet: UpstreamStatuses
    _configuration: ConfigurationStatus
    _call_metrics: CallMetrics
    _gauges: Callable[[], Gauges]
    _counters: Callable[[], Counters]
    # What clients see, as anything that can be written as JSON.
    _listings: Callable[[], object] = list
    # Why calls that have to be recorded are refused; empty when they are not.
    _ledger_damage: Callable[[], str] = str
    draining = False

    def __call__(self, method: str, path: str) -> tuple[int, bytes, bytes]:
        """The status, the content type and the body that answer a request."""
        pages = {
            "/health": self._health,
            "/ready": self._ready,
            "/metrics": self._metrics,
            "/listing": self._listing,
            "/": self._start_page,
        }
        page = pages.get(path)
        if page is None:
            modes = ", ".join(f"/mcp/{mode}" for mode in ListingMode)
            hint = (
                f"there is nothing here; MCP clients connect to /mcp, or in a mode of their own to {modes}\n"
            )
            return 404, _TEXT, hint.encode()
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"method not allowed\n"
        return page()

    def _health(self) -> tuple[int, bytes, bytes]:
        return 200, _JSON, msgspec.json.encode({"status": "ok", "version": __version__})

    def readiness(self) -> Readiness:
        """Ready once every server was tried, as long as one of them works."""
        servers = self._servers()
        states = {server.state for server in servers} - {ServerState.DISABLED, ServerState.REJECTED}
        working = not states or not states.isdisjoint((ServerState.READY, ServerState.IDLE))
        ready = self._fleet.settled and working and not self.draining
        return Readiness(ready, servers, self._configuration.problem, self._ledger_error())

    def _ledger_error(self) -> str | None:
        damage = self._ledger_damage()
        return f"the ledger is damaged ({damage}); {_RECORDED_CALLS_REFUSED}" if damage else None

    def _servers(self) -> list[ServerStatus]:
        """Every server that runs, is disabled or is rejected; one may run whose new entry is rejected."""
        rejected = dict(self._configuration.rejected)
        servers = [
            msgspec.structs.replace(server, reason=f"{_OLD_DEFINITION_KEPT}: {rejected.pop(server.name)}")
            if server.name in rejected
            else server
            for server in self._fleet.statuses()
        ]
        return servers + [
            ServerStatus(name=name, state=ServerState.REJECTED, reason=reason)
            for name, reason in rejected.items()
        ]

    def _ready(self) -> tuple[int, bytes, bytes]:
        readiness = self.readiness()
        return 200 if readiness.ready else 503, _JSON, msgspec.json.encode(readiness)

    def _metrics(self) -> tuple[int, bytes, bytes]:
        body = exposition(self._call_metrics, self._servers(), self._gauges(), self._counters())
        return 200, b"text/plain; version=0.0.4; charset=utf-8", body

    def _listing(self) -> tuple[int, bytes, bytes]:
        return 200, _JSON, msgspec.json.encode(self._listings())

    def _start_page(self) -> tuple[int, bytes, bytes]:
        lines = [
            f"Headgate {__version__}",
            "",
            "MCP: /mcp   health: /health   readiness: /ready   metrics: /metrics   listings: /listing",
            "",
        ]
        if self._configuration.problem is not None:
            lines += [
                f"The last edit of the configuration is not in force: {self._configuration.problem}",
                "",
            ]
        ledger_error = self._ledger_error()
        if ledger_error is not None:
            lines += [ledger_error[0].upper() + ledger_error[1:], ""]
        for server in self._servers():
            line = f"  {_printable(server.name):24} {server.state:10} {server.tools:5} tools"
            idle = "stopped until it is used" if server.state is ServerState.IDLE else None
            remark = "; ".join(_printable(one) for one in (idle or server.last_error, server.reason) if one)
            lines.append(f"{line}   {remark}" if remark else line)
        return 200, _TEXT, ("\n".join(lines) + "\n").encode()


def _printable(text: str) -> str:
    """The text on one line, without control characters."""
    return "".join(one if one.isprintable() else " " for one in text)
