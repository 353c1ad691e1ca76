"""Ways to make the host fail for one process: Debian tools where they are, otherwise a library of our own."""

import asyncio
import contextlib
import mmap
import os
import shutil
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from testkit.parts import ROOT

_INSTALLER = ROOT / "scripts" / "install_campaign_tools.sh"
_SOURCE = ROOT / "testkit" / "faults" / "faults.c"
# Packages may have to be fetched.
_COMMAND_SECONDS = 60.0
# As `struct control` of faults.c: four counters and flags, then offset, rate and start of the clock.
_CONTROL = struct.Struct("=iiiiddd")
# Set to try the ways that need neither root nor ptrace.
UNPRIVILEGED = "CAMPAIGN_UNPRIVILEGED"


def privileged() -> bool:
    """Whether this process may mount, trace and install."""
    return os.geteuid() == 0 and not os.environ.get(UNPRIVILEGED)


async def has_tool(program: str, package: str) -> bool:
    """Whether a program is there, installed now if it was missing and that is possible."""
    if os.environ.get(UNPRIVILEGED):
        return False
    if shutil.which(program):
        return True
    return await succeeds(str(_INSTALLER), f"{program}={package}")


async def succeeds(*command: str) -> bool:
    """Whether a command ends with exit code 0 in time; its output is of no interest."""
    quiet = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*command, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        async with asyncio.timeout(_COMMAND_SECONDS):
            return await child.wait() == 0
    except TimeoutError:
        child.kill()
        await child.wait()
        return False


class PreloadedFaults:
    """The library of faults for one process, switched while that process runs."""

    def __init__(self, library: Path, control: Path, shared: mmap.mmap) -> None:
        self.environment = {"LD_PRELOAD": str(library), "CAMPAIGN_FAULTS": str(control)}
        self._shared = shared

    def _set(self, offset: int, form: str, value: float) -> None:
        struct.pack_into(form, self._shared, offset, value)

    def _get(self, offset: int) -> int:
        return int(struct.unpack_from("=i", self._shared, offset)[0])

    def fail_syncs(self, *, failing: bool) -> None:
        """Every fsync and fdatasync fails with EIO, or none does."""
        self._set(0, "=i", int(failing))

    def fail_names(self, *, failing: bool) -> None:
        """No name under campaign.test can be resolved, or those can that should."""
        self._set(4, "=i", int(failing))

    @property
    def syncs_failed(self) -> int:
        """How many fsync and fdatasync have failed."""
        return self._get(8)

    @property
    def names_asked(self) -> int:
        """How many lookups of names under campaign.test there were."""
        return self._get(12)

    def set_clock(self, offset_seconds: float, rate: float, since: float) -> None:
        """The time of day is off by so much, and from `since` on runs at this rate."""
        struct.pack_into("=ddd", self._shared, 16, offset_seconds, rate, since)


@contextlib.contextmanager
def preloaded_faults(directory: Path) -> Iterator[PreloadedFaults]:
    """Compile the library; raises RuntimeError when there is no compiler."""
    library, control = directory / "faults.so", directory / "faults.control"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("neither the Debian tools nor a C compiler are there; install gcc")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    control.write_bytes(_CONTROL.pack(0, 0, 0, 0, 0.0, 1.0, 0.0))
    with control.open("r+b") as file, mmap.mmap(file.fileno(), _CONTROL.size) as shared:
        yield PreloadedFaults(library, control, shared)


@contextlib.asynccontextmanager
async def failing_syncs(pid: int, log: Path) -> AsyncIterator[None]:
    """Every fsync and fdatasync of a running process fails with EIO while the block runs, by strace."""
    tracer = await asyncio.create_subprocess_exec(
        "strace", "-f", "-p", str(pid), "-o", str(log),
        "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert tracer.stderr
    try:
        async with asyncio.timeout(10):
            said = await tracer.stderr.readline()
        if b"attached" not in said:
            raise PermissionError(said.decode(errors="replace").strip())
        yield
    finally:
        if tracer.returncode is None:
            tracer.terminate()
        await tracer.communicate()


async def may_trace() -> bool:
    """Whether strace may change the system calls of another process here."""
    if not await has_tool("strace", "strace"):
        return False
    return await succeeds("strace", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO", "true")


class FakeClock:
    """The time of day of one process; its monotonic clock stays right, as with a clock that was set."""

    def __init__(
        self, way: str, environment: dict[str, str], change: Callable[[int, int], None], *, light: bool
    ) -> None:
        """`light` says that asking for the time costs no more than usual."""
        self.way = way
        self.light = light
        self.environment = environment
        self._change = change

    def set(self, *, offset_seconds: int = 0, rate: int = 1) -> None:
        """From now on it is off by so much, and runs at this rate."""
        self._change(offset_seconds, rate)


@contextlib.asynccontextmanager
async def fake_clock(directory: Path) -> AsyncIterator[FakeClock]:
    """By libfaketime, which is installed if it is missing, else by a library of our own."""
    library = _faketime() if await has_tool("faketime", "faketime") else None
    if library is None:
        with preloaded_faults(directory) as faults:
            yield FakeClock(
                "a library that replaces clock_gettime", faults.environment,
                lambda offset, rate: faults.set_clock(offset, rate, time.time()), light=True,
            )  # fmt: skip
        return
    file = directory / "faketime"

    def change(offset: int, rate: int) -> None:
        # In one step: the process reads it once a second.
        new = directory / "faketime.new"
        new.write_text(f"{offset:+d}{f' x{rate}' if rate != 1 else ''}\n")
        new.replace(file)

    change(0, 1)
    environment = {
        "LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    yield FakeClock("faketime", environment, change, light=False)


def _faketime() -> Path | None:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return found[0] if found else None
