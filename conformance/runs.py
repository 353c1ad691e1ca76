"""Running one cell: the fixture, the gateway before it, and the suite against either."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from conformance.cells import Carrier, Cell, Side
from conformance.suite import Results, Scenarios, run_client, run_server
from testkit import async_gateway_process
from testkit.conformance_server.eras import Era
from testkit.parts import ROOT

_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 5.0
# Each brings a suite, a gateway and a client; more of them at once would only measure the machine.
_CLIENTS_AT_ONCE: Final = 2


async def run_direct(cell: Cell, known: Scenarios, scenario: str | None, directory: Path) -> Results:
    """The suite's results without the gateway: for the fixture, or for the client."""
    if cell.side is Side.CLIENT:
        return await _run_clients(cell, known, scenario, directory, "--direct")
    async with _fixture(Era.BOTH, directory) as url:
        return await run_server(url, cell.revision, scenario, directory / "checks")


async def run_through(cell: Cell, known: Scenarios, scenario: str | None, directory: Path) -> Results:
    """What the suite says of the gateway."""
    if cell.side is Side.CLIENT:
        return await _run_clients(cell, known, scenario, directory, "--logs", str(directory))
    async with (
        _upstream(cell, directory) as server,
        async_gateway_process.running(directory, _settings(server)) as running,
    ):
        await running.wait_ready(["fixture"], _START_SECONDS)
        url = f"http://127.0.0.1:{running.port}/mcp"
        return await run_server(url, cell.revision, scenario, directory / "checks")


def _settings(server: dict[str, Any]) -> dict[str, Any]:
    return {"mcpServers": {"fixture": server}, "proxySettings": {"prefix": False, "listing": "full"}}


async def _run_clients(
    cell: Cell, known: Scenarios, scenario: str | None, directory: Path, *arguments: str
) -> Results:
    names = [scenario] if scenario else [*known.required, *known.unscored]
    program = [sys.executable, "-m", "conformance.front", *arguments]
    free = asyncio.Semaphore(_CLIENTS_AT_ONCE)

    async def run(name: str) -> Results:
        async with free:
            return await run_client(program, cell.revision, name, directory / "checks" / name)

    found: Results = {}
    for results in await asyncio.gather(*map(run, names)):
        found |= results
    return found


@contextlib.asynccontextmanager
async def _upstream(cell: Cell, directory: Path) -> AsyncIterator[dict[str, Any]]:
    if cell.carrier is Carrier.STDIO:
        arguments = ["-m", "testkit.conformance_server", "--era", cell.era.value]
        yield {"command": sys.executable, "args": arguments, "cwd": str(ROOT)}
        return
    async with _fixture(cell.era, directory) as url:
        yield {"url": url}


@contextlib.asynccontextmanager
async def _fixture(era: Era, directory: Path) -> AsyncIterator[str]:
    with (directory / "fixture.log").open("wb") as log:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "testkit.conformance_server", "--http", "0", "--era", era.value,
            cwd=ROOT, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log,
        )  # fmt: skip
    try:
        yield await _address(child)
    finally:
        await _end(child)


async def _address(child: asyncio.subprocess.Process) -> str:
    assert child.stdout is not None
    async with asyncio.timeout(_START_SECONDS):
        line = await child.stdout.readline()
    if not line:
        raise RuntimeError("the fixture ended before it listened")
    return line.decode().strip()


async def _end(child: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await child.wait()
