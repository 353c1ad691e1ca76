"""A stdio server that lists what a file says, and answers a call with its arguments or refuses them."""

import json
import sys
from pathlib import Path
from typing import Any

INVALID_PARAMS = -32602


def main() -> None:
    """Serve the tools of the file `listing`; it is read anew for each list."""
    listing = Path(sys.argv[1])
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            sys.stdout.buffer.write(answer(message, listing) + b"\n")
            sys.stdout.buffer.flush()


def answer(message: dict[str, Any], listing: Path) -> bytes:
    """The answer to one request."""
    if message["method"] == "tools/list":
        id = json.dumps(message["id"]).encode()
        return b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (id, listing.read_bytes())
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome(message)}).encode()


def outcome(message: dict[str, Any]) -> dict[str, Any]:
    """Its result or its error."""
    if message["method"] == "initialize":
        greeting = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        return {"result": greeting | {"serverInfo": {"name": "clerk", "version": "1"}}}
    if message["method"] == "tools/call":
        return called(message["params"])
    if message["method"] == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": f"Method not found: {message['method']}"}}


def called(params: dict[str, Any]) -> dict[str, Any]:
    """Two tools refuse whatever they get, each in its own way; the others say what they got."""
    if params["name"] == "refuse_by_error":
        return {"error": {"code": INVALID_PARAMS, "message": "Invalid params: amount is wrong"}}
    refused = params["name"] == "refuse_by_result"
    text = "Input validation error: amount is wrong" if refused else json.dumps(params.get("arguments"))
    return {"result": {"content": [{"type": "text", "text": text}], "isError": refused}}


if __name__ == "__main__":
    main()
