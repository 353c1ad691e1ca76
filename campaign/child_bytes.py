"""Stdio upstreams whose bytes are too many, too slow, too deep, or not to be touched (F08-F10, F14-F17)."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign import stored_results
from campaign.bystander import bystander
from campaign.trial import MEBIBYTE, WHOLE, Trial, Usage, case
from campaign.upstream_stdio import AT_ONCE_SECONDS, recovery
from testkit import payload
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import misbehaving


@dataclass(slots=True)
class TextDigest:
    """Hashes the text of a result as it streams by, without keeping it."""

    size: int
    _start: bytes = b""
    _end: bytes = b""
    _left: int = -1
    _digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def take(self, piece: bytes) -> None:
        """Look at the next piece of the body."""
        if self._left < 0:
            self._start += piece
            mark = self._start.find(b'"text":"')
            if mark < 0:
                return
            piece, self._left = self._start[mark + 8 :], self.size
        self._digest.update(piece[: self._left])
        self._end += piece[self._left :]
        self._left = max(0, self._left - len(piece))

    @property
    def whole(self) -> bool:
        """Whether exactly the text that was sent went by."""
        right = self._digest.hexdigest() == payload.filler_digest(self.size)
        return right and self._left == 0 and self._end.startswith(b'"')


@case(
    "F08",
    "one line of 100 MiB, with and without a limit to what is shown",
    "<= 3 s CPU, RSS <= +64 MB; delivered whole, or stored and read back byte for byte; others unaffected",
    quick_seconds=60,
)
async def huge_line(trial: Trial) -> None:
    """A result of 100 MiB on one line is delivered byte for byte, or kept where it can be read so."""
    size = 100 * MEBIBYTE
    async with trial.gateway(_rogue(), settings=WHOLE) as gateway, client(gateway.port) as caller:
        text = TextDigest(size)
        answer = await _measured(trial, gateway, caller, size, "whole", text)
        trial.check("delivered whole", answer.status == 200 and text.whole, answer.status)
        trial.check("no spool file is left", not _spooled(gateway), _spooled(gateway))
    async with trial.gateway(stored_results.servers()) as gateway, client(gateway.port) as caller:
        excerpt = await _measured(trial, gateway, caller, size, "stored")
        trial.check("an excerpt within the limit", len(excerpt.text) <= 8_000, len(excerpt.text))
        usage, stored = Usage(gateway), stored_results.id_of(excerpt)
        async with bystander(trial, gateway, "steady_echo"):
            await _check_places(trial, gateway, caller, stored, size)
            await _check_search(trial, gateway, caller, stored, size)
        stored_results.check_memory(trial, usage)
        trial.check("it has no name in the file system", not _spooled(gateway), _spooled(gateway))
    if not trial.quick:
        await _check_pages(trial, size)


def _rogue() -> dict[str, Any]:
    return {"rogue": misbehaving(timeout=60)}


async def _measured(
    trial: Trial,
    gateway: AsyncGatewayProcess,
    caller: Client,
    size: int,
    label: str,
    text: TextDigest | None = None,
) -> Answer:
    """What the gateway itself needs for one call of that size."""
    await caller.call("rogue_echo", {"text": "warm"})
    usage = Usage(gateway)
    answer = await caller.call("rogue_big_line", {"size": size}, take=text.take if text else None)
    cpu, growth = usage.cpu_seconds, usage.peak_growth_mib
    trial.measure(label, f"{answer.seconds:.2f} s, CPU {cpu:.2f} s, RSS +{growth:.0f} MB")
    trial.check(f"{label}: at most 3 s CPU", cpu <= 3, f"{cpu:.2f} s")
    trial.check(f"{label}: RSS at most +64 MB", growth <= 64, f"{growth:.0f} MB")
    return answer


def _spooled(gateway: AsyncGatewayProcess) -> list[Path]:
    files = (path for path in gateway.log.parent.rglob("*") if path.is_file())
    return [path for path in files if path.stat().st_size > MEBIBYTE]


async def _check_places(
    trial: Trial, gateway: AsyncGatewayProcess, caller: Client, stored: str, size: int
) -> None:
    """Read a page here and there, the first and the last among them."""
    offsets = [*range(0, size, size // 8), size - 100, -8_000]
    wrong, slowest = [], 0.0
    for offset in offsets:
        arguments = {"cache_id": stored, "unit": "characters", "offset": offset}
        seconds, answer = await stored_results.timed(gateway, caller.call("proxy_read", arguments))
        slowest = max(slowest, seconds)
        start = offset if offset >= 0 else size + offset
        if answer.text.encode() != payload.filler_at(size, start, 8_000):
            wrong.append((offset, answer.raw[:200]))
    trial.measure("pages", f"{len(offsets)} right, {slowest:.2f} s at most")
    trial.check("every page is right", not wrong, wrong[:2])


async def _check_search(
    trial: Trial, gateway: AsyncGatewayProcess, caller: Client, stored: str, size: int
) -> None:
    """Find the number of the last block, once, in all of it."""
    number = f"{size // payload.BLOCK_BYTES - 1:016d}"
    seconds, answer = await stored_results.timed(gateway, stored_results.search(caller, stored, number))
    trial.measure("search", seconds, "s")
    trial.check("found in the one line", stored_results.matches(answer) == (1, False), answer.raw[:300])
    trial.check("the hit is shown", number in answer.text, answer.text[:100])


async def _check_pages(trial: Trial, size: int) -> None:
    """All pages together are the text; they are larger than agents would like, so that they are few."""
    settings = {"maxResponseSize": 16 * MEBIBYTE, "excerptSize": 2_000}
    async with trial.gateway(_rogue(), settings=settings) as gateway, client(gateway.port) as caller:
        stored = stored_results.id_of(await caller.call("rogue_big_line", {"size": size}))
        digest, count = hashlib.sha256(), 0
        async for page in stored_results.pages(caller, stored):
            digest.update(page.encode())
            count += 1
        same = digest.hexdigest() == payload.filler_digest(size)
        trial.measure("read back", f"{count} pages, {'the same' if same else 'another'} SHA-256")
        trial.check("read back byte for byte", same)


@case("F09", "1 GB without a newline", "cut at 256 MiB, RSS <= +64 MB, the child recycled", quick_seconds=60)
async def endless_line(trial: Trial) -> None:
    """A line that never ends is cut at the cap, and the child replaced."""
    size = trial.size(quick=384 * MEBIBYTE, full=1024 * MEBIBYTE)
    noted = trial.directory / "written"
    async with trial.gateway(_rogue()) as gateway, client(gateway.port) as caller:
        before = (await caller.call("rogue_pid")).text
        usage = Usage(gateway)
        answer = await caller.call("rogue_no_newline", {"size": size, "progress_file": str(noted)})
        growth, written = usage.peak_growth_mib, int(noted.read_text()) / MEBIBYTE
        trial.measure("cut after", answer.seconds, "s")
        trial.measure("read", written, "MiB")
        trial.measure("RSS", f"+{growth:.0f} MB")
        trial.measure("as", answer.outcome)
        trial.check("a typed error", answer.failure is not None, answer.outcome)
        trial.check("cut at 256 MiB", 250 <= written <= 260, f"{written:.0f} MiB")
        trial.check("RSS at most +64 MB", growth <= 64, f"{growth:.0f} MB")
        await recovery(trial, caller)
        trial.check("the child is another one", (await caller.call("rogue_pid")).text != before)
        trial.check("no spool file is left", not _spooled(gateway), _spooled(gateway))
        trial.check("nothing is stored of it", await stored_results.metric(gateway, "results_stored") == 0)


@case("F10", "answer drips, 1 byte per 10 ms", "ok, no busy loop; stored when it is too large")
async def dripping(trial: Trial) -> None:
    """A reply that arrives byte by byte costs next to nothing, and is a result like any other."""
    settings = {"maxResponseSize": 100}
    async with (
        trial.gateway({"rogue": misbehaving(timeout=20)}, settings=settings) as gateway,
        client(gateway.port) as caller,
    ):
        usage = Usage(gateway)
        answer = await caller.call("rogue_drip")
        share = usage.cpu_share
        trial.measure("took", answer.seconds, "s")
        trial.measure("CPU", share * 100, "% of a core, probes included")
        trial.check("answered", answer.text.startswith("drop by drop"), answer.outcome)
        trial.check("no busy loop", share < 0.25, f"{share:.2f}")
        read = "".join([page async for page in stored_results.pages(caller, stored_results.id_of(answer))])
        trial.check("read back whole", read == "drop by drop, for about two seconds " * 4, read)


async def _passes_or_fails_at_once(
    trial: Trial, caller: Client, label: str, tool: str, arguments: dict[str, int], exact: bytes
) -> None:
    answer = await caller.call(tool, arguments)
    passed = exact in answer.raw
    if not passed and stored_results.facts(answer):
        # Too large to be shown, so that it is read page by page.
        read = "".join([page async for page in stored_results.pages(caller, stored_results.id_of(answer))])
        passed = exact in read.encode()
    trial.measure(label, f"{answer.seconds:.3f} s {'byte for byte' if passed else answer.outcome}")
    trial.check(f"{label}: at once", answer.seconds < AT_ONCE_SECONDS, f"{answer.seconds:.2f} s")
    trial.check(f"{label}: passed byte for byte or a typed error", passed or answer.failure, answer.outcome)


@case(
    "F14",
    "depth 500 and 10^5, integer of 5,000 digits, lone surrogate",
    "answered at once, never by the timeout",
)
async def hard_to_parse(trial: Trial) -> None:
    """Results that break parsers pass untouched or fail at once, in both eras."""
    async with trial.gateway({"rogue": misbehaving(timeout=15)}) as gateway:
        for modern in (False, True):
            async with client(gateway.port, modern=modern) as caller:
                era = "new" if modern else "old"
                for levels in (500, 100_000):
                    await _passes_or_fails_at_once(
                        trial,
                        caller,
                        f"{era} depth {levels}",
                        "rogue_deep",
                        {"levels": levels},
                        payload.deep(levels),
                    )
                digits = payload.big_integer()
                await _passes_or_fails_at_once(trial, caller, f"{era} integer", "rogue_big_int", {}, digits)
                await _passes_or_fails_at_once(
                    trial, caller, f"{era} surrogate", "rogue_lone_surrogate", {}, b'"\\ud800"'
                )
                answer = await caller.call("rogue_echo", {"text": "back"})
                trial.check("the upstream still answers", answer.text == "back", answer.outcome)


@case("F15", "NaN and Infinity in a result", "rejected with a typed error, never changed")
async def not_numbers(trial: Trial) -> None:
    """Literals that JSON does not have are refused, not turned into null."""
    async with trial.gateway({"rogue": misbehaving(timeout=15)}) as gateway, client(gateway.port) as caller:
        for literal in ("NaN", "Infinity", "-Infinity"):
            answer = await caller.call("rogue_not_a_number", {"literal": literal})
            trial.measure(literal, f"{answer.outcome} {answer.seconds:.3f} s")
            trial.check(f"{literal}: a typed error", _code(answer) == "INVALID_MESSAGE", answer.outcome)
            trial.check(f"{literal}: at once", answer.seconds < AT_ONCE_SECONDS, f"{answer.seconds:.2f} s")
        await recovery(trial, caller)


def _code(answer: Answer) -> str:
    return answer.failure.code if answer.failure else ""


@case("F16", "2^64, 1.0 and 1, duplicate keys, odd spacing", "bytes preserved both ways: differences = 0")
async def numbers_untouched(trial: Trial) -> None:
    """Arguments and results keep their bytes, between clients of both eras and the upstream."""
    differences = 0
    async with trial.gateway({"rogue": misbehaving(timeout=15)}) as gateway:
        for modern in (False, True):
            async with client(gateway.port, modern=modern) as caller:
                result = await caller.call("rogue_big_numbers")
                echoed = await caller.call("rogue_echo_arguments", payload.NUMBERS)
                expected = b'"structuredContent":{"value":' + payload.NUMBERS + b"}"
                for way, answer in (("result", result), ("arguments", echoed)):
                    same = expected in answer.raw
                    differences += not same
                    trial.check(f"{way} identical ({'new' if modern else 'old'} era)", same, answer.raw[:300])
    trial.measure("differences", differences)


@case("F17", "stderr flood", "the pipe never blocks; memory and log bounded; others unaffected",
      quick_seconds=40, full_seconds=180)  # fmt: skip
async def stderr_flood(trial: Trial) -> None:
    """A child that writes 2 GB to stderr neither blocks nor fills the log."""
    size = trial.size(quick=128 * MEBIBYTE, full=2048 * MEBIBYTE)
    async with (
        trial.gateway({"rogue": misbehaving(timeout=120), "steady": misbehaving()}) as gateway,
        client(gateway.port) as caller,
    ):
        usage = Usage(gateway)
        async with bystander(trial, gateway, "steady_echo"):
            answer = await caller.call("rogue_stderr_flood", {"size": size})
        growth, kept = usage.peak_growth_mib, gateway.log.stat().st_size / MEBIBYTE
        trial.measure("flood", f"{size / MEBIBYTE:.0f} MB in {answer.seconds:.1f} s")
        trial.measure("kept", kept, "MB of log")
        trial.measure("RSS", f"+{growth:.0f} MB")
        trial.measure("CPU", usage.cpu_seconds, "s")
        trial.check("the call ends", answer.text == "flooded", answer.outcome)
        trial.check("the log keeps at most 16 MB", kept <= 16, f"{kept:.1f} MB")
        trial.check("RSS at most +32 MB", growth <= 32, f"{growth:.0f} MB")
