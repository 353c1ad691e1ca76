"""A stdio server that answers each call with the member of JSON-RPC that its arguments spell out."""

import json
import sys

TOOLS = [{"name": "answer", "inputSchema": {"type": "object"}}]
GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "malformed", "version": "1"},
}


def main() -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        match message["method"]:
            case "initialize":
                member = f'"result":{json.dumps(GREETING)}'
            case "tools/list":
                member = f'"result":{json.dumps({"tools": TOOLS})}'
            case "tools/call":
                member = message["params"]["arguments"]["member"]
            case _:
                member = '"result":{}'
        sys.stdout.write(f'{{"jsonrpc":"2.0","id":{message["id"]},{member}}}\n')
        sys.stdout.flush()


if __name__ == "__main__":
    main()
