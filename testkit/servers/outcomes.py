"""A server on stdio whose calls end as their arguments say; of the standard library alone.

It appends a line to its journal for every call that it begins, before anything else happens.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

MODERN = "2026-07-28"
TOOLS = [
    {"name": "pay", "inputSchema": {"type": "object"}},
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "put", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": True}},
]
ERRORS = {"error": -32000, "internal": -32603, "timeout_like": -32001, "refused": -32602, "unknown": -32601}


def main() -> None:
    """Answer each request."""
    journal = Path(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        said = answer(journal, message["method"], message.get("params") or {})
        if said is not None:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}) + "\n")
            sys.stdout.flush()


def answer(journal: Path, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result or the error of a request; None for one that is not answered."""
    if method == "initialize":
        greeting = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        return {"result": {**greeting, "serverInfo": {"name": "outcomes", "version": "1"}}}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "ping":
        return {"result": {}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": "Method not found"}}
    arguments = params.get("arguments") or {}
    with journal.open("a", encoding="utf-8") as book:
        book.write(json.dumps([params["name"], arguments]) + "\n")
    return called(journal, arguments)


def called(journal: Path, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """What a call comes to."""
    outcome = arguments.get("outcome", "result")
    if outcome == "die_then_refused":
        # The first time it ends without an answer.
        first = journal.with_name(f"died {arguments['order']}")
        outcome = "refused" if first.exists() else "die"
        first.touch()
    if outcome == "die":
        os._exit(1)
    if outcome == "slow":
        return None
    if outcome in ERRORS:
        words = arguments.get("words", f"no: {outcome}")
        return {"error": {"code": ERRORS[outcome], "message": words, **arguments.get("more", {})}}
    content = [{"type": "text", "text": arguments.get("words", "done")}]
    return {"result": {"content": content, "isError": outcome == "is_error"}}


if __name__ == "__main__":
    main()
