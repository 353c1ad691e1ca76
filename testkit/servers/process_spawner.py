"""A server on stdio whose tool starts a process that leaves the server's process group."""

import os
import subprocess
import sys

from testkit.servers import jsonrpc
from testkit.servers.jsonrpc import Message

TOOL = {
    "name": "start",
    "inputSchema": {"type": "object", "properties": {"how": {"enum": ["setsid", "daemon", "bare"]}}},
}
# It hears neither the end of its input nor a request to leave.
SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(120)"


def start_process(how: str) -> int:
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


def answer(message: Message) -> Message:
    """The process ids of this server and of the process that the call starts."""
    if message["method"] == "tools/call":
        return jsonrpc.text(f"{os.getpid()} {start_process(message['params']['arguments']['how'])}")
    return jsonrpc.answer_lifecycle(message, "process-spawner", {"result": {"tools": [TOOL]}})


def main() -> None:
    """Answer each request."""
    jsonrpc.serve_stdio(answer)
