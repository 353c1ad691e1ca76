"""On stdio, the client has one identity, which the same seam establishes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import LEGACY, modern_request, request
from testkit.gateway_process import clean_environment
from tests.access.conftest import configuration_of

WAIT_SECONDS = 20.0


def answers(directory: Path, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """What a gateway on stdio answers, in the order of the answers."""
    config = directory / "headgate.json"
    config.write_text(json.dumps(configuration_of(directory)))
    command = [sys.executable, "-m", "tests.access.granted_gateway", "serve", "--transport", "stdio"]
    command += ["--config", str(config), "--data-dir", str(directory / "data")]
    lines = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
    ran = subprocess.run(
        command, input=lines, capture_output=True, timeout=WAIT_SECONDS, env=clean_environment(), check=True
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]


HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


@pytest.mark.parametrize(
    "messages",
    [
        (request("initialize", HELLO, id=1), request("tools/list", {}, id=2)),
        (modern_request("server/discover", {}, id=1), modern_request("tools/list", {}, id=2)),
    ],
    ids=["handshake", "stateless"],
)
def test_the_identity_of_stdio_sees_what_is_granted(
    tmp_path: Path, messages: tuple[dict[str, Any], ...]
) -> None:
    by_id = {answer["id"]: answer for answer in answers(tmp_path, *messages) if "id" in answer}
    names = [tool["name"] for tool in by_id[2]["result"]["tools"]]
    assert "bank_pay_invoice" in names
    assert "files" not in json.dumps(by_id)
