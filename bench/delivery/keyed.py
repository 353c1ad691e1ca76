"""What a call costs that leaves a record, beside a plain one through the same gateway in the same round."""

import secrets
import sys
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from bench.delivery.ledger_gateway import KEPT, RESULT_BYTES, SERVER, TOOL, Tallied, gateway
from bench.listing.gateway_process import GatewayProcess
from bench.load.delivery_options import NUMBER, Ticket
from bench.load.generator import Generator
from bench.load.plan import Outcome, Plan
from bench.path.summary import Figure, spread

PLAIN: Final = "plain"
META: Final = "key in _meta"
HEADER: Final = "Idempotency-Key"
RMCP: Final = "rmcp, with a key"
RMCP_ONLY: Final = "rmcp, without a key"
ALL: Final = "ledger: all"
AGAIN: Final = "the same key again"
# Every call of these is recorded twice: before it is sent, and before its answer is shown.
RECORDED: Final = (META, HEADER, RMCP, ALL)
WAYS: Final = (PLAIN, META, HEADER, RMCP, RMCP_ONLY, ALL, AGAIN)
CONNECTIONS: Final = (1, 10, 100)
_ROUNDS: Final = 5
_SECONDS: Final = 0.6
_QUICK_SECONDS: Final = 0.2


class Keyed(msgspec.Struct, frozen=True, kw_only=True):
    """One way with so many calls at a time; ratios are to plain calls in the same round."""

    way: str
    connections: int
    rounds: int
    calls: int
    errors: int
    first_error: str
    p50_ms: Figure
    p99_ms: Figure
    calls_per_second: Figure
    cpu_us: Figure
    p50_ratio: Figure
    p99_ratio: Figure
    rate_ratio: Figure
    cpu_ratio: Figure
    # What is added to a plain call.
    added_p50_ms: Figure
    added_p99_ms: Figure
    # None of repeats: they look whether there is something to write, and write nothing.
    commits_per_call: Figure | None


class Sample(msgspec.Struct, frozen=True):
    """One way in one round."""

    outcome: Outcome
    commits_per_call: float


# All ways in one round.
Round = dict[str, Sample]


def keyed(load: Generator, *, quick: bool) -> list[Keyed]:
    """Every way with every number of calls at a time. Raises StartFailed."""
    rounds, seconds = (1, _QUICK_SECONDS) if quick else (_ROUNDS, _SECONDS)
    found: dict[int, list[Round]] = {connections: [] for connections in CONNECTIONS}
    with gateway({SERVER: {}, KEPT: {"ledger": "all"}}) as gateway_process:
        for turn in range(rounds):
            print(f"bench: delivery, recorded calls, round {turn + 1} of {rounds}", file=sys.stderr)
            for connections, own in found.items():
                own.append(_in_turn(load, gateway_process, connections, seconds, turn))
    return [summary(way, connections, own) for connections, own in found.items() for way in WAYS]


def _in_turn(
    load: Generator, gateway_process: GatewayProcess, connections: int, seconds: float, turn: int
) -> Round:
    shift = turn % len(WAYS)
    return {
        way: _measured(load, gateway_process, way, connections, seconds)
        for way in WAYS[shift:] + WAYS[:shift]
    }


def _measured(
    load: Generator, gateway_process: GatewayProcess, way: str, connections: int, seconds: float
) -> Sample:
    tallied = Tallied(gateway_process)
    outcome = load.run(
        Plan(
            tool=f"{KEPT if way == ALL else SERVER}_{TOOL}",
            result_bytes=RESULT_BYTES,
            lanes=connections,
            seconds=seconds,
            warm_up_seconds=0.1,
            port=gateway_process.port,
            pid=gateway_process.pid,
            delivery_request=_ticket(way),
        )
    )
    return Sample(outcome, tallied.commits_per_call())


def _ticket(way: str) -> Ticket:
    """Keys that were never used before, one for each call."""
    run = secrets.token_hex(6)
    # As long as a UUID, which most keys are.
    fresh = f"bench-{run}-{NUMBER}-{run[:9]}"
    tickets = {
        META: Ticket(way="meta", key=fresh),
        HEADER: Ticket(way="header", key=fresh),
        RMCP: Ticket(way="rmcp", key=fresh),
        RMCP_ONLY: Ticket(way="rmcp"),
        AGAIN: Ticket(way="meta", key=f"bench-{run}"),
    }
    return tickets.get(way, Ticket())


def summary(way: str, connections: int, rounds: Sequence[Round]) -> Keyed:
    """The figures of one way over the rounds."""

    def each(value: Callable[[Outcome], float]) -> Figure:
        return spread(value(one[way].outcome) for one in rounds)

    def ratio(value: Callable[[Outcome], float]) -> Figure:
        return spread(value(one[way].outcome) / (value(one[PLAIN].outcome) or 1.0) for one in rounds)

    def added(value: Callable[[Outcome], float]) -> Figure:
        return spread((value(one[way].outcome) - value(one[PLAIN].outcome)) * 1e3 for one in rounds)

    outcomes = [one[way].outcome for one in rounds]
    return Keyed(
        way=way,
        connections=connections,
        rounds=len(rounds),
        calls=sum(one.calls for one in outcomes),
        errors=sum(one.errors for one in outcomes),
        first_error=next((one.first_error for one in outcomes if one.first_error), ""),
        p50_ms=each(lambda one: one.p50 * 1e3),
        p99_ms=each(lambda one: one.p99 * 1e3),
        calls_per_second=each(lambda one: one.calls_per_second),
        cpu_us=each(lambda one: one.cpu_per_call * 1e6),
        p50_ratio=ratio(lambda one: one.p50),
        p99_ratio=ratio(lambda one: one.p99),
        rate_ratio=ratio(lambda one: one.calls_per_second),
        cpu_ratio=ratio(lambda one: one.cpu_per_call),
        added_p50_ms=added(lambda one: one.p50),
        added_p99_ms=added(lambda one: one.p99),
        commits_per_call=None if way == AGAIN else spread(one[way].commits_per_call for one in rounds),
    )
