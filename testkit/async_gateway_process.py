"""A real gateway under test: `headgate serve` as a child process, and what can be seen of it from outside."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testkit import procfs
from testkit.clients import http1
from testkit.gateway_process import serve_command
from testkit.waiting import eventually

# Promised is well under a second; a loaded machine gets more before the case is given up.
_START_SECONDS = 30.0
_STOP_SECONDS = 15.0
WORKER = b"headgate.workers.result_jobs"


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """How many open files and descendants the gateway has."""

    files: int
    children: int


class AsyncGatewayProcess:
    """A running gateway."""

    def __init__(self, child: asyncio.subprocess.Process, port: int, log: Path) -> None:
        self.child = child
        self.pid = child.pid
        self.port = port
        self.log = log
        self.started = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.child.returncode is None and procfs.alive(self.pid)

    async def get(self, path: str) -> http1.Response:
        """GET a path on a connection of its own."""
        async with asyncio.timeout(30), http1.connected(self.port) as connection:
            return await connection.exchange(http1.request(self.port, "GET", path, {"Connection": "close"}))

    async def servers(self) -> dict[str, dict[str, Any]]:
        """The state of every upstream by name, as /ready tells it."""
        ready = json.loads((await self.get("/ready")).body)
        return {server["name"]: server for server in ready["servers"]}

    async def wait_ready(self, names: Iterable[str], seconds: float = 15.0) -> None:
        """Wait until these upstreams are ready."""
        wanted = set(names)

        async def ready() -> bool:
            servers = await self.servers()
            return all(servers.get(name, {}).get("state") == "ready" for name in wanted)

        await eventually(ready, seconds, f"{sorted(wanted)} to be ready")

    def census(self) -> ProcessCounts:
        """Count open files and descendants now, without the workers and the connection to each."""
        workers = len(self.workers())
        return ProcessCounts(
            procfs.open_files(self.pid) - workers, len(procfs.descendants(self.pid)) - workers
        )

    def workers(self) -> list[int]:
        """The processes for large results, which stay until they were idle for minutes."""
        return [pid for pid in procfs.descendants(self.pid) if WORKER in procfs.command(pid)]

    def log_lines(self) -> list[str]:
        """What the gateway has written to stderr so far."""
        return self.log.read_text(errors="replace").splitlines()

    async def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> float:
        """Signal the gateway and wait for its end; gives the seconds that it took."""
        started = time.monotonic()
        self.child.send_signal(with_signal)
        async with asyncio.timeout(_STOP_SECONDS):
            await self.child.wait()
        return time.monotonic() - started


@contextlib.asynccontextmanager
async def running(
    directory: Path,
    config: dict[str, Any],
    port: int = 0,
    program: Sequence[str] = ("-m", "headgate"),
    *,
    wrapper: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    ulimit: str = "",
) -> AsyncIterator[AsyncGatewayProcess]:
    """Start a gateway with this configuration; whatever is left of it at the end is killed.

    One that is started in the same directory again is the same gateway after a restart. `program` is what
    Python is to run, `wrapper` a command that executes its arguments in place of itself, `environment`
    holds variables of this process alone, and `ulimit` is what the shell sets for it, as `-n 64`.
    """
    config_file = directory / "headgate.json"
    config_file.write_text(json.dumps(config))
    log = directory / "gateway.log"
    variables = {"MCPPROXY_LOG_FORMAT": "json", "PYTHONFAULTHANDLER": "1"} | dict(environment or {})
    start = serve_command(
        config_file, directory / "data", "--listing", "full", port=port, program=program, ulimit=ulimit
    )
    with log.open("wb") as stderr:
        child = await asyncio.create_subprocess_exec(
            *wrapper,
            *start,
            env=os.environ | variables,
            stdout=stderr,
            stderr=stderr,
            stdin=asyncio.subprocess.DEVNULL,
        )
    gateway = AsyncGatewayProcess(child, 0, log)
    try:
        await _wait_until_it_listens(gateway)
        yield gateway
    finally:
        await _clear_away(gateway)


async def _wait_until_it_listens(gateway: AsyncGatewayProcess) -> None:
    try:
        await eventually(lambda: _find_port(gateway), _START_SECONDS, "the gateway to listen")
    except TimeoutError as error:
        # Its own word on where it hangs.
        await gateway.stop(signal.SIGABRT)
        raise RuntimeError(f"{error}: {gateway.log.read_text()[-4000:]}") from error


def _find_port(gateway: AsyncGatewayProcess) -> bool:
    if gateway.child.returncode is not None:
        raise RuntimeError(
            f"the gateway ended with {gateway.child.returncode}: {gateway.log.read_text()[-2000:]}"
        )
    for line in gateway.log_lines():
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if entry.get("event") == "listening" and ":" in entry.get("url", ""):
                gateway.port = int(entry["url"].split("://")[1].split("/")[0].rpartition(":")[2])
    return gateway.port != 0


async def _clear_away(gateway: AsyncGatewayProcess) -> None:
    left = procfs.descendants(gateway.pid) if gateway.alive else set()
    if gateway.child.returncode is None:
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            await gateway.stop()
    if gateway.child.returncode is None:
        gateway.child.kill()
        await gateway.child.wait()
    for pid in left:
        if procfs.alive(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
