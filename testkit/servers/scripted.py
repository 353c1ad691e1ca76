"""A small MCP server of the handshake era on stdio that does, at a call, exactly what a test wants."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ["echo", "hold", "release", "steps", "grow", "say", "ask", "regret", "look", "deaf", "family", "mute"]
SCHEMA = {"type": "object"}
# Calls that wait to be released, and calls by the ids of the questions to the client that they wait for.
held: list[tuple[Any, dict[str, Any]]] = []
asked: dict[str, Any] = {}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def note(line: str) -> None:
    with Path(os.environ["JOURNAL"]).open("a", encoding="utf-8") as journal:
        journal.write(line + "\n")


def answer(id: Any, **told: Any) -> None:
    content = [{"type": "text", "text": json.dumps(told)}]
    send({"jsonrpc": "2.0", "id": id, "result": {"content": content, "structuredContent": told}})


def call(id: Any, params: dict[str, Any], tools: list[str]) -> None:
    arguments = params.get("arguments", {})
    match params["name"]:
        case "hold" | "release" | "ask" | "regret":
            wait(id, params)
        case "steps":
            for step in range(arguments["steps"]):
                token = {"progressToken": params.get("_meta", {}).get("progressToken")}
                told = token | {"progress": step + 1, "total": arguments["steps"], "message": "on it"}
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
            answer(id, steps=arguments["steps"])
        case "grow":
            tools.append(arguments["tool"])
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            answer(id, tools=len(tools))
        case "say":
            # Whatever the line is: the server's own answer is a part of it, or missing.
            line = arguments["line"].replace("ID", str(id)).replace("PAD", "x" * arguments.get("pad", 0))
            sys.stdout.buffer.write(line.encode().replace(b"BAD", b"\xff") + b"\n")
            sys.stdout.buffer.flush()
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
                told = {"progressToken": params["_meta"]["progressToken"], "progress": 0}
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
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
                send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
            answer(id, regretted=len(asked))


def ask(id: Any, arguments: dict[str, Any]) -> None:
    asked[f"s-{id}"] = id
    question = {"jsonrpc": "2.0", "id": f"s-{id}", "method": arguments["method"]}
    send(question | {"params": arguments.get("params", {})})


def look(id: Any) -> None:
    # As it was given: Python itself may have added to os.environ.
    given = Path("/proc/self/environ").read_text(encoding="utf-8").rstrip("\0").split("\0")
    answer(id, environment=sorted(given), group=os.getpgid(0), directory=str(Path.cwd()))


def main() -> None:
    tools = list(NAMES)
    for line in os.environ.get("FIRST_WORDS", "").splitlines():
        sys.stdout.write(line + "\n")
    sys.stderr.write(os.environ.get("LAST_WORDS", ""))
    sys.stderr.flush()
    while (wait_for := os.environ.get("WAIT_FOR")) and not Path(wait_for).exists():
        time.sleep(0.02)
    for line in sys.stdin:
        message = json.loads(line)
        id, params = message.get("id"), message.get("params", {})
        match message.get("method"):
            case "initialize":
                able = {"tools": {"listChanged": True}}
                result = {"protocolVersion": "2025-06-18", "capabilities": able}
                result["serverInfo"] = {"name": "scripted", "version": "1"}
                send({"jsonrpc": "2.0", "id": id, "result": result})
            case "tools/list":
                listed = [{"name": name, "inputSchema": SCHEMA} for name in tools]
                send({"jsonrpc": "2.0", "id": id, "result": {"tools": listed}})
            case "tools/call":
                call(id, params, tools)
            case "ping":
                send({"jsonrpc": "2.0", "id": id, "result": {}})
            case None if id in asked:
                answer(asked.pop(id), said={key: message[key] for key in message if key != "id"})
            case "notifications/cancelled":
                note(f"cancelled {params['requestId']}")
                held[:] = [call for call in held if call[0] != params["requestId"]]
            case _ if id is not None:
                send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})
    if "FAREWELL_SECONDS" in os.environ:
        time.sleep(float(os.environ["FAREWELL_SECONDS"]))
        note("farewell")


main()
