"""Fits a tool listing into a number of tokens: the most used tools in full, others reduced, the rest left
to search.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from headgate.catalog.public_names import OWN_NAMES

NamedDefinition = tuple[str, bytes]

# Tools that are called often get so much of the room in full; the others want to be seen too.
_MOST_USED_SHARE: Final = 0.5
# The gateway's own tools are said in full only where they leave half of it to others.
_OWN_SHARE: Final = 0.5
# So much of it is kept for those that read large results: without them nobody gets at the rest of one.
_READERS_SHARE: Final = 0.25
# A tool that does not fit may be followed by a shorter one, but not for ever.
_MOST_MISSES: Final = 64
# Tokens by which one tool may cost less in its array than it was estimated at.
_MOST_OVERRATED: Final = 2
# Of what is large, so many bytes for each token that could fit are counted: few texts have more in each.
_SAMPLE_BYTES: Final = 16
# Forms whose cost is remembered.
_MOST_COSTS: Final = 60_000
# What is estimated one by one is counted as a whole, and what that leaves is filled again.
_MOST_ROUNDS: Final = 4


class DetailLevel(IntEnum):
    """How much is said of a tool."""

    WHOLE = 0
    SLIM = 1
    STUB = 2
    # Found by search alone.
    NONE = 3
    # With the top-level arguments; a budget does not choose it, but a mode or a server's listing may.
    PARTITIONED = 4


class ListingCandidate(msgspec.Struct, frozen=True):
    """A tool that could be shown."""

    name: str
    server: str
    # One for each level from WHOLE to STUB; None where the tool is never shown so.
    forms: tuple[bytes | None, bytes | None, bytes | None]
    pinned: bool = False
    # Among those that are called, the most used first; None for one that nobody calls.
    rank: int | None = None

    def at(self, level: DetailLevel) -> DetailLevel:
        """The fullest level that it has, from that one on."""
        return next((lower for lower in DetailLevel if lower >= level and self.form(lower)), DetailLevel.NONE)

    @property
    def leanest(self) -> DetailLevel:
        """The level at which least is said of it."""
        return next((level for level in reversed(DetailLevel) if self.form(level)), DetailLevel.NONE)

    def form(self, level: DetailLevel) -> bytes | None:
        """What is shown of it."""
        return self.forms[level] if level < DetailLevel.NONE else None


class OwnToolForms(msgspec.Struct, frozen=True):
    """The gateway's own tools: what expands others, and what finds and calls them, the fullest set first."""

    expander: tuple[NamedDefinition, ...]
    finders: tuple[tuple[NamedDefinition, ...], ...]
    # What reads large results, whole and in as little as a model needs.
    readers: tuple[NamedDefinition, ...] = ()
    reader_stubs: tuple[NamedDefinition, ...] = ()


class FittedListing(msgspec.Struct, frozen=True):
    """What is shown, in order, and what is not."""

    shown: tuple[NamedDefinition, ...]
    tokens: int
    levels: dict[str, DetailLevel]
    # The names of those of the gateway's own tools that are shown.
    own: frozenset[str]
    # Pinned, and yet left to search.
    pins_left: tuple[str, ...] = ()


class ListingTokenMeter:
    """Counts tokens."""

    def __init__(self, count: Callable[[bytes], int], enough: int | None = None) -> None:
        """What costs more than `enough` tokens never fits, and need not be counted to its end."""
        self._count = count
        self._enough = enough
        self._costs: dict[bytes, int] = {}

    def tokens(self, tools: Iterable[NamedDefinition]) -> int:
        """Of the whole tools array of a listing."""
        return self._count(b"[" + b",".join(definition for _, definition in tools) + b"]")

    def cost(self, form: bytes) -> int:
        """About what a tool adds to an array; counted as it stands there, behind another."""
        # By a digest, so that nothing is kept of forms that are shown no more.
        key = hashlib.blake2b(form, digest_size=16).digest()
        cost = self._costs.get(key)
        if cost is None:
            if len(self._costs) >= _MOST_COSTS:
                self._costs.clear()
            self._costs[key] = cost = self._too_much(form) or self._count(b"}}," + form) - 1
        return cost

    def _too_much(self, form: bytes) -> int | None:
        """An estimate of what is far too large: to count a megabyte holds up every thread for a while."""
        if self._enough is None or len(form) <= (sample := self._enough * _SAMPLE_BYTES):
            return None
        estimate = self._count(form[:sample]) * len(form) // sample
        return estimate if estimate > self._enough else None


def fit_to_budget(
    candidates: Sequence[ListingCandidate],
    own: OwnToolForms,
    budget: int,
    meter: ListingTokenMeter,
    *,
    most: int | None = None,
    serve: Callable[[bytes], bytes] = lambda form: form,
) -> FittedListing:
    """As much as fits `budget` tokens and `most` tools; never more of either.

    The order is that of the candidates, behind the gateway's own tools, or before them where all are whole.
    `serve` gives what is sent for a form; it may take long, and is asked only for forms that may be shown.
    """
    kept = _kept_readers(own, budget, meter, most)
    for level, beside in _ways_to_show_all(candidates, own, kept):
        whole = level is DetailLevel.WHOLE
        filling = _BudgetFill(candidates, beside, budget, meter, most, serve, whole=whole)
        if filling.take_all(level):
            filling.lift_pins()
            filling.enrich()
            return filling.result()
    finders = _finders(own, kept, budget, meter)
    filling = _BudgetFill(candidates, finders, budget, meter, most, serve, whole=False)
    filling.take_pins()
    filling.take_most_used()
    filling.take_stubs()
    filling.enrich()
    return filling.result()


def _kept_readers(
    own: OwnToolForms, budget: int, meter: ListingTokenMeter, most: int | None
) -> tuple[NamedDefinition, ...]:
    """Stubs of what reads large results, if the room that is kept for them is enough."""
    stubs = own.reader_stubs
    too_many = most is not None and len(stubs) > most * _READERS_SHARE
    return () if too_many or meter.tokens(stubs) > budget * _READERS_SHARE else stubs


def _ways_to_show_all(
    candidates: Sequence[ListingCandidate], own: OwnToolForms, kept: tuple[NamedDefinition, ...]
) -> Iterable[tuple[DetailLevel, tuple[NamedDefinition, ...]]]:
    """How much could be said of every tool, and what of the gateway's own goes with it, the best first.

    What reads large results is listed where that costs no other tool a word, or where room is kept for it;
    but no tool is left to search because of it.
    """
    ways = (
        (DetailLevel.WHOLE, _unclaimed(own.readers, candidates)),
        (DetailLevel.WHOLE, _unclaimed(own.reader_stubs, candidates)),
        *((level, own.expander + kept) for level in (DetailLevel.SLIM, DetailLevel.STUB) if kept),
        (DetailLevel.WHOLE, ()),
        (DetailLevel.SLIM, own.expander),
        (DetailLevel.STUB, own.expander),
    )
    # Some are the same where nothing reads results.
    return dict.fromkeys(ways)


def _unclaimed(
    readers: tuple[NamedDefinition, ...], candidates: Sequence[ListingCandidate]
) -> tuple[NamedDefinition, ...]:
    names = {one.name for one in candidates}
    # Where there is nothing to call there is no result to read.
    return tuple(tool for tool in readers if tool[0] not in names) if names else ()


def _finders(
    own: OwnToolForms, kept: tuple[NamedDefinition, ...], budget: int, meter: ListingTokenMeter
) -> tuple[NamedDefinition, ...]:
    sets = (finders + readers for readers in (kept, ()) for finders in own.finders)
    fitting = (tools for tools in sets if meter.tokens(tools) <= budget * _OWN_SHARE)
    return next(fitting, own.finders[-1])


class _BudgetFill:
    """Takes tools in until there is no room."""

    def __init__(
        self,
        candidates: Sequence[ListingCandidate],
        own: tuple[NamedDefinition, ...],
        budget: int,
        meter: ListingTokenMeter,
        most: int | None,
        serve: Callable[[bytes], bytes],
        *,
        whole: bool,
    ) -> None:
        # Where names are not reserved a server may have a tool that is called like an own one: to whoever
        # sees every tool whole the name means that, to all others the gateway's own.
        self._candidates = [one for one in candidates if whole or one.name not in OWN_NAMES]
        self._own = own
        self._whole = whole
        self._budget = budget
        self._meter = meter
        self._serve = serve
        self._places = (most or len(candidates) + len(own)) - len(own)
        self._levels: dict[str, DetailLevel] = {one.name: DetailLevel.NONE for one in candidates}
        self._room = budget - meter.tokens(own)
        # Those that come first when there is room, and go last when there is none.
        self._favoured = sorted(self._candidates, key=lambda one: (not one.pinned, _rank(one)))

    def take_all(self, level: DetailLevel) -> bool:
        """Show everything at that level or less; tells whether it fits."""
        if len(self._levels) > min(self._places, len(self._candidates)):
            return False
        for count, one in enumerate(self._candidates, start=1):
            fitting = one.at(level) if one.at(level) is not DetailLevel.NONE else one.leanest
            # What has no form is left to search; what is whole must be so for all.
            if fitting is DetailLevel.NONE or (fitting > level and level is DetailLevel.WHOLE):
                return False
            self._put(one, fitting)
            if self._room < -_MOST_OVERRATED * count:
                return False
        return self._tokens() <= self._budget

    def take_pins(self) -> None:
        """What the operator pinned, in full if it can be."""
        for one in self._favoured:
            if one.pinned:
                self._take(one, DetailLevel.WHOLE)

    def lift_pins(self) -> None:
        """Say all of what the operator pinned, or as much as there is room for."""
        for one in self._favoured:
            for level in (DetailLevel.WHOLE, DetailLevel.SLIM):
                could_be = one.form(level) is not None and level < self._levels[one.name]
                if one.pinned and could_be and self._promote(one, level):
                    break

    def take_most_used(self) -> None:
        """What is called most, in full; what is called less, in a few words."""
        least = self._room * (1 - _MOST_USED_SHARE)
        for one in self._favoured:
            if not one.pinned and one.rank is not None:
                self._take(one, DetailLevel.WHOLE if self._room > least else DetailLevel.SLIM)

    def take_stubs(self) -> None:
        """A word of every other tool, one of each server in turn, so that each is seen."""
        misses = 0
        others = [one for one in self._favoured if not one.pinned and one.rank is None]
        for one in _round_robin([one for one in others if one.leanest is not DetailLevel.NONE]):
            misses += not self._take(one, one.leanest)
            if misses > _MOST_MISSES:
                return

    def enrich(self) -> None:
        """Say more of what is shown, as long as there is room."""
        for level in (DetailLevel.SLIM, DetailLevel.WHOLE):
            misses = 0
            for one in self._favoured:
                could_be = one.form(level) is not None and level < self._levels[one.name] < DetailLevel.NONE
                if could_be and misses <= _MOST_MISSES:
                    misses += not self._promote(one, level)

    def result(self) -> FittedListing:
        """What is shown, counted as a whole: within the budget, and as much as there is room for."""
        for _ in range(_MOST_ROUNDS):
            tokens = self._tokens()
            before = dict(self._levels)
            self._room = self._budget - tokens
            if self._room < 0:
                self._demote_last()
            elif self._room:
                self.take_pins()
                self.take_stubs()
                self.enrich()
            if self._levels == before:
                break
        while (tokens := self._tokens()) > self._budget and self._demote_last():
            continue
        pins_left = [one.name for one in self._candidates if one.pinned and not self._shown(one)]
        own = frozenset(name for name, _ in self._own)
        return FittedListing(tuple(self._array()), tokens, dict(self._levels), own, tuple(pins_left))

    def _take(self, one: ListingCandidate, level: DetailLevel) -> bool:
        """Show it at that level or at the fullest below that fits."""
        if self._shown(one):
            return True
        if self._places <= 0:
            return False
        while (level := one.at(level)) is not DetailLevel.NONE:
            if self._cost(one, level) <= self._room:
                self._put(one, level)
                return True
            level = DetailLevel(level + 1)
        return False

    def _promote(self, one: ListingCandidate, level: DetailLevel) -> bool:
        now = self._levels[one.name]
        if self._cost(one, level) - self._cost(one, now) > self._room:
            return False
        self._room += self._cost(one, now)
        self._room -= self._cost(one, level)
        self._levels[one.name] = level
        return True

    def _put(self, one: ListingCandidate, level: DetailLevel) -> None:
        self._levels[one.name] = level
        self._room -= self._cost(one, level)
        self._places -= 1

    def _demote_last(self) -> bool:
        """Say less of the least favoured tool that is shown."""
        for one in reversed(self._favoured):
            if self._shown(one):
                now = self._levels[one.name]
                less = one.at(DetailLevel(now + 1))
                self._levels[one.name] = less
                self._places += less is DetailLevel.NONE
                return True
        return False

    def _shown(self, one: ListingCandidate) -> bool:
        return self._levels[one.name] is not DetailLevel.NONE

    def _cost(self, one: ListingCandidate, level: DetailLevel) -> int:
        form = one.form(level)
        return self._meter.cost(self._serve(form)) if form is not None else 0

    def _array(self) -> list[NamedDefinition]:
        forms = ((one.name, one.form(self._levels[one.name])) for one in self._candidates)
        shown = [(name, self._serve(form)) for name, form in forms if form is not None]
        # In the order of the mode full where it is like that.
        return [*shown, *self._own] if self._whole else [*self._own, *shown]

    def _tokens(self) -> int:
        return self._meter.tokens(self._array())


def _rank(one: ListingCandidate) -> float:
    return float("inf") if one.rank is None else one.rank


def _round_robin(candidates: Sequence[ListingCandidate]) -> list[ListingCandidate]:
    """The first of each server, then the second of each, and so on."""
    positions: dict[str, int] = {}
    turns: list[tuple[int, int]] = []
    for index, one in enumerate(candidates):
        positions[one.server] = turn = positions.get(one.server, -1) + 1
        turns.append((turn, index))
    return [candidates[index] for _, index in sorted(turns)]
