"""A stdio server whose tool starts a process that leaves the server's process group."""

import json
import os
import subprocess
import sys
from typing import Any

TOOL = {
    "name": "start",
    "inputSchema": {"type": "object", "properties": {"how": {"enum": ["setsid", "daemon", "bare"]}}},
}
# It hears neither the end of its input nor a request to leave.
SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(120)"


def started(how: str) -> int:
    """The id of a process in a session of its own: a child, an orphan, or a child without environment."""
    command = [sys.executable, "-c", SLEEPER]
    if how == "daemon":
        script = f"import subprocess; print(subprocess.Popen({command!r}, stdout=subprocess.DEVNULL).pid)"
        between = [sys.executable, "-c", script]
        return int(subprocess.run(between, start_new_session=True, stdout=subprocess.PIPE, check=True).stdout)
    environment = {} if how == "bare" else dict(os.environ)
    with open(os.devnull, "r+b") as nothing:
        return subprocess.Popen(
            command, env=environment, start_new_session=True, stdin=nothing, stdout=nothing, stderr=nothing
        ).pid


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """The result or the error of one request."""
    match message["method"]:
        case "initialize":
            info = {"name": "parent", "version": "1"}
            version = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            return {"result": version | {"serverInfo": info}}
        case "tools/list":
            return {"result": {"tools": [TOOL]}}
        case "tools/call":
            arguments = message["params"]["arguments"]
            text = str(started(arguments["how"]))
            return {"result": {"content": [{"type": "text", "text": f"{os.getpid()} {text}"}]}}
        case "ping":
            return {"result": {}}
    return {"error": {"code": -32601, "message": "Method not found"}}


def main() -> None:
    """Answer each request."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message)}), flush=True)


if __name__ == "__main__":
    main()
