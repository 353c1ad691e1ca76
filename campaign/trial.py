"""A case under trial: how it is registered, what it measures, and the invariants that hold after each."""

import asyncio
import contextlib
import secrets
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.probe import Seen, watching
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess, ProcessCounts, running
from testkit.waiting import eventually

HEALTH_SECONDS = 1.0
STALL_SECONDS = 0.1
SETTLE_SECONDS = 10.0
MEBIBYTE = 1 << 20
# As if there were no limit to what an agent is shown.
WHOLE = {"enableAutoTruncation": False}
MOST_WORKERS = 4
_LARGEST_SEARCHED = 64 * MEBIBYTE
# Three pipes, and one to notice its end.
_FILES_OF_A_LINE = 4


@dataclass(frozen=True, slots=True)
class Case:
    """One case of the campaign; its bounds are what it may take in all."""

    id: str
    what: str
    must_hold: str
    run: Callable[["Trial"], Awaitable[None]]
    quick_seconds: float
    full_seconds: float


CASES: dict[str, Case] = {}


def case(
    case_id: str, what: str, must_hold: str, *, quick_seconds: float = 30.0, full_seconds: float = 120.0
) -> Callable[[Callable[["Trial"], Awaitable[None]]], Callable[["Trial"], Awaitable[None]]]:
    """Register an async function as the case with this id."""

    def register(run: Callable[[Trial], Awaitable[None]]) -> Callable[[Trial], Awaitable[None]]:
        assert case_id not in CASES, f"{case_id} is registered twice"
        CASES[case_id] = Case(case_id, what, must_hold, run, quick_seconds, full_seconds)
        return run

    return register


@dataclass(slots=True)
class Verdict:
    """What came out of one case."""

    case: Case
    measured: dict[str, str] = field(default_factory=dict)
    checks: int = 0
    failures: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """A case without a check or without a measured value has no result, and so has failed."""
        return not self.failures and self.checks > 0 and bool(self.measured)


class Trial:
    """What a case works with: its gateway, its measurements, its checks."""

    def __init__(self, verdict: Verdict, directory: Path, *, quick: bool) -> None:
        self.verdict = verdict
        self.directory = directory
        self.quick = quick
        self._gateways = 0

    def size(self, *, quick: int, full: int) -> int:
        """The one that this run asks for."""
        return quick if self.quick else full

    def measure(self, name: str, value: float | str, unit: str = "") -> None:
        """Keep a measured value for the table."""
        shown = f"{value:.3g}" if isinstance(value, float) else str(value)
        self.verdict.measured[name] = f"{shown} {unit}".strip()

    def check(self, claim: str, holds: object, seen: object = "") -> None:
        """Count a claim, and keep it as a failure unless it holds."""
        self.verdict.checks += 1
        if not holds:
            self.verdict.failures.append(f"{claim}{f' (seen: {seen})' if seen != '' else ''}")

    @contextlib.asynccontextmanager
    async def gateway(
        self,
        servers: dict[str, Any],
        *,
        ready: Iterable[str] | None = None,
        settings: dict[str, Any] | None = None,
        spare_files: int = 0,
        spare_children: int = 0,
        spare_lines: int = 0,
        environment: Mapping[str, str] | None = None,
        stall_seconds: float | None = STALL_SECONDS,
        wrapper: Sequence[str] = (),
        ulimit: str = "",
    ) -> AsyncIterator[AsyncGatewayProcess]:
        """A gateway with these upstreams, probed while the block runs and checked when it ends.

        `ready` names the upstreams to wait for (all of them by default); `spare_files` and `spare_children`
        are how many more there may rightly be at the end (connections kept to HTTP upstreams, say), and
        `spare_lines` how many connections to children may outlive their last use;
        With `stall_seconds` None the case ends the gateway itself. `wrapper`, `environment` and `ulimit`
        are those of `running`.
        """
        self._gateways += 1
        directory = self.directory / f"gateway{self._gateways}"
        directory.mkdir()
        canary = f"c4nary{secrets.token_hex(12)}"
        known = {name: _with_secret(entry, canary) for name, entry in servers.items()}
        config = {"mcpServers": known, "proxySettings": settings or {}}
        async with running(
            directory, config, wrapper=wrapper, environment=environment, ulimit=ulimit
        ) as gateway:
            self.verdict.log = []
            try:
                await gateway.wait_ready(servers if ready is None else ready)
                before = gateway.census()
                async with watching(gateway.port, gateway.pid) as stall:
                    yield gateway
                if stall_seconds is not None:
                    files = spare_files + _FILES_OF_A_LINE * spare_lines
                    allowed = ProcessCounts(
                        before.files + files, before.children + spare_children + spare_lines
                    )
                    await self._check_invariants(gateway, allowed, stall, stall_seconds)
                if gateway.alive:
                    await self._check_secrets(gateway, directory / "data", canary)
            finally:
                self.verdict.log = gateway.log_lines()[-25:]

    async def _check_invariants(
        self, gateway: AsyncGatewayProcess, allowed: ProcessCounts, stall: Seen, stall_seconds: float
    ) -> None:
        self.check("the gateway is alive", gateway.alive)
        if not gateway.alive:
            return
        health = await gateway.get("/health")
        self.check("/health within 1 s", health.status == 200 and health.seconds <= HEALTH_SECONDS)
        self.measure("stall", stall.longest_seconds * 1000, "ms")
        self.check(
            f"no stall over {stall_seconds * 1000:.0f} ms",
            stall.asked > 0 and not stall.failures and stall.longest_seconds < stall_seconds,
            f"{stall.longest_seconds * 1000:.0f} ms, {stall.failures} of {stall.asked} probes failed",
        )
        await self._check_census(gateway, allowed)
        workers = len(gateway.workers())
        self.check(f"at most {MOST_WORKERS} processes for large results", workers <= MOST_WORKERS, workers)
        broken = [line for line in gateway.log_lines() if "Traceback" in line or "never retrieved" in line]
        self.check("no traceback in the log", not broken, broken[:1])

    async def _check_secrets(self, gateway: AsyncGatewayProcess, data: Path, canary: str) -> None:
        """I9: the secret of each upstream's entry is on no page, in no log line and in no file."""
        secret = canary.encode()
        pages = {path: (await gateway.get(path)).body for path in ("/", "/ready", "/metrics", "/listing")}
        places = [path for path, body in pages.items() if secret in body]
        if secret in gateway.log.read_bytes():
            places.append("the log")
        places += [path.name for path in data.rglob("*") if _holds(path, secret)]
        self.check("no secret of an entry on a page, in the log or in a file", not places, places)

    async def _check_census(self, gateway: AsyncGatewayProcess, allowed: ProcessCounts) -> None:
        def settled() -> bool:
            now = gateway.census()
            return now.files <= allowed.files and now.children <= allowed.children

        try:
            await eventually(settled, SETTLE_SECONDS, "open files and children to settle")
        except TimeoutError:
            now = gateway.census()
            self.check(
                f"open files and children back within {SETTLE_SECONDS:g} s", False,
                f"{now}, allowed {allowed}",
            )  # fmt: skip


def _with_secret(entry: Any, canary: str) -> Any:
    """The entry with one more variable or header, which no case looks at."""
    if not isinstance(entry, dict):
        return entry
    if "command" in entry:
        return entry | {"env": entry.get("env", {}) | {"CAMPAIGN_TOKEN": canary}}
    if "url" in entry:
        return entry | {"headers": entry.get("headers", {}) | {"X-Campaign-Token": canary}}
    return entry


def _holds(path: Path, secret: bytes) -> bool:
    try:
        return path.is_file() and path.stat().st_size <= _LARGEST_SEARCHED and secret in path.read_bytes()
    except OSError:
        # It was removed meanwhile.
        return False


class Usage:
    """What a stretch of a case cost the gateway: CPU, and memory above where it began."""

    def __init__(self, gateway: AsyncGatewayProcess) -> None:
        self._pid = gateway.pid
        procfs.reset_peak_rss(self._pid)
        self._cpu = procfs.cpu_seconds(self._pid)
        self._rss = procfs.resident_bytes(self._pid)
        self._started = time.monotonic()

    @property
    def cpu_seconds(self) -> float:
        """CPU since the beginning."""
        return procfs.cpu_seconds(self._pid) - self._cpu

    @property
    def cpu_share(self) -> float:
        """CPU since the beginning as a share of one core."""
        return self.cpu_seconds / (time.monotonic() - self._started)

    @property
    def peak_growth_mib(self) -> float:
        """The most memory since the beginning, above what there was."""
        return (procfs.peak_resident_bytes(self._pid) - self._rss) / MEBIBYTE


async def judge(one: Case, *, quick: bool) -> Verdict:
    """Run one case within its bound; whatever goes wrong is a failure of the case."""
    verdict = Verdict(one)
    started = time.monotonic()
    bound = one.quick_seconds if quick else one.full_seconds
    with tempfile.TemporaryDirectory(prefix=f"campaign-{one.id}-") as directory:
        try:
            async with asyncio.timeout(bound):
                await one.run(Trial(verdict, Path(directory), quick=quick))
        except TimeoutError as error:
            verdict.failures.append(str(error) or f"no result within {bound:g} s")
        except Exception as error:  # noqa: BLE001 - a case that breaks must not end the campaign
            verdict.failures.append(f"{type(error).__name__}: {error}")
            verdict.log += traceback.format_exc().splitlines()[-8:]
    verdict.seconds = time.monotonic() - started
    return verdict
