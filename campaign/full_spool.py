"""Large answers that cannot be written to disk (F41)."""

import asyncio
import contextlib
import json
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from campaign.trial import MEBIBYTE, Trial, case
from campaign.upstream_stdio import executions
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import misbehaving, misbehaving_http

_SIZE = 8 * MEBIBYTE
_DISK_BYTES = 2 * MEBIBYTE
_HELD = 5
_REPORT_SECONDS = 60
# Eight of the ledger, the answer that is stored in the end, and a connection to the HTTP server.
_SPARE_FILES = 10
_LOST = "SERVICE_UNAVAILABLE/done"


@case(
    "F41",
    "large answers of stdio and HTTP servers while the spool is full, then read-only",
    "each costs its own call, with the true reason; the child, other calls and the breaker are unharmed",
    quick_seconds=60,
)
async def full_spool(trial: Trial) -> None:
    """A large answer that cannot be written is lost, and nothing else is."""
    record = trial.directory / "record"
    async with misbehaving_http(trial.directory, "web") as server:
        servers = {"rogue": misbehaving("--record", str(record)), "web": server.entry()}
        async with (
            trial.gateway(servers, spare_files=_SPARE_FILES) as gateway,
            client(gateway.port, modern=True) as caller,
        ):
            started = time.monotonic()
            child = (await caller.call("rogue_pid")).text
            for how in ("full", "read-only"):
                with _spoiled(gateway, trial.directory / "gateway1" / "data" / "spool", how) as means:
                    trial.measure(how, means)
                    await _while_spoiled(trial, caller, record, how)
            trial.check("the same child all the time", (await caller.call("rogue_pid")).text == child)
            back = await caller.call("rogue_big_line", {"size": _SIZE})
            trial.check("with room again it is answered", back.ok, back.outcome)
            _judge_log(trial, gateway, time.monotonic() - started)


async def _while_spoiled(trial: Trial, caller: Client, record: Path, how: str) -> None:
    before, count = executions(record, "big_line"), trial.size(quick=10, full=100)
    held = [asyncio.create_task(_held(caller, how, number)) for number in range(_HELD)]
    lost = [
        await caller.call("rogue_big_line", {"size": _SIZE}, key=f"{how} large {number}")
        for number in range(count)
    ]
    lost += [await caller.call("web_sse_big", {"size": _SIZE}) for _ in range(count)]
    kept = [*await asyncio.gather(*held), await caller.call("rogue_echo", {"text": "x"})]
    again = await caller.call("rogue_big_line", {"size": _SIZE}, key=f"{how} large 0")
    trial.measure(f"{how}: lost", ", ".join(sorted({answer.outcome for answer in lost})))
    trial.measure(f"{how}: others", f"{sum(answer.ok for answer in kept)} of {len(kept)} ok")
    trial.check(f"{how}: a typed error, done", all(answer.outcome == _LOST for answer in lost), lost[0].raw)
    trial.check(f"{how}: the reason is true", all(map(_is_true, lost)), lost[0].text)
    trial.check(f"{how}: other calls unharmed", all(answer.ok for answer in kept), [a.outcome for a in kept])
    trial.check(f"{how}: known as done", again.ok and "was carried out" in again.text, again.text)
    done = executions(record, "big_line") - before
    trial.check(f"{how}: executed once each", done == count, f"{done} of {count}")


async def _held(caller: Client, how: str, number: int) -> Answer:
    """A call that is under way meanwhile."""
    arguments = {"number": number, "together": _HELD + 1}
    return await caller.call("rogue_out_of_order", arguments, key=f"{how} held {number}")


def _is_true(answer: Answer) -> bool:
    reasons = ("No space left on device", "File too large", "Read-only file system", "File exists")
    return "could not be written to disk" in answer.text and any(one in answer.text for one in reasons)


def _judge_log(trial: Trial, gateway: AsyncGatewayProcess, seconds: float) -> None:
    told = [line for line in gateway.log_lines() if "large answers are lost" in line]
    allowed = 1 + int(seconds / _REPORT_SECONDS)
    trial.measure("log lines", len(told))
    trial.check("the operator reads of it, once a minute at most", 1 <= len(told) <= allowed, told)
    levels = {json.loads(line).get("level", "").lower() for line in told}
    trial.check("as an error", levels == {"error"}, levels)


@contextlib.contextmanager
def _spoiled(gateway: AsyncGatewayProcess, spool: Path, how: str) -> Iterator[str]:
    """A spool that is full or read-only: by a mount, or by other means where nothing may be mounted."""
    spool.mkdir(exist_ok=True)
    option = "ro" if how == "read-only" else f"size={_DISK_BYTES}"
    if _ran("mount", "-t", "tmpfs", "-o", option, "campaign", str(spool)):
        try:
            yield f"by a tmpfs ({option})"
        finally:
            _ran("umount", "-l", str(spool))
    elif how == "full":
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (_DISK_BYTES, resource.RLIM_INFINITY))
        try:
            yield "by a limit on the size of files"
        finally:
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    else:
        spool.rmdir()
        spool.write_text("")
        try:
            yield "by a file in its place"
        finally:
            spool.unlink()


def _ran(*command: str) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False
