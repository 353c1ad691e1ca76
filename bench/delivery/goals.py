"""The goals of delivery, from the contract and from the figures that its seed claimed."""

from typing import Final

from bench.delivery.keyed import RECORDED
from bench.delivery.library import BARE, HTTP, MEMORY, Wrapped
from bench.delivery.measured import Measured
from bench.delivery.plain import AGAIN, NOW, Beside
from bench.retrieval.goals import Goal

_MS: Final = 1.0
_LEAST_BYTES: Final = 200
_MOST_BYTES: Final = 500
_SESSION_BYTES: Final = 1024
# Two starts with the same ledger differ by as much.
_START_NOISE: Final = 1.1
_COMMITS: Final = 0.5
_MANY: Final = 100


def goals(measured: Measured) -> list[Goal]:
    """Those that the figures at hand allow to judge."""
    return [
        *_errors(measured),
        *_plain(measured),
        *_keyed(measured),
        *_recovery(measured),
        *_library(measured),
    ]


def _errors(measured: Measured) -> list[Goal]:
    counted = [(one.errors, one.calls) for one in measured.plain]
    counted += [(one.errors, one.calls) for one in measured.keyed]
    wrong, calls = (sum(numbers) for numbers in zip(*counted, strict=True))
    return [Goal("every call answered rightly", f"{wrong:,} of {calls:,} not", not wrong)]


def _plain(measured: Measured) -> list[Goal]:
    """Noise is how far two processes with the same code lie from each other."""
    found = []
    again = {(one.era, one.connections): one for one in measured.plain if one.code == AGAIN}
    for one in measured.plain:
        if one.code == NOW:
            other = again[one.era, one.connections]
            who = f"{one.era} client, {one.connections} connection{'s' if one.connections > 1 else ''}"
            found.append(_within("CPU", who, one, other))
            found.append(_within("p50", who, one, other))
    return found


def _within(what: str, who: str, now: Beside, again: Beside) -> Goal:
    ours, noise = (now.cpu_ratio, again.cpu_ratio) if what == "CPU" else (now.p50_ratio, again.p50_ratio)
    said = f"x {ours.median:.3f}; the same code twice: {noise.low:.3f} to {noise.high:.3f}"
    # The same code may by chance have come out below itself each time.
    text = f"a plain call within the noise of the code before: {what}, {who}"
    return Goal(text, said, ours.median <= max(noise.high, 1.0))


def _keyed(measured: Measured) -> list[Goal]:
    found = []
    alone = [one for one in measured.keyed if one.way in RECORDED and one.connections == 1]
    slowest = max(alone, key=lambda one: one.added_p50_ms.median)
    text = f"a record adds under {_MS:g} ms to a call (p50, one connection)"
    disk = f"two writes to this disk take {2 * measured.disk.p50_ms:.2f} ms"
    said = f"{slowest.added_p50_ms.median:.2f} ms ({slowest.way}); {disk}"
    found.append(Goal(text, said, slowest.added_p50_ms.median < _MS))
    for one in measured.keyed:
        if one.way in RECORDED and one.connections == _MANY and one.commits_per_call is not None:
            text = f"{one.way}: at {_MANY} connections at most {_COMMITS:g} commits per call, of two records"
            commits = one.commits_per_call.median
            found.append(Goal(text, f"{commits:.2f}", commits <= _COMMITS))
    return found


def _recovery(measured: Measured) -> list[Goal]:
    empty, full = measured.recovered
    late = full.ready_seconds.median / empty.ready_seconds.median
    known = full.answered + full.in_doubt
    return [
        Goal(
            f"{full.rows:,} rows: ready no later than with none (x {_START_NOISE:g} at most)",
            f"x {late:.2f}",
            late <= _START_NOISE,
        ),
        Goal(
            f"every call that was under way made again or in doubt, none of {full.rows:,} rows lost",
            f"{known:,} of {full.open:,}, {full.settled_seconds.median:.2f} s after the start",
            known == full.open,
        ),
    ]


def _library(measured: Measured) -> list[Goal]:
    calls = [one for one in measured.library.calls if one.way != BARE]
    near = max((one for one in calls if one.peer == MEMORY), key=_added)
    far = [one for one in calls if one.peer == HTTP]
    (bare,) = [one for one in measured.library.calls if one.way == BARE and one.peer == HTTP]
    more = [one.request_bytes - bare.request_bytes for one in far]
    weight = measured.library.weight.session
    return [
        Goal(
            f"under {_MS:g} ms per call for the library (CPU, a server in the same process)",
            f"{_added(near):.2f} ms ({near.way})",
            _added(near) < _MS,
        ),
        Goal(
            f"{_LEAST_BYTES} to {_MOST_BYTES} bytes of metadata per request",
            " and ".join(f"{bytes_:,} {one.way}" for bytes_, one in zip(more, far, strict=True)),
            max(more) <= _MOST_BYTES,
        ),
        Goal("about 1 KB of memory per session", f"{weight:,} bytes", weight <= _SESSION_BYTES),
    ]


def _added(one: Wrapped) -> float:
    """Milliseconds of CPU."""
    return one.added_cpu_us.median / 1e3
