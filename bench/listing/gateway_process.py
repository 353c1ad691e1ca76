"""A gateway as a process of its own, in front of servers that replay listings."""

import http.client
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.listing.catalogs import Catalogue
from bench.process import running, wait_until
from bench.readiness import wait_for_port
from testkit.gateway_process import free_port, http_get, serve_command
from testkit.upstreams import server_command


class GatewayProcess(msgspec.Struct, frozen=True):
    """A gateway that runs."""

    port: int
    pid: int
    # When its process was started.
    began: float

    def ready(self) -> int:
        """How many of its servers are connected."""
        try:
            servers = http_get(self.port, "/ready").json()["servers"]
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            return 0
        return sum(server["state"] == "ready" for server in servers)


@contextmanager
def replaying(catalogues: Sequence[Catalogue], place: Path) -> Iterator[Path]:
    """The configuration of a gateway for servers that run as long as the block. Raises StartFailed."""
    listings = place / "listings"
    listings.mkdir(parents=True)
    for one in catalogues:
        (listings / f"{one.server}.json").write_bytes(one.listing)
    port = free_port()
    command = server_command("servers.prepared_listings", "--port", port, "--listings", listings, site=True)
    with running(command) as pid:
        wait_for_port(port, pid, "the replaying servers")
        config = place / "headgate.json"
        servers = {one.server: {"url": f"http://127.0.0.1:{port}/{one.server}"} for one in catalogues}
        config.write_text(json.dumps({"mcpServers": servers}))
        yield config


@contextmanager
def open_gateway_process(config: Path, *, source: Path | None = None) -> Iterator[GatewayProcess]:
    """A gateway as it comes, but that it goes by words alone. Raises StartFailed.

    `source` is the directory of another version of its code.
    """
    port = free_port()
    command = serve_command(config, config.parent / "data", port=port)
    began = time.perf_counter()
    environment = {"HEADGATE_EMBEDDER": "BM25"} | ({"PYTHONPATH": str(source)} if source else {})
    with running(command, environment=environment) as pid:
        wait_for_port(port, pid, "headgate")
        yield GatewayProcess(port, pid, began)


def wait_for_servers(gateway_process: GatewayProcess, servers: int) -> None:
    """Return once so many are connected. Raises StartFailed."""
    wait_until(lambda: gateway_process.ready() == servers, gateway_process.pid, "every server")
