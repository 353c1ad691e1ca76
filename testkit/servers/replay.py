"""A stdio server that serves one listing unchanged and answers a call with its label and the tool's name."""

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    label, listing = sys.argv[1], Path(sys.argv[2]).read_bytes()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            sys.stdout.buffer.write(answer(message, label, listing) + b"\n")
            sys.stdout.buffer.flush()


def answer(message: dict[str, Any], label: str, listing: bytes) -> bytes:
    if message["method"] == "tools/list":
        return b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(message["id"]).encode(), listing)
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        reply["result"] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "replay", "version": "1"},
        }
    elif message["method"] == "tools/call":
        # Two texts, because either name may hold any character that could join them.
        texts = [label, message["params"]["name"]]
        reply["result"] = {"content": [{"type": "text", "text": text} for text in texts]}
    elif message["method"] == "ping":
        reply["result"] = {}
    else:
        reply["error"] = {"code": -32601, "message": f"Method not found: {message['method']}"}
    return json.dumps(reply).encode()


if __name__ == "__main__":
    main()
