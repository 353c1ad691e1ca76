"""Gateways as processes of their own, in front of a server that answers at once."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.candidates import stdio_upstream
from bench.listing.gateway_process import GatewayProcess, open_gateway_process, wait_for_servers
from bench.process import ROOT
from testkit.gateway_process import http_get

SERVER: Final = "up"
# The same server again, of which every call is recorded.
KEPT: Final = "kept"
TOOL: Final = "payload_200"
RESULT_BYTES: Final = 200
# What a process says that has written a ledger, and waits to be killed.
WRITTEN: Final = b"written\n"
_METRICS_SECONDS: Final = 10.0


@contextmanager
def gateway(entries: Mapping[str, dict[str, Any]], *, source: Path | None = None) -> Iterator[GatewayProcess]:
    """A gateway with an empty data directory; an entry says what is special about a server."""
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as home,
        opened(Path(home), entries, source) as it,
    ):
        yield it


@contextmanager
def opened(
    home: Path, entries: Mapping[str, dict[str, Any]], source: Path | None = None
) -> Iterator[GatewayProcess]:
    """A gateway with the data that is in `home`, once it is connected. Raises StartFailed."""
    command = stdio_upstream().command
    plain = {"command": command[0], "args": command[1:], "cwd": str(ROOT)}
    config = home / "headgate.json"
    config.write_text(json.dumps({"mcpServers": {name: plain | own for name, own in entries.items()}}))
    with open_gateway_process(config, source=source) as gateway_process:
        wait_for_servers(gateway_process, len(entries))
        yield gateway_process


class Tallied:
    """What a gateway has counted since this was made."""

    def __init__(self, gateway_process: GatewayProcess) -> None:
        self._gateway_process = gateway_process
        self._commits, self._calls = _counted(gateway_process)

    def commits(self) -> int:
        """How many times the ledger was written."""
        return _counted(self._gateway_process)[0] - self._commits

    def commits_per_call(self) -> float:
        """The same for one call, on the average."""
        commits, calls = _counted(self._gateway_process)
        return (commits - self._commits) / max(1, calls - self._calls)


def _counted(gateway_process: GatewayProcess) -> tuple[int, int]:
    text = http_get(gateway_process.port, "/metrics", seconds=_METRICS_SECONDS).body.decode()
    return _sum(text, "headgate_ledger_commits_total"), _sum(text, "headgate_calls_total")


def _sum(text: str, name: str) -> int:
    lines = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] == name]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)
