"""A server on stdio that ends when it is told to; of the standard library alone, so that it starts fast."""

import json
import os
import sys
from typing import Any

TOOLS = [
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "pay", "inputSchema": {"type": "object"}},
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """What a request comes to, None for an unknown one; the first of a kind may be the last."""
    if method == "initialize":
        greeting = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        return {**greeting, "serverInfo": {"name": "dying", "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method != "tools/call":
        return None
    will = params["arguments"].get("until")
    if will is not None and not os.path.exists(will):
        with open(will, "x", encoding="utf-8"):
            os._exit(1)
    given = params["arguments"]
    words = given.get("fails") or "é" * given.get("letters", 0) or str(os.getpid())
    return {"content": [{"type": "text", "text": words}], "isError": "fails" in given}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params") or {})
        unknown = {"error": {"code": -32601, "message": "Method not found"}}
        said = unknown if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}) + "\n")
        sys.stdout.flush()
