"""A server of the handshake era on stdio whose tools do exactly what a test needs.

The environment says where its journal is, what it writes at its start, and what it waits for.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from testkit.servers import jsonrpc
from testkit.servers.jsonrpc import greeting, send, text, unknown_method, wait_for_file, write
from testkit.servers.jsonrpc import tools as list_tools

NAMES = ["echo", "hold", "release", "steps", "grow", "say", "ask", "regret", "look", "deaf", "family", "mute"]
# Calls that wait to be released, and calls by the ids of the questions to the client that they wait for.
held: list[tuple[Any, dict[str, Any]]] = []
asked: dict[str, Any] = {}


def note(line: str) -> None:
    jsonrpc.append_line(os.environ["JOURNAL"], line)


def answer(id: Any, **members: Any) -> None:
    send({"id": id, **text(json.dumps(members), structuredContent=members)})


def call(id: Any, params: dict[str, Any], tools: list[str]) -> None:
    arguments = params.get("arguments", {})
    match params["name"]:
        case "hold" | "release" | "ask" | "regret":
            wait(id, params)
        case "steps":
            for step in range(arguments["steps"]):
                token = {"progressToken": params.get("_meta", {}).get("progressToken")}
                progress = token | {"progress": step + 1, "total": arguments["steps"], "message": "on it"}
                send({"method": "notifications/progress", "params": progress})
            answer(id, steps=arguments["steps"])
        case "grow":
            tools.append(arguments["tool"])
            send({"method": "notifications/tools/list_changed"})
            answer(id, tools=len(tools))
        case "say":
            # Whatever the line is: the server's own answer is a part of it, or missing.
            line = arguments["line"].replace("ID", str(id)).replace("PAD", "x" * arguments.get("pad", 0))
            write(line.encode().replace(b"BAD", b"\xff") + b"\n")
        case "look":
            look(id)
        case "deaf":
            answer(id, deaf=True)
            time.sleep(600)
        case "mute":
            os.close(1)
            time.sleep(600)
        case "family":
            for sign in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(sign, signal.SIG_IGN)
            command = [sys.executable, "-c", "import time; time.sleep(600)"]
            answer(id, grandchild=subprocess.Popen(command).pid)
        case _:
            answer(id, params=params)


def wait(id: Any, params: dict[str, Any]) -> None:
    """Calls that are not answered before something else happens."""
    arguments = params.get("arguments", {})
    match params["name"]:
        case "hold":
            held.append((id, arguments))
            note(f"held {id}")
            if "progressToken" in params.get("_meta", {}):
                progress = {"progressToken": params["_meta"]["progressToken"], "progress": 0}
                send({"method": "notifications/progress", "params": progress})
        case "release":
            for waiting, about in held:
                if "method" in about:
                    ask(waiting, about)
                else:
                    answer(waiting, released=True, pad="x" * about.get("pad", 0))
            answer(id, released=len(held))
            held.clear()
        case "ask":
            ask(id, arguments)
        case "regret":
            for question in asked:
                cancelled = {"requestId": question}
                send({"method": "notifications/cancelled", "params": cancelled})
            answer(id, regretted=len(asked))


def ask(id: Any, arguments: dict[str, Any]) -> None:
    asked[f"s-{id}"] = id
    send({"id": f"s-{id}", "method": arguments["method"], "params": arguments.get("params", {})})


def look(id: Any) -> None:
    # As it was given: Python itself may have added to os.environ.
    given = Path("/proc/self/environ").read_text(encoding="utf-8").rstrip("\0").split("\0")
    answer(id, environment=sorted(given), group=os.getpgid(0), directory=str(Path.cwd()))


def main() -> None:
    tools = list(NAMES)
    for first in os.environ.get("FIRST_WORDS", "").splitlines():
        write(first.encode() + b"\n")
    sys.stderr.write(os.environ.get("LAST_WORDS", ""))
    sys.stderr.flush()
    if wait_for := os.environ.get("WAIT_FOR"):
        wait_for_file(Path(wait_for))
    for line in jsonrpc.lines():
        message = json.loads(line)
        id, params = message.get("id"), message.get("params", {})
        match message.get("method"):
            case "initialize":
                send({"id": id, **greeting("scripted", "2025-06-18", tools={"listChanged": True})})
            case "tools/list":
                send({"id": id, **list_tools(*tools)})
            case "tools/call":
                call(id, params, tools)
            case "ping":
                send({"id": id, "result": {}})
            case None if id in asked:
                answer(asked.pop(id), said={key: message[key] for key in message if key != "id"})
            case "notifications/cancelled":
                note(f"cancelled {params['requestId']}")
                held[:] = [call for call in held if call[0] != params["requestId"]]
            case _ if id is not None:
                send({"id": id, **unknown_method(message)})
    if "FAREWELL_SECONDS" in os.environ:
        time.sleep(float(os.environ["FAREWELL_SECONDS"]))
        note("farewell")
