"""A stdio server that starts at once, lists what a file says, and waits at a door if it is given one."""

import json
import select
import sys
import time
from pathlib import Path
from typing import Any

# A gate that lost its test must not leave a child waiting for ever.
LONGEST_WAIT_SECONDS = 120.0
LOOK_MILLISECONDS = 20
NEWS = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'


def main() -> None:
    """Serve `label` with the tools of the file `listing`, once the file `door` exists.

    Clients that can be asked for a sample are shown those of `listing.more` instead, if there is such a file.
    """
    label, place, *doors = sys.argv[1:]
    for door in doors:
        wait_at(Path(door))
    listing = Path(place)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "initialize" and "sampling" in message["params"]["capabilities"]:
            more = listing.with_suffix(".more")
            listing = more if more.exists() else listing
        if "id" in message:
            sys.stdout.buffer.write(answer(message, label, listing))
            sys.stdout.buffer.flush()


def wait_at(door: Path) -> None:
    """Return once the door is there; end if nobody is left to open it for."""
    give_up_at = time.monotonic() + LONGEST_WAIT_SECONDS
    client = select.poll()
    client.register(sys.stdin, select.POLLHUP | select.POLLRDHUP)
    while not door.exists() and time.monotonic() < give_up_at:
        if client.poll(LOOK_MILLISECONDS):
            sys.exit("the client has left")


def answer(message: dict[str, Any], label: str, listing: Path) -> bytes:
    """The answer to one request, after the news that it makes."""
    id = json.dumps(message["id"]).encode()
    if message["method"] == "tools/list":
        # As it is now: a test may have written another.
        return b'{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (id, listing.read_bytes())
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    news = b""
    if message["method"] == "initialize":
        reply["result"] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": label, "version": "1"},
        }
    elif message["method"] == "tools/call":
        name = message["params"]["name"]
        news = NEWS if name == "restock" else b""
        reply["result"] = {"content": [{"type": "text", "text": f"{label}: {name}"}]}
    elif message["method"] == "ping":
        reply["result"] = {}
    else:
        reply["error"] = {"code": -32601, "message": f"Method not found: {message['method']}"}
    return news + json.dumps(reply).encode() + b"\n"


if __name__ == "__main__":
    main()
