"""HTTP upstreams with the wrong answer: endless streams, bombs, redirects, statuses (F23, F25-F29)."""

import asyncio
from pathlib import Path

from campaign.child_bytes import TextDigest
from campaign.trial import MEBIBYTE, WHOLE, Trial, Usage, case
from testkit.clients.async_http import Answer, Client, client
from testkit.faults.tcp_proxy import Faults, fault_proxy
from testkit.misbehaving_upstreams import audited_http, misbehaving_http
from testkit.servers.audit_log import read
from testkit.waiting import eventually

# An idle connection or two to an upstream may be kept for the next call.
SPARE_FILES = 4


@case(
    "F23",
    "latency, jitter, 1 KB/s, slices, reset, end in mid-body",
    "slow is slow, broken is an error at once; what may be repeated is answered",
)
async def bad_network(trial: Trial) -> None:
    """Errors name what a bad network did to an answer."""
    delay = trial.size(quick=1, full=5)
    slow = {
        "latency": Faults(latency_seconds=delay / 2),
        "jitter": Faults(jitter_seconds=0.2),
        "1 KB/s": Faults(bytes_per_second=1000, slice_bytes=100),
        "slices": Faults(slice_bytes=3),
    }
    broken = {
        "reset": Faults(reset_after_bytes=20, slice_bytes=20),
        "cut": Faults(half_close_after_bytes=90, slice_bytes=90),
    }
    async with misbehaving_http(trial.directory) as upstream, fault_proxy(upstream.port) as proxy:
        entry = {"url": f"http://127.0.0.1:{proxy.port}/mcp", "transport": "streamable-http", "timeout": 20}
        async with (
            trial.gateway({"rogue": entry}, spare_files=SPARE_FILES) as gateway,
            client(gateway.port) as caller,
        ):
            for label, faults in (slow | broken).items():
                proxy.faults = faults
                answer = await caller.call("rogue_echo", {"text": "through"})
                trial.measure(label, f"{answer.outcome} {answer.seconds:.2f} s")
                right = (
                    answer.text == "through" if label in slow else answer.outcome == "NETWORK_ERROR/unknown"
                )
                trial.check(f"{label}: the error names it", right, answer.outcome)
                proxy.faults = Faults()
                again = await caller.call("rogue_echo", {"text": "through"})
                trial.check(f"well again after {label}", again.text == "through", again.outcome)
    await _broken_by_class(trial, broken)


async def _broken_by_class(trial: Trial, broken: dict[str, Faults]) -> None:
    """The same network, until a call arrives for the second time."""
    deeds = trial.directory / "deeds"
    async with audited_http(deeds) as upstream, fault_proxy(upstream.port) as proxy:
        entry = upstream.entry() | {"url": f"http://127.0.0.1:{proxy.port}/mcp"}
        async with (
            trial.gateway({"bank": entry}, spare_files=SPARE_FILES) as gateway,
            client(gateway.port) as caller,
        ):
            for label, faults in broken.items():
                for tool, sent in (("get", 2), ("put", 2), ("charge", 2), ("book", 1), ("pay", 1)):
                    ref = f"{label} {tool}"
                    proxy.faults = faults
                    call = asyncio.create_task(caller.call(f"bank_{tool}", {"ref": ref, "before": 0.3}))
                    await eventually(lambda: call.done() or _arrived(deeds, ref) == 2, 10, "its end")  # noqa: B023
                    proxy.faults = Faults()
                    answer, arrived = await call, _arrived(deeds, ref)
                    trial.measure(ref, f"{answer.outcome}, sent {arrived}")
                    right = answer.ok if sent == 2 else answer.outcome == "NETWORK_ERROR/unknown"
                    trial.check(f"{ref}: the outcome of its class", right, answer.outcome)
                    trial.check(f"{ref}: sent {sent}", arrived == sent, arrived)


def _arrived(deeds: Path, ref: str) -> int:
    return sum(line.event == "arrived" and line.ref == ref for line in read(deeds))


@case("F25", "SSE comments for ever", "the timeout fires; comments are no progress")
async def comments_only(trial: Trial) -> None:
    """A stream of comments is no answer, however long it goes on."""
    async with misbehaving_http(trial.directory) as upstream:
        servers = {"rogue": upstream.entry(timeout=3, maxTimeout=6)}
        async with trial.gateway(servers, spare_files=SPARE_FILES) as gateway, client(gateway.port) as caller:
            answer = await caller.call("rogue_sse_comments")
            trial.measure("cut after", answer.seconds, "s")
            trial.check("a timeout", answer.outcome == "TIMEOUT/unknown", answer.outcome)
            trial.check("between 3 and 7 s", 2.9 <= answer.seconds <= 7, f"{answer.seconds:.2f} s")


@case("F26", "SSE event of 20 MB", "accepted, delivered whole")
async def big_event(trial: Trial) -> None:
    """One event of 20 MB reaches the client byte for byte."""
    size = 20_000_000
    async with misbehaving_http(trial.directory) as upstream:
        servers = {"rogue": upstream.entry(timeout=30)}
        async with (
            trial.gateway(servers, settings=WHOLE, spare_files=SPARE_FILES) as gateway,
            client(gateway.port) as caller,
        ):
            await caller.call("rogue_echo", {"text": "warm"})
            usage, text = Usage(gateway), TextDigest(size)
            answer = await caller.call("rogue_sse_big", {"size": size}, take=text.take)
            trial.measure("took", answer.seconds, "s")
            trial.measure("CPU", usage.cpu_seconds, "s")
            trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
            trial.check("delivered whole", answer.status == 200 and text.whole, answer.status)
            trial.check("RSS at most +64 MB", usage.peak_growth_mib <= 64, f"{usage.peak_growth_mib:.0f} MB")


@case("F27", "gzip, br and zstd bombs, 1,000:1 and more", "cut, typed error, RSS <= +64 MB", quick_seconds=40)
async def bombs(trial: Trial) -> None:
    """A small body that grows to 512 MiB is cut, whatever its encoding."""
    async with misbehaving_http(trial.directory) as upstream:
        servers = {"rogue": upstream.entry(timeout=30)}
        async with trial.gateway(servers, spare_files=SPARE_FILES) as gateway, client(gateway.port) as caller:
            for encoding in ("gzip", "br", "zstd"):
                usage = Usage(gateway)
                answer = await caller.call("rogue_bomb", {"encoding": encoding, "size": 512 * MEBIBYTE})
                growth = usage.peak_growth_mib
                trial.measure(encoding, f"{answer.outcome} {answer.seconds:.2f} s +{growth:.0f} MB")
                trial.check(f"{encoding}: a typed error", answer.failure is not None, answer.outcome)
                trial.check(f"{encoding}: RSS at most +64 MB", growth <= 64, f"{growth:.0f} MB")
                trial.check(f"{encoding}: within 5 s", answer.seconds < 5, f"{answer.seconds:.2f} s")
                again = await caller.call("rogue_echo", {"text": "well"})
                trial.check(f"well again after {encoding}", again.text == "well", again.outcome)
        asked = {request["headers"].get("accept-encoding", "none") for request in upstream.received()}
        trial.measure("accept-encoding sent", ", ".join(sorted(asked)))


@case("F28", "redirects to another origin", "not followed; credentials leaked = 0")
async def redirects(trial: Trial) -> None:
    """Neither the call nor a credential goes where a redirect points."""
    async with (
        misbehaving_http(trial.directory) as upstream,
        misbehaving_http(trial.directory, "other") as other,
    ):
        servers = {"rogue": upstream.entry(timeout=5, headers={"Authorization": "Bearer upstream-canary"})}
        async with trial.gateway(servers, spare_files=SPARE_FILES) as gateway, client(gateway.port) as caller:
            for status in (301, 302, 303, 307, 308):
                answer = await _call_with_credential(caller, status, other.url)
                trial.check(f"{status}: a typed error", answer.failure is not None, answer.outcome)
                trial.check(f"{status}: at once", answer.seconds < 1, f"{answer.seconds:.2f} s")
                again = await caller.call("rogue_echo", {"text": "well"})
                trial.check(f"well again after {status}", again.text == "well", again.outcome)
        leaked = other.received()
        trial.measure("requests at the other origin", len(leaked))
        trial.measure("as", answer.outcome)
        trial.check("nothing reached the other origin", not leaked, leaked[:1])
        arrived = str(upstream.received())
        trial.check("our own credential is sent", "upstream-canary" in arrived)
        trial.check("the client's credential is not", "client-canary" not in arrived)


async def _call_with_credential(caller: Client, status: int, location: str) -> Answer:
    request = caller.call_request("rogue_redirect", {"status": status, "location": location})
    return await caller.exchange(request.replace(b"\r\n", b"\r\nAuthorization: Bearer client-canary\r\n", 1))


# Label, tool, arguments, the codes that fit, the effect that is true.
_STATUSES: tuple[tuple[str, str, dict[str, int], tuple[str, ...], str], ...] = (
    ("401", "status", {"code": 401}, ("AUTH_INVALID", "AUTH_REQUIRED"), "none"),
    ("403", "status", {"code": 403}, ("AUTH_INVALID", "FORBIDDEN"), "none"),
    ("500", "status", {"code": 500}, ("NETWORK_ERROR", "INVALID_MESSAGE", "TEMPORARY_FAILURE"), "unknown"),
    ("502", "status", {"code": 502}, ("NETWORK_ERROR", "INVALID_MESSAGE", "TEMPORARY_FAILURE"), "unknown"),
    ("503", "status", {"code": 503}, ("NETWORK_ERROR", "INVALID_MESSAGE", "TEMPORARY_FAILURE"), "unknown"),
    ("504", "status", {"code": 504}, ("NETWORK_ERROR", "TIMEOUT", "TEMPORARY_FAILURE"), "unknown"),
    ("html", "html", {}, ("INVALID_MESSAGE",), "unknown"),
    ("204", "no_content", {}, ("INVALID_MESSAGE",), "unknown"),
    ("429", "status", {"code": 429, "retry_after": 7}, ("RATE_LIMIT",), "none"),
)


@case(
    "F29",
    "401, 403, 429, 5xx, HTML, 204, forgotten session",
    "mapped; sent once; Retry-After obeyed, or told where it is long; session renewed",
)
async def statuses(trial: Trial) -> None:
    """Each refusal of an HTTP upstream becomes the error that says what to do."""
    async with misbehaving_http(trial.directory) as upstream:
        servers = {"rogue": upstream.entry(timeout=5)}
        async with trial.gateway(servers, spare_files=SPARE_FILES) as gateway, client(gateway.port) as caller:
            await caller.call("rogue_forget_sessions")
            renewed = await caller.call("rogue_echo", {"text": "renewed"})
            trial.measure("session", renewed.outcome)
            trial.check("a forgotten session is renewed", renewed.text == "renewed", renewed.outcome)
            for label, tool, arguments, codes, effect in _STATUSES:
                # A success between them, so that the breaker stays closed.
                await caller.call("rogue_echo", {"text": "well"})
                before = upstream.calls()
                answer = await caller.call(f"rogue_{tool}", dict(arguments))
                failure = answer.failure
                trial.measure(label, answer.outcome)
                trial.check(f"{label}: mapped", failure and failure.code in codes, answer.outcome)
                trial.check(f"{label}: effect {effect}", failure and failure.effect == effect, answer.outcome)
                trial.check(f"{label}: sent once", upstream.calls() - before == 1, upstream.calls() - before)
            wait = failure.retry_after_seconds if failure else None
            trial.measure("Retry-After 7", f"told as {wait}")
            trial.check("Retry-After is passed on", wait is not None and 6 <= wait <= 8, wait)
            before = upstream.calls()
            answer = await caller.call("rogue_status", {"code": 429, "retry_after": 1})
            sent = upstream.calls() - before
            trial.measure("Retry-After 1", f"{answer.outcome}, sent {sent} times in {answer.seconds:.1f} s")
            # Nothing happened, so that it may be sent again whatever it does: three times in all.
            trial.check(
                "Retry-After 1 is obeyed", sent == 3 and answer.seconds >= 2, f"{sent}, {answer.seconds}"
            )
