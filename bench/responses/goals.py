"""The goals of large results, from the contract and from the figures that its seed claimed."""

from collections.abc import Sequence
from typing import Final

from bench.responses.measured import Measured
from bench.responses.small_results import LIMITED
from bench.responses.speed import Timed, growth
from bench.retrieval.goals import Goal

_MS: Final = 100.0
_AT: Final = 3_000_000
_SMALL_MS: Final = 10.0
_SMALL_AT: Final = 300_000
_UNDER_SMALL: Final = ("filter", "regex")
# Ten times as much may take so much more: 10 to the power of this.
_EXPONENT: Final = 1.15
_NOISE: Final = 1.05


def goals(measured: Measured) -> list[Goal]:
    """Those that the figures at hand allow to judge."""
    return [*_claims(measured), *_times(measured.timed), *_growths(measured.timed), *_whole(measured)]


def _claims(measured: Measured) -> list[Goal]:
    found = []
    for talk in measured.talks:
        if talk.claimed is not None:
            text = f"{talk.workload}, {talk.way}: {talk.claimed:.1%} of tokens saved"
            found.append(Goal(text, f"{talk.saved:.1%}", round(talk.saved, 3) >= talk.claimed))
    return found


def _times(timed: Sequence[Timed]) -> list[Goal]:
    found = []
    large = [one for one in timed if one.size == _AT]
    if large:
        found.append(_under(f"every operation on 3 MB under {_MS:g} ms", large, _MS))
    small = [one for one in timed if one.size == _SMALL_AT and one.operation in _UNDER_SMALL]
    if large and small:
        found.append(_under(f"filter and regex on 300 KB under {_SMALL_MS:g} ms", small, _SMALL_MS))
    return found


def _under(text: str, timed: Sequence[Timed], most: float) -> Goal:
    over = [one for one in timed if one.ms >= most]
    named = sorted(over or [max(timed, key=lambda one: one.ms)], key=lambda one: -one.ms)
    said = ", ".join(f"{one.operation} of {one.kind} {one.ms:.0f} ms" for one in named)
    return Goal(text, said if over else f"at most {said}", not over)


def _growths(timed: Sequence[Timed]) -> list[Goal]:
    if max(one.size for one in timed) <= _AT:
        return []
    kinds = dict.fromkeys((one.operation, one.kind) for one in timed)
    exponents = {pair: growth(timed, *pair) for pair in kinds}
    over = {pair: value for pair, value in exponents.items() if value > _EXPONENT}
    steepest = over or dict([max(exponents.items(), key=lambda one: one[1])])
    said = ", ".join(f"{name} of {kind} {value:.2f}" for (name, kind), value in steepest.items())
    text = f"ten times as much takes about ten times as long (exponent at most {_EXPONENT:g})"
    return [Goal(text, said if over else f"at most {said}", not over)]


def _whole(measured: Measured) -> list[Goal]:
    ratios = {one.size: one.ratio for one in measured.passed if one.way == LIMITED}
    return [
        Goal(f"{size} shown whole: no more CPU than without a limit", f"x {ratio:.2f}", ratio <= _NOISE)
        for size, ratio in ratios.items()
    ]
