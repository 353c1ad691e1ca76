"""A gateway with two servers, for clients with different identities."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import settle
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import server_command, stdio_entry

BANK = {
    "tools": [
        {
            "name": "pay_invoice",
            "description": "Pay an open invoice.",
            "inputSchema": {"type": "object", "properties": {"amount": {"type": "integer"}}},
        },
        {"name": "list_payments", "description": "List payments.", "inputSchema": {"type": "object"}},
    ],
    "prompts": [{"name": "dun"}],
    "resources": [{"uri": "bank:///ledger", "name": "ledger"}],
    "resourceTemplates": [{"uriTemplate": "bank:///accounts/{id}", "name": "account"}],
    "instructions": "Advice of the bank.",
}
FILES = {
    "tools": [
        {
            "name": "read_note",
            "description": "Read the text of a note from the archive.",
            "inputSchema": {"type": "object", "properties": {"note": {"type": "string"}}},
        }
    ],
    "own_tools": False,
    "prompts": [{"name": "summarise"}],
    "resources": [{"uri": "files:///note", "name": "note"}],
    "resourceTemplates": [{"uriTemplate": "files:///notes/{id}", "name": "a note"}],
    "instructions": "Advice of the archive.",
}


def configuration_of(directory: Path, **settings: Any) -> dict[str, Any]:
    """A bank and an archive; the directory has their listings and what happened at each."""
    directory.mkdir(parents=True, exist_ok=True)
    servers = {}
    for name, listing in (("bank", BANK), ("files", FILES)):
        script = directory / f"{name}.json"
        script.write_text(json.dumps(listing))
        record = directory / f"{name}.record"
        options = ("--name", name, "--script", script, "--record", record)
        command = server_command("servers.chatty_stdio", *options, site=True)
        servers[name] = stdio_entry(command)
    return {"mcpServers": servers, "proxySettings": {"listing": "full", **settings}}


def start(directory: Path, **settings: Any) -> AbstractContextManager[GatewayProcess]:
    """Start a gateway before a bank and an archive."""
    config = configuration_of(directory, **settings)
    return running_gateway(config, directory, program="tests.access.granted_gateway")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with start(tmp_path_factory.mktemp("gateway")) as gateway:
        settle(gateway, "bank", "files")
        yield gateway
