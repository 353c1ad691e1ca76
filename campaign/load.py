"""Load: throughput by concurrency, overload, and one greedy agent among others (L01-L03)."""

import asyncio

import msgspec

from campaign.load_client import Job, Tally, generate, quantile
from campaign.trial import Trial, Usage, case
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.misbehaving_upstreams import load

_CONCURRENCY = (1, 10, 100, 500)
# 16 calls in flight for 40 ms each are 400 calls a second: twice that leaves the CPU idle most of the time,
# so that it is the limits that are measured, on a machine that does other work too.
_WINDOW, _QUEUE, _WORK_SECONDS = 16, 32, 0.04
_LIMITS = {"maxConcurrency": _WINDOW, "maxQueue": _QUEUE}
SHED_MILLISECONDS = 50.0
# One event loop serves all: with n calls at once the last waits for n. This is that, and room for noise.
_MICROSECONDS_EACH, _NOISE_MILLISECONDS = 1000, 50.0


@case(
    "L01",
    "echo with 1, 10, 100, 500 connections, 20 s (2 s) each",
    "no errors; CPU per call does not grow; p99 grows no faster than the number of calls at once",
    quick_seconds=40,
    full_seconds=180,
)
async def throughput(trial: Trial) -> None:
    """More clients make more calls until the CPU is used up, and after that each waits for its turn."""
    seconds = trial.size(quick=2, full=20)
    async with trial.gateway({"load": load()}, stall_seconds=1.0) as gateway:
        costs: dict[int, float] = {}
        for connections in _CONCURRENCY:
            usage = Usage(gateway)
            tally = await generate(_echo(gateway, connections, seconds))
            costs[connections] = usage.cpu_seconds / max(1, len(tally.served))
            trial.measure(f"c={connections}", _figures(tally, usage))
            trial.check(f"c={connections}: no errors", not tally.failed and not tally.shed, tally.errors[:2])
            bound = _NOISE_MILLISECONDS + connections * _MICROSECONDS_EACH / 1000
            p99 = tally.milliseconds(0.99)
            trial.check(f"c={connections}: p99 within {bound:g} ms", 0 < p99 <= bound, p99)
        growth = costs[500] / costs[10]
        trial.measure("CPU at 500 beside 10", growth, "x")
        # More calls at once share more of the work of a turn of the loop.
        trial.check("a call costs no more at 500", growth <= 1.5, costs)


def _echo(gateway: AsyncGatewayProcess, connections: int, seconds: float) -> Job:
    arguments: dict[str, str | float | int] = {"text": "load"}
    return Job(
        port=gateway.port, tool="load_echo", arguments=arguments, connections=connections, seconds=seconds,
        pids=_pids(gateway),
    )  # fmt: skip


def _pids(gateway: AsyncGatewayProcess) -> list[int]:
    return [gateway.pid, *procfs.descendants(gateway.pid)]


def _figures(tally: Tally, usage: Usage) -> str:
    calls = max(1, len(tally.served))
    return (
        f"{tally.rate:.0f}/s p50 {tally.milliseconds(0.5):.2f} p99 {tally.milliseconds(0.99):.2f} ms, "
        f"CPU {usage.cpu_seconds / calls * 1e6:.0f} us"
    )


def _work(gateway: AsyncGatewayProcess, connections: int, seconds: float, **more: float | str) -> Job:
    arguments: dict[str, str | float | int] = {"text": "load", "seconds": _WORK_SECONDS}
    job = Job(
        port=gateway.port, tool="load_work", arguments=arguments, connections=connections, seconds=seconds,
        pids=_pids(gateway),
    )  # fmt: skip
    return msgspec.structs.replace(job, **more)


@case(
    "L02",
    "twice the calls that a server can take, for 120 s (5 s), whatever is answered",
    "sheds within 50 ms with the time to come back; goodput at least 80 % of peak",
    quick_seconds=40,
    full_seconds=200,
)
async def overload(trial: Trial) -> None:
    """What is too much is refused at once, and what is admitted is served as before."""
    seconds = trial.size(quick=5, full=120)
    async with trial.gateway({"load": load(**_LIMITS)}) as gateway:
        # As many as fit without a refusal: the window, and half of the queue.
        peak = (await generate(_work(gateway, _WINDOW + _QUEUE // 2, min(seconds, 10)))).rate
        usage = Usage(gateway)
        tally = await generate(_work(gateway, 500, seconds, rate=2 * peak))
        offered = (len(tally.served) + len(tally.shed) + tally.failed) / tally.seconds
        shed99 = tally.shed_milliseconds(0.99)
        trial.measure("peak", peak, "/s")
        trial.measure("offered", offered, "/s")
        trial.measure("goodput", f"{tally.rate:.0f}/s, {tally.rate / peak:.2f} of peak")
        trial.measure("shed", f"{len(tally.shed)}, p99 {shed99:.1f} ms")
        trial.measure("admitted p99", tally.milliseconds(0.99), "ms")
        trial.measure("CPU", usage.cpu_share * 100, "% of a core")
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check("twice the peak was offered", offered >= 1.8 * peak, f"{offered:.0f} of {2 * peak:.0f}")
        trial.check("no other errors", not tally.failed, tally.errors[:2])
        trial.check("shed", len(tally.shed) >= 0.3 * offered * tally.seconds, len(tally.shed))
        trial.check("shed within 50 ms", 0 < shed99 <= SHED_MILLISECONDS, shed99)
        trial.check("each gets a time to come back", not tally.without_retry_after, tally.without_retry_after)
        trial.check(
            "goodput at least 80 % of peak", tally.rate >= 0.8 * peak, f"{tally.rate:.0f} of {peak:.0f}"
        )
        # A full queue before it, at the rate at which it empties, twice over for noise.
        bound = 2 * 1000 * (_WORK_SECONDS + (_QUEUE + _WINDOW) / peak)
        trial.check(f"admitted within {bound:.0f} ms", tally.milliseconds(0.99) <= bound)
        trial.check("RSS at most +64 MB", usage.peak_growth_mib <= 64, f"{usage.peak_growth_mib:.0f} MB")


@case(
    "L03",
    "20 agents that call now and then, and one with 200 calls at once, for 30 s (4 s)",
    "p99 of the 20 at most twice what it is without the other; none of them refused",
    quick_seconds=40,
    full_seconds=120,
)
async def greedy_agent(trial: Trial) -> None:
    """A client that asks for much waits for it, and others do not."""
    seconds = trial.size(quick=4, full=30)
    servers = {"load": load(maxConcurrency=_WINDOW, maxQueue=128)}
    async with trial.gateway(servers) as gateway:
        light = _work(gateway, 20, seconds, pause_seconds=0.2, sessions="each")
        alone = await generate(light)
        heavy = _work(gateway, 200, seconds + 1, sessions="one", pause_seconds=0.1)
        greedy = asyncio.create_task(generate(heavy))
        await asyncio.sleep(0.5)
        beside = await generate(light)
        other = await greedy
        before, after = alone.milliseconds(0.99), beside.milliseconds(0.99)
        fairness = jain(beside.per_connection)
        trial.measure("alone", f"p50 {alone.milliseconds(0.5):.1f} p99 {before:.1f} ms")
        trial.measure("beside", f"p50 {beside.milliseconds(0.5):.1f} p99 {after:.1f} ms")
        trial.measure("greedy", f"{len(other.served)} served, {len(other.shed)} refused")
        trial.measure("Jain of the 20", fairness)
        refused = len(beside.shed) + beside.failed
        trial.check("the 20 are all served", not refused, f"{refused} refused {beside.errors[:2]}")
        trial.check("the greedy one is served too", len(other.served) > 0 and not other.failed, other.errors)
        trial.check("it had to wait", quantile(other.served, 0.5) > 2 * beside.milliseconds(0.5))
        trial.check("p99 at most twice", 0 < after <= 2 * before, f"{after:.1f} of {before:.1f} ms")
        trial.check("Jain at least 0.95", fairness >= 0.95, fairness)


def jain(shares: list[int]) -> float:
    """1 where all have the same, 1/n where one has all."""
    squares = sum(one * one for one in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0
