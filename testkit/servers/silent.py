"""A small MCP server on stdio that lists one of everything and never answers a request about it."""

import json
import os
import sys
from pathlib import Path
from typing import Any

ABLE: dict[str, Any] = {
    "tools": {},
    "prompts": {},
    "resources": {"subscribe": True},
    "completions": {},
    "logging": {},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "ping": {},
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": ABLE,
        "serverInfo": {"name": "silent", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "hold", "inputSchema": {"type": "object"}}]},
    "prompts/list": {"prompts": [{"name": "greet", "arguments": [{"name": "who"}]}]},
    "resources/list": {"resources": [{"uri": f"held://{n}", "name": str(n)} for n in range(5)]},
    "resources/templates/list": {"resourceTemplates": []},
}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        id, method = message.get("id"), message.get("method")
        if method in ANSWERS:
            send({"jsonrpc": "2.0", "id": id, "result": ANSWERS[method]})
        elif method == "server/discover":
            send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})
        elif id is not None:
            with Path(os.environ["JOURNAL"]).open("a", encoding="utf-8") as journal:
                journal.write(f"held {method}\n")


main()
