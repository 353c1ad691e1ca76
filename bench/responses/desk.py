"""A gateway as a process of its own, in front of a server whose results are large."""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.listing.house import House, open_house, wait_for_servers
from bench.listing.visitor import Visitor
from bench.process import free_port, running
from bench.readiness import wait_for_port
from bench.responses.workloads import result_of
from headgate.responses.jobs import META_KEY

SERVER: Final = "up"


@contextmanager
def serving(texts: Mapping[str, str]) -> Iterator[str]:
    """The address of a server with a tool for each text. Raises StartFailed."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as home:
        for name, text in texts.items():
            (Path(home) / f"{name}.json").write_bytes(result_of(text))
        port = free_port()
        command = [sys.executable, "-m", "bench.responses.upstream", "--port", str(port), "--results", home]
        with running(command) as pid:
            wait_for_port(port, pid, "the server of large results")
            yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def gateway(address: str, settings: Mapping[str, Any]) -> Iterator[House]:
    """A gateway with these settings in front of the server. Raises StartFailed."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as home:
        config = Path(home) / "headgate.json"
        servers = {SERVER: {"url": address}}
        config.write_text(json.dumps({"mcpServers": servers, "proxySettings": dict(settings)}))
        with open_house(config) as house:
            wait_for_servers(house, 1)
            yield house


@contextmanager
def visiting(house: House) -> Iterator[Visitor]:
    """An agent that has shaken hands."""
    with Visitor(house.port, "/mcp") as visitor:
        visitor.introduce()
        yield visitor


def texts_of(result: Mapping[str, Any]) -> list[str]:
    """What a model reads of a result."""
    return [block["text"] for block in result["content"] if block["type"] == "text"]


def cache_id_of(result: Mapping[str, Any]) -> str:
    """Under which the whole is stored."""
    cache_id: str = result["_meta"][META_KEY]["cache_id"]
    return cache_id
