"""A stdio server whose tools refuse, die or wait as files say, and which writes down what it carried out."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

TOOLS = ("book", "cancel", "ship")
LONGEST_WAIT_SECONDS = 120.0


def main() -> None:
    """Serve; the directory has the journal, and a file for each tool that does something else."""
    place = Path(sys.argv[1])
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": answer(message, place)}
            sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
            sys.stdout.buffer.flush()


def answer(message: dict[str, Any], place: Path) -> dict[str, Any]:
    """The result of one request."""
    match message["method"]:
        case "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bookings", "version": "1"},
            }
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
        case "tools/call":
            return called(message["params"]["name"], place)
        case _:
            return {}


def called(name: str, place: Path) -> dict[str, Any]:
    """Do as the file of the tool says: refuse, die before or after it was done, or wait first."""
    script = place / name
    said = script.read_text() if script.exists() else "do"
    if said.startswith("refuse"):
        return {"content": [{"type": "text", "text": said}], "isError": True}
    if said == "die before":
        os._exit(1)
    with (place / "journal").open("a") as journal:
        journal.write(f"{name}\n")
    if said == "die after":
        os._exit(1)
    give_up_at = time.monotonic() + LONGEST_WAIT_SECONDS
    while said == "wait" and script.exists() and time.monotonic() < give_up_at:
        time.sleep(0.02)
    return {"content": [{"type": "text", "text": json.dumps({"id": name})}]}


if __name__ == "__main__":
    main()
