"""A stdio server that answers a call with the bytes of a file, whatever they are."""

import json
import sys
from pathlib import Path
from typing import Any

TOOL = {"name": "dig", "inputSchema": {"type": "object", "properties": {"file": {"type": "string"}}}}


def main() -> None:
    """Answer each request; `dig` is answered with the result that stands in its file."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            start = b'{"jsonrpc":"2.0","id":%s,' % json.dumps(message["id"]).encode()
            sys.stdout.buffer.write(start + answer(message) + b"}\n")
            sys.stdout.buffer.flush()


def answer(message: dict[str, Any]) -> bytes:
    """The result or the error, as it stands in the message."""
    if message["method"] == "tools/call":
        return b'"result":' + Path(message["params"]["arguments"]["file"]).read_bytes()
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "quarry", "version": "1"},
        },
        "tools/list": {"tools": [TOOL]},
        "ping": {},
    }
    if message["method"] in results:
        return b'"result":' + json.dumps(results[message["method"]]).encode()
    return b'"error":{"code":-32601,"message":"Method not found"}'


if __name__ == "__main__":
    main()
