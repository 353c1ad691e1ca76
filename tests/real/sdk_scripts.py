"""Runs the client scripts, each with the SDK that it is written for."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testkit.parts import Parts

CLIENTS = Path(__file__).parent / "clients"
VISIT_SECONDS = 50.0


def run_script(client: str, plan: dict[str, Any], parts: Parts) -> Any:
    """Let the client do what the plan says, and return what it reports."""
    commands = {
        "python-2": [parts.python, CLIENTS / "sdk2.py"],
        "python-1": [parts.sdk1_python, CLIENTS / "sdk1.py"],
        "typescript-2": [parts.node, CLIENTS / "sdk2.mjs"],
        "typescript-1": [parts.node, CLIENTS / "sdk1.mjs"],
        "typescript-2-asked": [parts.node, CLIENTS / "asked2.mjs"],
        "typescript-1-asked": [parts.node, CLIENTS / "asked1.mjs"],
        "typescript-growing": [parts.node, CLIENTS / "growing.mjs"],
    }
    modules = {"modules": str(parts.npm / "package.json")}
    return json.loads(run([*map(str, commands[client]), json.dumps(plan | modules)]))


def run(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """What the command prints; fails with all that it said when it does not end well."""
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=VISIT_SECONDS, check=False
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
