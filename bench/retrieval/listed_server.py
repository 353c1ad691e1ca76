"""An MCP server on stdio that has the tools of a file, and nothing behind them.

It is run as a script and imports nothing of this project, so that dozens of them start quickly.
"""

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Answer until standard input ends."""
    listing = json.loads(Path(sys.argv[1]).read_bytes())
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        answer = {"jsonrpc": "2.0", "id": message["id"], **_answer(message, listing)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _answer(message: dict[str, Any], listing: Any) -> dict[str, Any]:
    if message["method"] == "initialize":
        return {
            "result": {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "listed", "version": "1"},
            }
        }
    if message["method"] == "tools/list":
        return {"result": listing}
    if message["method"] == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": "unknown"}}


if __name__ == "__main__":
    main()
