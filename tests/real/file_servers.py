"""Servers whose answers are the bytes that a test writes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testkit.clients.streaming_http import Message
from testkit.upstreams import announcing, server_command, stdio_entry

TRANSPORTS = ("stdio", "http")
CAPABILITIES: Message = {"tools": {}, "prompts": {}, "resources": {}}


def write(directory: Path, **files: Any) -> None:
    """Write the answers of a server: bytes as they are, anything else as JSON."""
    directory.mkdir(exist_ok=True)
    for name, value in files.items():
        (directory / name).write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())


def greeting(**more: Any) -> Message:
    """The result of initialize."""
    info = {"name": "canned", "version": "1"}
    base = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": info}
    return base | more


def discovery(**more: Any) -> Message:
    """The result of server/discover, of a server of the stateless era."""
    return {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": CAPABILITIES,
    } | more


def tool(name: str, **more: Any) -> Message:
    """The definition of a tool without arguments."""
    return {"name": name, "inputSchema": {"type": "object"}} | more


@contextmanager
def canned(directory: Path, transport: str = "stdio") -> Iterator[Message]:
    """The configuration of a server that answers with the files in the directory."""
    command = server_command("servers.file_answers", directory, transport)
    if transport == "stdio":
        yield stdio_entry(command)
        return
    with announcing(command) as port:
        yield {"url": f"http://127.0.0.1:{port}/mcp"}
