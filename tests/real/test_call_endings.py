"""However early the gateway ends, the children that it was just starting end with it."""

import json
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testkit.gateway_process import clean_environment
from testkit.waiting import wait_until

# It hears neither the end of its input nor a request to leave.
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
CHILDREN = 4
# After the line that says that the gateway listens: while it spawns, and after.
MOMENTS_SECONDS = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08)
GONE_SECONDS = 8.0


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_gateway_that_ends_while_it_starts_leaves_no_child_behind(
    tmp_path: Path, sign: signal.Signals
) -> None:
    mark = secrets.token_hex(8)
    command = {"command": sys.executable, "args": ["-c", STUBBORN, mark]}
    config = tmp_path / "headgate.json"
    config.write_text(json.dumps({"mcpServers": {f"s{n}": command for n in range(CHILDREN)}}))
    for moment in MOMENTS_SECONDS:
        end_a_gateway_after(moment, sign, config)
    wait_until(lambda: not marked(mark), GONE_SECONDS, "every child is gone")


def end_a_gateway_after(moment: float, sign: signal.Signals, config: Path) -> None:
    serve = [sys.executable, "-m", "headgate", "serve", "--config", str(config), "--transport", "http"]
    place = ["--port", "0", "--data-dir", str(config.parent)]
    with subprocess.Popen([*serve, *place], stderr=subprocess.PIPE, env=clean_environment()) as gateway:
        assert gateway.stderr is not None
        for line in gateway.stderr:
            if b"listening" in line:
                break
        time.sleep(moment)
        gateway.send_signal(sign)
        gateway.stderr.close()
        gateway.wait(GONE_SECONDS)


def marked(mark: str) -> list[str]:
    """The processes that have the mark in their command line."""
    found = []
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in arguments.read_bytes():
                found.append(arguments.parent.name)
        except OSError:
            continue
    return found
