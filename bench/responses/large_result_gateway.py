"""A gateway as a process of its own, in front of a server whose results are large."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.listing.gateway_process import GatewayProcess, open_gateway_process, wait_for_servers
from bench.listing.mcp_client import McpClient
from bench.process import running
from bench.readiness import wait_for_port
from bench.responses.workloads import result_of
from headgate.results.jobs import META_KEY
from testkit.gateway_process import free_port
from testkit.upstreams import server_command

SERVER: Final = "up"


@contextmanager
def serving(texts: Mapping[str, str]) -> Iterator[str]:
    """The address of a server with a tool for each text. Raises StartFailed."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as home:
        for name, text in texts.items():
            (Path(home) / f"{name}.json").write_bytes(result_of(text))
        port = free_port()
        command = server_command("servers.prepared_results", "--port", port, "--results", home, site=True)
        with running(command) as pid:
            wait_for_port(port, pid, "the server of large results")
            yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def gateway(address: str, settings: Mapping[str, Any]) -> Iterator[GatewayProcess]:
    """A gateway with these settings in front of the server. Raises StartFailed."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as home:
        config = Path(home) / "headgate.json"
        servers = {SERVER: {"url": address}}
        config.write_text(json.dumps({"mcpServers": servers, "proxySettings": dict(settings)}))
        with open_gateway_process(config) as gateway_process:
            wait_for_servers(gateway_process, 1)
            yield gateway_process


@contextmanager
def visiting(gateway_process: GatewayProcess) -> Iterator[McpClient]:
    """An agent that has shaken hands."""
    with McpClient(gateway_process.port, "/mcp") as mcp_client:
        mcp_client.introduce()
        yield mcp_client


def texts_of(result: Mapping[str, Any]) -> list[str]:
    """What a model reads of a result."""
    return [block["text"] for block in result["content"] if block["type"] == "text"]


def cache_id_of(result: Mapping[str, Any]) -> str:
    """Under which the whole is stored."""
    cache_id: str = result["_meta"][META_KEY]["cache_id"]
    return cache_id
