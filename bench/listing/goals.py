"""The goals of a listing, from the contract and from the figures that its seed claimed."""

from collections.abc import Sequence
from typing import Final

from bench.listing.catalogs import SECOND_MODE, SMALL
from bench.listing.measured import Measured
from bench.listing.slim_search import Compared, lost_on_average
from bench.listing.tokens import ALL, DEFAULT_BUDGET, budget_name, sums
from bench.retrieval.goals import Goal
from bench.retrieval.semantic import BOTH, WORDS
from headgate.domain.listing_mode import ListingMode

_SLIM: Final = 0.20
_LEAST: Final = 0.02
_LOST: Final = 0.02
_LIST_MS: Final = 200.0
_EXPAND_MS: Final = 10.0


def goals(measured: Measured) -> list[Goal]:
    """Those that the figures at hand allow to judge."""
    return [
        *_shares(measured),
        *_fits(measured),
        *_reach(measured),
        *_slim_texts(measured.compared),
        *_times(measured),
        *_counter(measured),
    ]


def _shares(measured: Measured) -> list[Goal]:
    if len(measured.alone) <= len(SMALL):
        # The goals are about many servers.
        return []
    together = {one.mode: one for one in measured.listed if one.servers == ALL}
    budget = budget_name(DEFAULT_BUDGET)
    found = []
    for mode, most in ((ListingMode.SLIM.value, _SLIM), (ListingMode.SEARCH.value, _LEAST), (budget, _LEAST)):
        share = together[mode].share
        found.append(Goal(f"{mode}: at most {most:.0%} of full, all servers", f"{share:.2%}", share <= most))
    alone = sums([one for one in measured.alone if one.server != SECOND_MODE])
    share = alone[ListingMode.SLIM] / alone[ListingMode.FULL]
    text = f"slim: at most {_SLIM:.0%} of full, the total of servers alone"
    return [*found, Goal(text, f"{share:.2%}", share <= _SLIM)]


def _fits(measured: Measured) -> list[Goal]:
    over = [
        one
        for one in measured.listed
        if one.mode.startswith("budget ") and one.tokens > int(one.mode.split()[1].replace(",", ""))
    ]
    alone = [one for one in measured.alone if one.tokens[ListingMode.BUDGET] > DEFAULT_BUDGET]
    judged = sum(one.mode.startswith("budget ") for one in measured.listed) + len(measured.alone)
    text = "budget: never more tokens than its number"
    return [Goal(text, f"{len(over) + len(alone)} of {judged:,} listings over it", not over and not alone)]


def _reach(measured: Measured) -> list[Goal]:
    if not measured.reached:
        return []
    least = min(one.reached / one.called for one in measured.reached)
    calls = sum(one.called for one in measured.reached)
    text = "every tool can be called in every mode"
    return [Goal(text, f"{least:.2%} of {calls:,} calls", least == 1.0)]


def _slim_texts(compared: Sequence[Compared]) -> list[Goal]:
    found = []
    for way in (WORDS, BOTH):
        own = [one for one in compared if one.way == way]
        if own:
            lost = lost_on_average(own, way)
            text = f"{way}: R@5 over slim texts within 2 points of full texts, mean of sets"
            found.append(Goal(text, f"{lost * 100:.1f} points lost", lost <= _LOST))
            worst = max(own, key=lambda one: one.lost)
            over = sum(one.lost > _LOST for one in own)
            text = f"{way}: the same on every single set"
            said = f"{over} of {len(own)} lose more, {worst.labelled} {worst.lost * 100:.1f} points"
            found.append(Goal(text, said, not over))
    return found


def _times(measured: Measured) -> list[Goal]:
    found = []
    if measured.timed:
        slowest = max(measured.timed, key=lambda one: one.p95_ms)
        text = f"tools/list under {_LIST_MS:g} ms in every mode, a prepared page (p95)"
        said = f"{slowest.p95_ms:.1f} ms ({slowest.mode}, {slowest.tools:,} tools)"
        found.append(Goal(text, said, slowest.p95_ms < _LIST_MS))
        late = max(measured.timed, key=lambda one: one.first_ms)
        text = f"tools/list under {_LIST_MS:g} ms in every mode when it is made for the first time, all pages"
        said = f"{late.first_ms:,.0f} ms ({late.mode}, {late.tools:,} tools)"
        found.append(Goal(text, said, late.first_ms < _LIST_MS))
    if measured.sized:
        slow = max(measured.sized, key=lambda one: one.expand_p95_ms)
        text = f"expandSchema under {_EXPAND_MS:g} ms (p95)"
        said = f"{slow.expand_p95_ms:.2f} ms ({slow.tools:,} tools)"
        found.append(Goal(text, said, slow.expand_p95_ms < _EXPAND_MS))
    return found


def _counter(measured: Measured) -> list[Goal]:
    counted = measured.counted
    if counted is None:
        return []
    text = f"tokens counted as {counted.reference} counts them"
    return [Goal(text, f"{counted.different} of {counted.texts:,} texts differ", not counted.different)]
