"""A process that asks the gateway again and again and tells the longest wait, unblurred by a busy driver."""

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
# A probe that waits longer than this has seen the gateway hang.
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
        before, started = _CpuTimes.read(pid), time.monotonic()
        asked += 1
        failures += not _answers(connection, tool)
        seconds = time.monotonic() - started
        if seconds > longest:
            longest = max(longest, _CpuTimes.read(pid).stall_since(before, seconds))
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


@dataclass(frozen=True, slots=True)
class _CpuTimes:
    """Seconds for which the loop ran, and for which it, its other threads, this process had no CPU."""

    ran: float
    waited: float
    # By the id of the thread.
    others_waited: dict[str, float]
    probe_waited: float
    # Of this virtual machine, by its host.
    stolen: float

    @classmethod
    def read(cls, pid: int) -> "_CpuTimes":
        """As they are now."""
        ran, waited = _schedstat(str(pid))
        others: dict[str, float] = {}
        with contextlib.suppress(OSError):
            threads = set(os.listdir(f"/proc/{pid}/task")) - {str(pid)}
            others = {thread: _schedstat(f"{pid}/task/{thread}")[1] for thread in threads}
        return cls(ran, waited, others, _schedstat("self")[1], _stolen())

    def stall_since(self, before: "_CpuTimes", seconds: float) -> float:
        """How many of these seconds were no wait for a CPU, and so are the gateway's own.

        While the loop is blocked, another thread may have the interpreter's lock and no CPU. At any moment
        that is one thread, so the one that waited longest counts.
        """
        waited = self.waited - before.waited
        blocked = max(0.0, seconds - waited - (self.ran - before.ran))
        others = (
            total - before.others_waited.get(thread, total) for thread, total in self.others_waited.items()
        )
        excused = waited + min(blocked, max(others, default=0.0))
        return seconds - excused - (self.probe_waited - before.probe_waited) - (self.stolen - before.stolen)


def _schedstat(task: str) -> tuple[float, float]:
    """Seconds for which a task ran, and for which it could have run but had no CPU."""
    with contextlib.suppress(OSError, IndexError):
        ran, waited = Path(f"/proc/{task}/schedstat").read_bytes().split()[:2]
        return int(ran) / 1e9, int(waited) / 1e9
    return 0.0, 0.0


def _stolen() -> float:
    """Seconds for which the host gave the CPUs of this virtual machine to others."""
    with contextlib.suppress(OSError, IndexError):
        total = Path("/proc/stat").read_bytes().split(b"\n", 1)[0].split()
        return int(total[8]) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _ended() -> bool:
    try:
        return os.read(0, 1) == b""
    except BlockingIOError:
        return False


if __name__ == "__main__":
    main()
