"""Fits a tool listing into a number of tokens: the most used tools in full, others reduced, the rest left
to search.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from operator import itemgetter
from typing import Final

import msgspec

from headgate.catalog.public_names import OWN_NAMES

NamedDefinition = tuple[str, bytes]

# The share of the budget for full definitions of frequently called tools.
_MOST_USED_SHARE: Final = 0.5
# The gateway's own tools are listed in full only if they leave half of the budget.
_OWN_SHARE: Final = 0.5
# The share reserved for the tools that read large results: without them the rest of a result is lost.
_READERS_SHARE: Final = 0.25
# After a tool that does not fit a shorter one may follow; the search for one is bounded.
_MOST_MISSES: Final = 64
# Tokens by which a tool may cost less in its array than estimated.
_MOST_OVERRATED: Final = 2
# Of a large form, this many bytes per token that could fit are counted: few texts have more per token.
_SAMPLE_BYTES: Final = 16
# Forms whose cost is cached.
_MOST_COSTS: Final = 60_000
# Estimates are per tool; the total is counted, and the remaining room filled again.
_MOST_ROUNDS: Final = 4


class DetailLevel(IntEnum):
    """How much of a tool is listed."""

    WHOLE = 0
    SLIM = 1
    STUB = 2
    # Not listed; found by search alone.
    NONE = 3
    # With the top-level arguments; chosen by a mode or a server's listing, never by a budget.
    PARTITIONED = 4


class ListingCandidate(msgspec.Struct, frozen=True):
    """A tool that could be listed."""

    name: str
    server: str
    # One for each level from WHOLE to STUB; None for a level that the tool does not have.
    forms: tuple[bytes | None, bytes | None, bytes | None]
    pinned: bool = False
    # The rank among called tools, the most used first; None for a tool that is not called.
    rank: int | None = None

    def at(self, level: DetailLevel) -> DetailLevel:
        """The fullest available level, from that one on."""
        return next((lower for lower in DetailLevel if lower >= level and self.form(lower)), DetailLevel.NONE)

    @property
    def leanest(self) -> DetailLevel:
        return next((level for level in reversed(DetailLevel) if self.form(level)), DetailLevel.NONE)

    def form(self, level: DetailLevel) -> bytes | None:
        return self.forms[level] if level < DetailLevel.NONE else None


class OwnToolForms(msgspec.Struct, frozen=True):
    """The gateway's own tools: those that expand schemas, and those that find and call, fullest set first."""

    expander: tuple[NamedDefinition, ...]
    finders: tuple[tuple[NamedDefinition, ...], ...]
    # The tools that read large results, in full and as stubs.
    readers: tuple[NamedDefinition, ...] = ()
    reader_stubs: tuple[NamedDefinition, ...] = ()


class FittedListing(msgspec.Struct, frozen=True):
    """The listed tools, in order, and the level of each tool."""

    listed: tuple[NamedDefinition, ...]
    tokens: int
    levels: dict[str, DetailLevel]
    # The names of the gateway's own tools that are listed.
    own: frozenset[str]
    # Pinned tools that did not fit.
    pins_left: tuple[str, ...] = ()


class ListingTokenMeter:
    """Counts tokens of definitions and listings."""

    def __init__(self, count: Callable[[bytes], int], enough: int | None = None) -> None:
        """A form above `enough` tokens never fits, so it is not counted to its end."""
        self._count = count
        self._enough = enough
        self._costs: dict[bytes, int] = {}

    def tokens(self, tools: Iterable[NamedDefinition]) -> int:
        """The tokens of the whole tools array of a listing."""
        return self._count(b"[" + b",".join(definition for _, definition in tools) + b"]")

    def cost(self, form: bytes) -> int:
        """About what a tool adds to an array, counted in its place after another."""
        # Keyed by digest, so that no unused form is kept in memory.
        key = hashlib.blake2b(form, digest_size=16).digest()
        cost = self._costs.get(key)
        if cost is None:
            if len(self._costs) >= _MOST_COSTS:
                self._costs.clear()
            cost, sample = 0, (self._enough or 0) * _SAMPLE_BYTES
            if self._enough is not None and len(form) > sample:
                # An estimate for a form that is far too large: counting a megabyte would block other threads.
                cost = self._count(form[:sample]) * len(form) // sample
            if self._enough is None or cost <= self._enough:
                cost = self._count(b"}}," + form) - 1
            self._costs[key] = cost
        return cost


def fit_to_budget(
    candidates: Sequence[ListingCandidate],
    own: OwnToolForms,
    budget: int,
    meter: ListingTokenMeter,
    *,
    most: int | None = None,
    serve: Callable[[bytes], bytes] = lambda form: form,
) -> FittedListing:
    """The fullest listing within `budget` tokens and `most` tools.

    Tools keep the order of the candidates, after the gateway's own, or before them if all are in full.
    `serve` returns the bytes sent for a form; it may be slow and is called only for forms that may be listed.
    """
    stubs = own.reader_stubs
    too_many = most is not None and len(stubs) > most * _READERS_SHARE
    # Stubs of the tools that read large results, if they fit their reserved share.
    kept = () if too_many or meter.tokens(stubs) > budget * _READERS_SHARE else stubs
    for level, beside in _ways_to_show_all(candidates, own, kept):
        whole = level is DetailLevel.WHOLE
        filling = _BudgetFill(candidates, beside, budget, meter, most, serve, whole=whole)
        if filling.take_all(level):
            filling.lift_pins()
            filling.enrich()
            return filling.result()
    sets = (finders + readers for readers in (kept, ()) for finders in own.finders)
    fitting = (tools for tools in sets if meter.tokens(tools) <= budget * _OWN_SHARE)
    beside = next(fitting, own.finders[-1])
    filling = _BudgetFill(candidates, beside, budget, meter, most, serve, whole=False)
    filling.take_pins()
    filling.take_most_used()
    filling.take_stubs()
    filling.enrich()
    return filling.result()


def _ways_to_show_all(
    candidates: Sequence[ListingCandidate], own: OwnToolForms, kept: tuple[NamedDefinition, ...]
) -> Iterable[tuple[DetailLevel, tuple[NamedDefinition, ...]]]:
    """The levels at which every tool could be listed, with the own tools that go with each, best first.

    The tools that read large results are listed if that shortens no other tool, or within their reserved
    share; no tool is left to search because of them.
    """
    names = {one.name for one in candidates}
    # Without tools to call there are no results to read.
    readers, stubs = (
        tuple(tool for tool in tools if names and tool[0] not in names)
        for tools in (own.readers, own.reader_stubs)
    )
    ways = (
        (DetailLevel.WHOLE, readers),
        (DetailLevel.WHOLE, stubs),
        *((level, own.expander + kept) for level in (DetailLevel.SLIM, DetailLevel.STUB) if kept),
        (DetailLevel.WHOLE, ()),
        (DetailLevel.SLIM, own.expander),
        (DetailLevel.STUB, own.expander),
    )
    # Some are equal if there are no such tools.
    return dict.fromkeys(ways)


class _BudgetFill:
    """Adds tools until the budget is used."""

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
        # Where names are not reserved, a server may have a tool with the name of an own one. The name means
        # the server's tool for clients that see every tool in full, and the own tool for all others.
        self._candidates = [one for one in candidates if whole or one.name not in OWN_NAMES]
        self._own = own
        self._whole = whole
        self._budget = budget
        self._meter = meter
        self._serve = serve
        self._places = (most or len(candidates) + len(own)) - len(own)
        self._levels: dict[str, DetailLevel] = {one.name: DetailLevel.NONE for one in candidates}
        self._room = budget - meter.tokens(own)
        # In order of preference: added first, demoted last.
        self._favoured = sorted(
            self._candidates, key=lambda one: (not one.pinned, one.rank is None, one.rank or 0)
        )

    def take_all(self, level: DetailLevel) -> bool:
        """List everything at that level or a shorter one; returns whether it fits."""
        if len(self._levels) > min(self._places, len(self._candidates)):
            return False
        for count, one in enumerate(self._candidates, start=1):
            fitting = one.at(level) if one.at(level) is not DetailLevel.NONE else one.leanest
            # A tool without a form is left to search; full means full for all.
            if fitting is DetailLevel.NONE or (fitting > level and level is DetailLevel.WHOLE):
                return False
            self._put(one, fitting)
            if self._room < -_MOST_OVERRATED * count:
                return False
        return self._tokens() <= self._budget

    def take_pins(self) -> None:
        for one in self._favoured:
            if one.pinned:
                self._take(one, DetailLevel.WHOLE)

    def lift_pins(self) -> None:
        """Raise the pinned tools to the fullest level that fits."""
        for one in self._favoured:
            for level in (DetailLevel.WHOLE, DetailLevel.SLIM):
                could_be = one.form(level) is not None and level < self._levels[one.name]
                if one.pinned and could_be and self._promote(one, level):
                    break

    def take_most_used(self) -> None:
        """Add the most called tools in full, the less called ones slim."""
        least = self._room * (1 - _MOST_USED_SHARE)
        for one in self._favoured:
            if not one.pinned and one.rank is not None:
                self._take(one, DetailLevel.WHOLE if self._room > least else DetailLevel.SLIM)

    def take_stubs(self) -> None:
        """Add stubs of all other tools, round-robin over the servers."""
        misses = 0
        others = [one for one in self._favoured if not one.pinned and one.rank is None]
        for one in _round_robin([one for one in others if one.leanest is not DetailLevel.NONE]):
            misses += not self._take(one, one.leanest)
            if misses > _MOST_MISSES:
                return

    def enrich(self) -> None:
        """Raise the levels of listed tools while there is room."""
        for level in (DetailLevel.SLIM, DetailLevel.WHOLE):
            misses = 0
            for one in self._favoured:
                could_be = one.form(level) is not None and level < self._levels[one.name] < DetailLevel.NONE
                if could_be and misses <= _MOST_MISSES:
                    misses += not self._promote(one, level)

    def result(self) -> FittedListing:
        """The final listing, counted as a whole: within the budget and as full as possible."""
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
        pins_left = [one.name for one in self._candidates if one.pinned and not self._is_listed(one)]
        own = frozenset(name for name, _ in self._own)
        return FittedListing(tuple(self._array()), tokens, dict(self._levels), own, tuple(pins_left))

    def _take(self, one: ListingCandidate, level: DetailLevel) -> bool:
        """Add the tool at that level or the fullest one below that fits."""
        if self._is_listed(one):
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
        """Lower the level of the least preferred listed tool."""
        for one in reversed(self._favoured):
            if self._is_listed(one):
                now = self._levels[one.name]
                less = one.at(DetailLevel(now + 1))
                self._levels[one.name] = less
                self._places += less is DetailLevel.NONE
                return True
        return False

    def _is_listed(self, one: ListingCandidate) -> bool:
        return self._levels[one.name] is not DetailLevel.NONE

    def _cost(self, one: ListingCandidate, level: DetailLevel) -> int:
        form = one.form(level)
        return self._meter.cost(self._serve(form)) if form is not None else 0

    def _array(self) -> list[NamedDefinition]:
        forms = ((one.name, one.form(self._levels[one.name])) for one in self._candidates)
        listed = [(name, self._serve(form)) for name, form in forms if form is not None]
        # In the order of mode full if it is equivalent.
        return [*listed, *self._own] if self._whole else [*self._own, *listed]

    def _tokens(self) -> int:
        return self._meter.tokens(self._array())


def _round_robin(candidates: Iterable[ListingCandidate]) -> list[ListingCandidate]:
    """The first of each server, then the second of each, and so on."""
    seen: Counter[str] = Counter()
    rounds: list[tuple[int, ListingCandidate]] = []
    for one in candidates:
        rounds.append((seen[one.server], one))
        seen[one.server] += 1
    return [one for _, one in sorted(rounds, key=itemgetter(0))]
