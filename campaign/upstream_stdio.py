"""Stdio upstreams that die, hang, or answer what was not asked (F01-F07, F11-F13)."""

import asyncio
import os
import signal
import time
from functools import partial
from pathlib import Path

from campaign.bystander import bystander
from campaign.trial import Trial, case
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import audited, misbehaving
from testkit.servers.audit_log import AuditRecord, read
from testkit.servers.misbehaving_tools import NOISE_LINES
from testkit.waiting import eventually

AT_ONCE_SECONDS = 1.0
BACK_SECONDS = 2.0


def executions(record: Path, tool: str) -> int:
    """How often the upstream really executed a tool."""
    return sum(line.startswith(f"call {tool} ") for line in record.read_text().splitlines())


async def echoes(caller: Client, tool: str = "rogue_echo") -> bool:
    """Whether the upstream answers."""
    return (await caller.call(tool, {"text": "back"})).text == "back"


async def recovery(trial: Trial, caller: Client, limit: float = BACK_SECONDS) -> None:
    """Measure how long the upstream takes to answer again."""
    try:
        seconds = await eventually(lambda: echoes(caller), limit + 10, "the upstream to answer again")
    except TimeoutError as error:
        trial.check(str(error), False)
        return
    trial.measure("back after", seconds, "s")
    trial.check(f"answers again within {limit:g} s", seconds <= limit, f"{seconds:.2f} s")


def check_lost(trial: Trial, answer: Answer, codes: tuple[str, ...] = ("NETWORK_ERROR",)) -> None:
    """A call that was cut off ends at once, as one that may have happened."""
    trial.measure("error after", answer.seconds, "s")
    trial.measure("as", answer.outcome)
    trial.check("error within 1 s", answer.seconds < AT_ONCE_SECONDS, f"{answer.seconds:.2f} s")
    failure = answer.failure
    trial.check("a typed error", failure is not None and failure.code in codes, answer.outcome)
    trial.check("effect unknown", failure is not None and failure.effect == "unknown", answer.outcome)


def _of_a_call(deeds: Path, ref: str, event: str = "arrived") -> list[AuditRecord]:
    return [line for line in read(deeds) if line.event == event and line.ref == ref]


async def by_class(
    trial: Trial, gateway: AsyncGatewayProcess, caller: Client, deeds: Path, fault: str = ""
) -> None:
    """Calls of three classes lose their child: by a fault of its own, or killed. Only one is not repeated."""
    for tool, ok in (("get", True), ("put", True), ("pay", False)):
        await gateway.wait_ready(["bank"])
        # Long enough to be killed amid it, also where it is made again.
        arguments = {"ref": tool, "before": 0.3, **({"fault": fault} if fault else {})}
        call = asyncio.create_task(caller.call(f"bank_{tool}", arguments))
        await eventually(partial(_of_a_call, deeds, tool), 5, "the call to arrive")
        if not fault:
            os.kill(_of_a_call(deeds, tool)[0].pid, signal.SIGKILL)
        answer = await call
        sent = len(_of_a_call(deeds, tool))
        trial.measure(tool, f"{answer.outcome}, sent {sent}")
        right = answer.ok and sent == 2 if ok else answer.outcome == "NETWORK_ERROR/unknown" and sent == 1
        trial.check(f"{tool}: the outcome of its class", right, f"{answer.outcome}, sent {sent}")


@case(
    "F01",
    "kill -9 of the child in mid-call",
    "error < 1 s, effect unknown, sent once; what may be repeated is answered; back within 2 s",
)
async def killed_child(trial: Trial) -> None:
    """The child is killed while a call is under way."""
    record, deeds = trial.directory / "record", trial.directory / "deeds"
    servers = {"rogue": misbehaving("--record", str(record)), "bank": audited(deeds)}
    async with trial.gateway(servers) as gateway, client(gateway.port) as caller:
        await by_class(trial, gateway, caller, deeds)
        child = int((await caller.call("rogue_pid")).text)
        call = asyncio.create_task(caller.call("rogue_never_answer"))
        await eventually(lambda: executions(record, "never_answer"), 5, "the call to arrive")
        killed = time.monotonic()
        os.kill(child, signal.SIGKILL)
        answer = await call
        trial.check("the error follows the kill", time.monotonic() - killed < AT_ONCE_SECONDS)
        check_lost(trial, answer)
        await recovery(trial, caller)
        trial.check("not sent again", executions(record, "never_answer") == 1)
        trial.check("the restart is counted", (await gateway.servers())["rogue"].get("restarts", 0) >= 1)


@case("F02", "SIGSTOP of the child", "timeout, then breaker open or child recycled; others unaffected",
      quick_seconds=40, full_seconds=180)  # fmt: skip
async def stopped_child(trial: Trial) -> None:
    """The child is stopped; calls to it time out until the breaker answers for it."""
    async with (
        trial.gateway({"rogue": misbehaving(timeout=1), "steady": misbehaving()}) as gateway,
        client(gateway.port) as caller,
    ):
        child = int((await caller.call("rogue_pid")).text)
        async with bystander(trial, gateway, "steady_echo"):
            stopped = time.monotonic()
            os.kill(child, signal.SIGSTOP)
            await _until_refused(trial, caller)
            trial.measure("refused or replaced after", time.monotonic() - stopped, "s")
            left = trial.size(quick=8, full=60) - (time.monotonic() - stopped)
            await asyncio.sleep(max(0.0, left))
        if procfs.alive(child):
            os.kill(child, signal.SIGCONT)
        if not trial.quick:
            await recovery(trial, caller, limit=60)


async def _until_refused(trial: Trial, caller: Client) -> None:
    timeouts = 0
    while timeouts < 10:
        answer = await caller.call("rogue_echo", {"text": "back"})
        if not (answer.failure and answer.failure.code == "TIMEOUT"):
            break
        timeouts += 1
        trial.check("the timeout of 1 s fires", 0.9 <= answer.seconds < 2, f"{answer.seconds:.2f} s")
    trial.measure("timeouts before", timeouts)
    trial.check("at least one timeout, at most 5", 1 <= timeouts <= 5, timeouts)
    failure = answer.failure
    refused = failure is not None and failure.code == "TEMPORARY_FAILURE" and failure.retry_after_seconds
    trial.measure("then", answer.outcome)
    trial.check("then refused with a time, or answered anew", refused or answer.ok, answer.outcome)
    trial.check("and that at once", answer.seconds < AT_ONCE_SECONDS or answer.ok, f"{answer.seconds:.2f} s")


@case(
    "F03",
    "never answers, no client timeout",
    "the gateway's timeout fires; the maximum fires despite progress",
)
async def no_answer(trial: Trial) -> None:
    """A silent tool is cut at the timeout, one that only reports progress at the maximum."""
    servers = {"rogue": misbehaving(timeout=2, maxTimeout=5)}
    async with trial.gateway(servers) as gateway, client(gateway.port) as caller:
        silent, chatty = await asyncio.gather(
            caller.call("rogue_never_answer"), caller.call("rogue_progress_forever", progress=True)
        )
        trial.measure("silent", silent.seconds, "s")
        trial.measure("with progress", chatty.seconds, "s")
        for answer, low in ((silent, 2.0), (chatty, 5.0)):
            trial.check("a timeout", answer.outcome == "TIMEOUT/unknown", answer.outcome)
            trial.check(f"after {low:g} s", low - 0.1 <= answer.seconds < low + 1, f"{answer.seconds:.2f} s")
        trial.check("progress reached the client", len(chatty.events) > 5, len(chatty.events))
        trial.check("the upstream still answers", await echoes(caller))


@case("F04", "stdout closed, the child stays alive", "noticed within 1 s; the child is reaped, no zombie")
async def half_closed(trial: Trial) -> None:
    """The child closes its stdout and goes on living."""
    async with trial.gateway({"rogue": misbehaving(timeout=8)}) as gateway, client(gateway.port) as caller:
        child = int((await caller.call("rogue_pid")).text)
        check_lost(trial, await caller.call("rogue_close_stdout"))
        await recovery(trial, caller, limit=5)
        gone = await eventually(lambda: not procfs.alive(child), 10, "the child to be gone")
        trial.measure("child gone after", gone, "s")
        zombies = [pid for pid in _all_children(gateway) if procfs.zombie(pid)]
        trial.measure("zombies", len(zombies))
        trial.check("no zombie", not zombies and not procfs.zombie(child), zombies)


def _all_children(gateway: AsyncGatewayProcess) -> set[int]:
    return {
        int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _parent(int(entry)) == gateway.pid
    }


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@case(
    "F05",
    "exit in mid-line",
    "error < 1 s, effect unknown; what may be repeated is answered; back within 2 s",
)
async def exit_in_mid_line(trial: Trial) -> None:
    """The child exits after half of its answer."""
    deeds = trial.directory / "deeds"
    servers = {"rogue": misbehaving(timeout=20), "bank": audited(deeds, timeout=20)}
    async with trial.gateway(servers) as gateway, client(gateway.port) as caller:
        await by_class(trial, gateway, caller, deeds, "half")
        check_lost(trial, await caller.call("rogue_exit_mid_line"), ("NETWORK_ERROR", "INVALID_MESSAGE"))
        await recovery(trial, caller)


@case("F06", "log noise, colours, blank lines, JSON that is no message", "ignored and counted")
async def noisy(trial: Trial) -> None:
    """Noise around the answer does not touch it."""
    async with trial.gateway({"rogue": misbehaving(timeout=5)}) as gateway, client(gateway.port) as caller:
        answer = await caller.call("rogue_noise")
        trial.check("the answer comes through", answer.text == "through the noise", answer.outcome)
        again = await caller.call("rogue_noise")
        trial.check("and the next one", again.text == "through the noise", again.outcome)
        expected = 2 * 2 * sum(bool(line.strip()) for line in NOISE_LINES)
        counted = (await gateway.servers())["rogue"].get("ignored_messages", 0)
        trial.measure("counted", f"{counted} of {expected} noise lines")
        trial.check("every line with text is counted", counted >= expected, counted)


@case("F07", "invalid UTF-8 on stdout", "the call fails at once as INVALID_MESSAGE; the next one works")
async def invalid_utf8(trial: Trial) -> None:
    """One invalid byte fails one call, not the connection."""
    async with trial.gateway({"rogue": misbehaving(timeout=20)}) as gateway, client(gateway.port) as caller:
        answer = await caller.call("rogue_invalid_utf8")
        check_lost(trial, answer, ("INVALID_MESSAGE",))
        await recovery(trial, caller)


@case(
    "F11",
    "unknown id, duplicate reply, reply after cancel",
    "ignored and counted; the cancel arrives within 1 s",
)
async def unasked_replies(trial: Trial) -> None:
    """Replies without a waiting request reach no client."""
    record = trial.directory / "record"
    servers = {"rogue": misbehaving("--record", str(record), timeout=20)}
    async with trial.gateway(servers) as gateway, client(gateway.port, modern=True) as caller:
        unknown = await caller.call("rogue_unknown_id")
        trial.check("unknown ids are ignored", unknown.text == "the one that was asked for", unknown.outcome)
        twice = await caller.call("rogue_duplicate_reply")
        trial.check("the first reply wins", twice.text == "first", twice.text)
        abandoned = asyncio.create_task(caller.call("rogue_reply_after_cancel"))
        await eventually(lambda: executions(record, "reply_after_cancel"), 5, "the call to arrive")
        # Closing the response is how a client of this era cancels.
        abandoned.cancel()
        seconds = await eventually(lambda: "\ncancelled " in record.read_text(), 5, "the cancellation")
        trial.measure("cancelled upstream after", seconds, "s")
        trial.check("cancelled within 1 s", seconds <= 1, f"{seconds:.2f} s")
        answers = [await caller.call("rogue_echo", {"text": str(number)}) for number in range(20)]
        trial.check("later answers are right", [a.text for a in answers] == [str(n) for n in range(20)])
        counted = (await gateway.servers())["rogue"].get("ignored_messages", 0)
        trial.measure("counted", counted)
        trial.check("at least the 3 stray replies are counted", counted >= 3, counted)


@case("F12", "replies out of order, 500 in flight", "every answer reaches its own call: mismatches = 0")
async def out_of_order(trial: Trial) -> None:
    """500 calls of 20 clients are answered in random order."""
    rounds, clients, each = trial.size(quick=2, full=20), 20, 25

    async def ask(caller: Client, number: int) -> tuple[int, Answer]:
        arguments = {"number": number, "together": clients * each}
        return number, await caller.call("rogue_out_of_order", arguments)

    async with trial.gateway({"rogue": misbehaving(timeout=20)}) as gateway:
        callers = [Client(gateway.port, modern=index % 2 == 0) for index in range(clients)]
        await asyncio.gather(*(caller.open() for caller in callers))
        wrong, most = 0, 0
        for _ in range(rounds):
            asked = (ask(callers[number % clients], number) for number in range(clients * each))
            for number, answer in await asyncio.gather(*asked):
                words = answer.text.split()
                wrong += words[:2] != ["number", str(number)]
                most = max(most, int(words[3]) if len(words) == 4 else 0)
        for caller in callers:
            caller.close()
        trial.measure("mismatches", wrong)
        trial.measure("in flight upstream", f"{most} at most")
        trial.check("no mismatch", wrong == 0, wrong)
        trial.check("many were in flight", most >= 100, most)


@case("F13", "batch array as reply, error with a null id", "answered at once, never by the timeout")
async def odd_envelopes(trial: Trial) -> None:
    """Envelopes that a handshake-era server may not send end the call they were meant for."""
    async with trial.gateway({"rogue": misbehaving(timeout=15)}) as gateway, client(gateway.port) as caller:
        for tool in ("batch_reply", "null_id_error"):
            answer = await caller.call(f"rogue_{tool}")
            trial.measure(tool, f"{answer.seconds:.3f} s {answer.outcome}")
            trial.check(f"{tool}: at once", answer.seconds < AT_ONCE_SECONDS, f"{answer.seconds:.2f} s")
            right = answer.failure or answer.rpc_error or answer.text == "in a batch"
            trial.check(f"{tool}: a typed error or the answer itself", right, answer.outcome)
            await recovery(trial, caller)
