"""What an answer may cost in each of its modes, and what a caller with fewer tokens can do instead."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from headgate.domain.call import Caller
from headgate.knowledge.budget import Reservation, TokenBudget
from headgate.knowledge.modes import RICHEST_FIRST, TOKENS_PER_RESULT, Mode
from headgate.knowledge.writing import written

# What is counted at once.
_SHORT_BYTES: Final = 32 * 1024
# At most, with all boosts.
_EXPLANATION_TOKENS: Final = 120
# What is around ids, what the envelope adds, and what the keys of each take there; richer results have room.
_FRAME_TOKENS: Final = 80
_ENVELOPE_TOKENS: Final = 100
_KEYS_TOKENS: Final = 10


class Price(msgspec.Struct, frozen=True):
    """Tokens of an answer by mode; a tool without modes has the full one alone."""

    by_mode: Mapping[Mode, int]
    # Tokens of an answer with at most so many results, the most that can be asked for, and how that is said.
    of_results: Callable[[Mode, int], int]
    most: int
    lever: str = "page_size {}"
    # Modes that are worth proposing.
    proposed: tuple[Mode, ...] = RICHEST_FIRST

    def advice(self, mode: Mode, left: int) -> str:
        """What fits: fewer results, a cheaper mode, or both at once; empty when nothing does."""
        fitting = [told for told in (self._fewer(mode, left), self._cheaper(left)) if told]
        if not fitting:
            worth = [mode for mode in self.by_mode if mode in self.proposed]
            cheapest = min(worth, key=lambda mode: self.of_results(mode, 1))
            fewer = self._fewer(cheapest, left)
            return f"{fewer} with response_mode '{cheapest}' fits" if fewer else ""
        first, *others = fitting
        return ", or ".join([f"{first} fits", *others])

    def _fewer(self, mode: Mode, left: int) -> str:
        counts = range(self.most, 0, -1)
        fewer = next((count for count in counts if self.of_results(mode, count) <= left), None)
        return "" if fewer is None else self.lever.format(fewer)

    def _cheaper(self, left: int) -> str:
        """The richest mode that fits; the one that was asked for does not."""
        cheaper = next((mode for mode in self.proposed if self.by_mode.get(mode, left + 1) <= left), None)
        return "" if cheaper is None else f"response_mode '{cheaper}'"


def price_of_results(
    results: int, modes: Iterable[Mode], *, explained: bool = False, enveloped: bool = False
) -> Price:
    """That of so many chunks of which nothing is known yet, in each of the modes that would do."""
    more = _EXPLANATION_TOKENS if explained else 0

    def tokens(mode: Mode, count: int) -> int:
        results = (TOKENS_PER_RESULT[mode] + more) * count
        if mode is not Mode.IDS_ONLY:
            return results
        return results + _FRAME_TOKENS + (_ENVELOPE_TOKENS + _KEYS_TOKENS * count if enveloped else 0)

    return Price({mode: tokens(mode, results) for mode in modes}, tokens, results)


def price_of_texts(texts: Sequence[int], modes: Iterable[Mode], lever: str) -> Price:
    """That of chunks whose texts have so many tokens each."""

    def tokens(mode: Mode, count: int) -> int:
        # What is around a text is about what metadata has.
        whole = [TOKENS_PER_RESULT[Mode.METADATA] + text for text in texts[:count]]
        return sum(whole if mode is Mode.FULL else (min(TOKENS_PER_RESULT[mode], one) for one in whole))

    by_mode = {mode: tokens(mode, len(texts)) for mode in modes}
    # Who names the chunks knows their ids.
    proposed = tuple(mode for mode in RICHEST_FIRST if mode is not Mode.IDS_ONLY)
    return Price(by_mode, tokens, len(texts), lever, proposed)


class Till:
    """Takes the price before an answer is made, and what it really took afterwards."""

    def __init__(self, budget: TokenBudget, count: Callable[[bytes], int]) -> None:
        self._budget = budget
        self._count = count
        self._counted = False

    def affordable(self, caller: Caller, price: Price, modes: Sequence[Mode]) -> Mode:
        """The first of the modes that the caller can pay; the last when he can pay none."""
        left = self._budget.left(caller)
        fitting = (mode for mode in modes if left is None or price.by_mode[mode] <= left)
        return next(fitting, modes[-1])

    def reserve(self, caller: Caller, price: Price, mode: Mode = Mode.FULL) -> Reservation:
        """Set the price aside; raises BudgetSpent."""
        return self._budget.reserve(caller, price.by_mode[mode], lambda left: price.advice(mode, left))

    async def paid(self, reservation: Reservation, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer, once it is settled how many tokens it has."""
        if self._budget.limited:
            reservation.settle(await self.tokens_of(answer))
        return answer

    async def tokens_of(self, answer: dict[str, Any]) -> int:
        """How many tokens it has as a model reads it."""
        text = written(answer)
        if self._counted and len(text) <= _SHORT_BYTES:
            return self._count(text)
        # The first count reads a vocabulary, and one of a long text takes a moment.
        tokens = await asyncio.to_thread(self._count, text)
        self._counted = True
        return tokens
