"""A process that asks the gate again and again and tells the longest wait, unblurred by a busy driver."""

import asyncio
import contextlib
import http.client
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

_INTERVAL_SECONDS = 0.02
# A probe that waits longer than this has seen the gate hang.
_ANSWER_SECONDS = 30.0
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(slots=True)
class Seen:
    """The longest wait for an answer, less waits for a CPU; how often was asked, and how often in vain."""

    longest_seconds: float = 0.0
    asked: int = 0
    failures: int = 0


@contextlib.asynccontextmanager
async def watching(port: int, pid: int, tool: str = "") -> AsyncIterator[Seen]:
    """Ask for /health, or call `tool` (an echo), from another process; the values are there at the end."""
    seen = Seen()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "campaign.probe", str(port), str(pid), tool),
        cwd=_ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin
    assert process.stdout
    try:
        await process.stdout.readline()
        yield seen
    finally:
        process.stdin.close()
        words = (await process.stdout.read()).split()
        await process.wait()
        if len(words) == 3:
            seen.longest_seconds, seen.asked, seen.failures = float(words[0]), int(words[1]), int(words[2])


def main() -> None:
    """Ask until stdin ends, then print the longest wait, how often was asked, and how often in vain."""
    with contextlib.suppress(PermissionError):
        # So that this process is rarely what has to wait.
        os.nice(-10)
    os.set_blocking(0, False)
    port, pid, tool = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    print("started", flush=True)
    longest, asked, failures = 0.0, 0, 0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
    while not _ended():
        started, waited = time.monotonic(), _waited_for_cpu(pid)
        asked += 1
        failures += not _answers(connection, tool)
        longest = max(longest, time.monotonic() - started - (_waited_for_cpu(pid) - waited))
        time.sleep(_INTERVAL_SECONDS)
    print(longest, asked, failures)


def _answers(connection: http.client.HTTPConnection, tool: str) -> bool:
    try:
        if tool:
            _send_call(connection, tool)
        else:
            connection.request("GET", "/health")
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException):
        # The next request opens the connection anew.
        connection.close()
        return False
    return response.status == 200 and (not tool or b'"text":"calm"' in body)


def _send_call(connection: http.client.HTTPConnection, tool: str) -> None:
    """A call of the stateless era, which needs no session."""
    body = (
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":{"text":"calm"},"_meta":'
        '{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
    )
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    connection.request("POST", "/mcp", body % tool, headers)


def _waited_for_cpu(pid: int) -> float:
    """Seconds for which the gate and this process could have run but had no CPU: no stall of the gate's."""
    total = 0
    for who in (str(pid), "self"):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{who}/schedstat").read_text().split()[1])
    return total / 1e9


def _ended() -> bool:
    try:
        return os.read(0, 1) == b""
    except BlockingIOError:
        return False


if __name__ == "__main__":
    main()
