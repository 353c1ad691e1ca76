"""Token budgets per caller and rolling day: cost estimates, reservations, settlement."""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headgate.domain.identity import Identity
from headgate.knowledge.errors import TokenBudgetExceeded
from headgate.knowledge.tools.response_modes import (
    RICHEST_FIRST,
    TOKENS_PER_RESULT,
    ResponseMode,
    encode_answer,
)
from headgate.search.token_counter import count_tokens, load_vocabulary

DAY_SECONDS: Final = 24 * 3600.0
# What was spent is kept in steps of ten minutes, so an account is small. All of a step comes back a day after
# the last of it was spent: a token counts a little longer than a day at most.
_STEP_SECONDS: Final = 600.0
# Accounts; beyond that the least recently used ones are dropped.
_MOST_CALLERS: Final = 10_000
# Until an answer that is under way has been given.
_SOON_SECONDS: Final = 5.0

# The cheaper option for the tokens that are left; empty when there is none.
Advice = Callable[[int], str]


class BudgetUsage(msgspec.Struct, frozen=True, kw_only=True):
    callers: int
    spent: int
    reserved: int
    refused: int


class TokenReservation:
    """Reserved tokens until they are settled; a failure returns them."""

    def __init__(self, account: "_CallerAccount | None", tokens: int, now: Callable[[], float]) -> None:
        self.tokens = tokens
        self._account = account
        self._now = now

    def settle(self, actual: int) -> None:
        """Charge the tokens and release the rest; only the first call counts."""
        account, self._account = self._account, None
        if account is not None:
            account.reserved -= self.tokens
            account.spend(actual, self._now())

    async def charge(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer, once its tokens are settled; without a budget none are counted."""
        if self._account is not None:
            self.settle(await count_answer(answer))
        return answer

    def __enter__(self) -> "TokenReservation":
        return self

    def __exit__(self, *_: object) -> None:
        self.settle(0)


class TokenBudget:
    """The accounts of all callers; without a total no call is refused."""

    def __init__(self, total_per_day: int | None = 100_000, *, clock: Callable[[], float]) -> None:
        self._total = total_per_day
        self._clock = clock
        self._accounts: OrderedDict[tuple[str, str], _CallerAccount] = OrderedDict()
        self._refused = 0

    def remaining(self, caller: Identity) -> int | None:
        """How many tokens can be reserved now; None is any number."""
        if self._total is None:
            return None
        return max(0, self._total - self._account(caller).used(self._clock()))

    def reserve(self, caller: Identity, tokens: int, advice: Advice = lambda left: "") -> TokenReservation:
        """Reserve tokens; raises TokenBudgetExceeded with what is left and a cheaper option."""
        left = self.remaining(caller)
        if left is None:
            return TokenReservation(None, tokens, self._clock)
        if tokens > left:
            self._refused += 1
            raise self._refusal(caller, self._total or 0, tokens, advice)
        account = self._account(caller)
        account.reserved += tokens
        return TokenReservation(account, tokens, self._clock)

    def reserve_estimate(
        self, caller: Identity, price: "CostEstimate", modes: Sequence[ResponseMode] = (ResponseMode.FULL,)
    ) -> tuple[ResponseMode, TokenReservation]:
        """Reserve the price of the first mode that the caller can afford, or else of the last one.

        Raises TokenBudgetExceeded.
        """
        left = self.remaining(caller)
        fitting = (mode for mode in modes if left is None or price.by_mode[mode] <= left)
        mode = next(fitting, modes[-1])
        return mode, self.reserve(caller, price.by_mode[mode], lambda left: price.advice(mode, left))

    @property
    def usage(self) -> BudgetUsage:
        now = self._clock()
        reserved = sum(account.reserved for account in self._accounts.values())
        taken = sum(account.used(now) for account in self._accounts.values())
        return BudgetUsage(
            callers=len(self._accounts), spent=taken - reserved, reserved=reserved, refused=self._refused
        )

    def _account(self, caller: Identity) -> "_CallerAccount":
        key = (caller.tenant, caller.principal)
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _CallerAccount()
            while len(self._accounts) > _MOST_CALLERS:
                # An account with a reservation stays, or its tokens could be spent twice.
                idle = (own for own, one in self._accounts.items() if not one.reserved and own != key)
                if (oldest := next(idle, None)) is None:
                    break
                del self._accounts[oldest]
        self._accounts.move_to_end(key)
        return account

    def _refusal(self, caller: Identity, total: int, tokens: int, advice: Advice) -> TokenBudgetExceeded:
        account, now = self._account(caller), self._clock()
        left = max(0, total - account.used(now))
        wait = None
        if tokens <= total:
            wait = math.ceil(account.wait_for(account.used(now) + tokens - total, now))
        steps = [advice(left)]
        if wait is not None:
            steps.append(f"retry in {_duration_text(wait)}")
        elif not steps[0] and (smaller := advice(total)):
            later = math.ceil(account.wait_for(account.used(now), now))
            # Without a number for programs: the same call would never fit.
            steps.append(f"retry in {_duration_text(later)} with less: {smaller}")
        hint = ", or ".join(filter(None, steps)) or "ask for less: it is more than the budget of a whole day"
        return TokenBudgetExceeded(left, total, tokens, hint=hint, retry_after_seconds=wait)


@dataclass(slots=True)
class _CallerAccount:
    """The tokens that one caller spent in the last day, by steps, and the reserved ones."""

    reserved: int = 0
    # The step, when the last of it was spent, and how many.
    _spent: deque[tuple[int, float, int]] = field(default_factory=deque)
    _sum: int = 0

    def spend(self, tokens: int, now: float) -> None:
        if tokens <= 0:
            return
        step = int(now // _STEP_SECONDS)
        if self._spent and self._spent[-1][0] == step:
            tokens_before = self._spent.pop()[2]
            self._sum -= tokens_before
            tokens += tokens_before
        self._spent.append((step, now, tokens))
        self._sum += tokens

    def used(self, now: float) -> int:
        while self._spent and self._spent[0][1] + DAY_SECONDS <= now:
            self._sum -= self._spent.popleft()[2]
        return self._sum + self.reserved

    def wait_for(self, tokens: int, now: float) -> float:
        """Seconds until so many more are free again, a day at most."""
        freed = 0
        for _, last, spent in self._spent:
            freed += spent
            if freed >= tokens:
                return last + DAY_SECONDS - now
        # The missing tokens are only reserved, and most answers take fewer.
        return _SOON_SECONDS


def _duration_text(seconds: float) -> str:
    units = (("h", 3600, 2 * 3600), ("min", 60, 60), ("s", 1, 0))
    unit, length = next((unit, length) for unit, length, least in units if seconds >= least)
    return f"{math.ceil(seconds / length)} {unit}"


# Bytes that are counted per step.
_SHORT_BYTES: Final = 32 * 1024
# At most, with all boosts.
_EXPLANATION_TOKENS: Final = 120
# What is around ids, what the envelope adds, and what the keys of each take there; richer results have room.
_FRAME_TOKENS: Final = 80
_ENVELOPE_TOKENS: Final = 100
_KEYS_TOKENS: Final = 10


class CostEstimate(msgspec.Struct, frozen=True):
    """Tokens of an answer by mode; a tool without modes has the full one alone."""

    by_mode: Mapping[ResponseMode, int]
    # The tokens of an answer by its number of results, the largest number, and its wording.
    of_results: Callable[[ResponseMode, int], int]
    most: int
    lever: str = "page_size {}"
    # Modes that are worth proposing.
    proposed: tuple[ResponseMode, ...] = RICHEST_FIRST

    def advice(self, mode: ResponseMode, left: int) -> str:
        """The options that fit: fewer results, a cheaper mode, or both; empty when there is none."""
        # The requested mode does not fit, so the richest that does is a cheaper one.
        cheaper = next((mode for mode in self.proposed if self.by_mode.get(mode, left + 1) <= left), None)
        options = (self._fewer(mode, left), cheaper and f"response_mode '{cheaper}'")
        fitting = [option for option in options if option]
        if not fitting:
            worth = [mode for mode in self.by_mode if mode in self.proposed]
            cheapest = min(worth, key=lambda mode: self.of_results(mode, 1))
            fewer = self._fewer(cheapest, left)
            return f"{fewer} with response_mode '{cheapest}' fits" if fewer else ""
        first, *others = fitting
        return ", or ".join([f"{first} fits", *others])

    def _fewer(self, mode: ResponseMode, left: int) -> str:
        counts = range(self.most, 0, -1)
        fewer = next((count for count in counts if self.of_results(mode, count) <= left), None)
        return "" if fewer is None else self.lever.format(fewer)


def estimate_results(
    results: int, modes: Iterable[ResponseMode], *, explained: bool = False, enveloped: bool = False
) -> CostEstimate:
    """That of so many chunks of which nothing is known yet, in each of the modes that would do."""
    more = _EXPLANATION_TOKENS if explained else 0

    def tokens(mode: ResponseMode, count: int) -> int:
        results = (TOKENS_PER_RESULT[mode] + more) * count
        if mode is not ResponseMode.IDS_ONLY:
            return results
        return results + _FRAME_TOKENS + (_ENVELOPE_TOKENS + _KEYS_TOKENS * count if enveloped else 0)

    return CostEstimate({mode: tokens(mode, results) for mode in modes}, tokens, results)


def estimate_texts(texts: Sequence[int], modes: Iterable[ResponseMode], lever: str) -> CostEstimate:
    """That of chunks whose texts have so many tokens each."""

    def tokens(mode: ResponseMode, count: int) -> int:
        # The fields around a text cost about as much as metadata.
        whole = [TOKENS_PER_RESULT[ResponseMode.METADATA] + text for text in texts[:count]]
        return sum(
            whole if mode is ResponseMode.FULL else (min(TOKENS_PER_RESULT[mode], one) for one in whole)
        )

    by_mode = {mode: tokens(mode, len(texts)) for mode in modes}
    # A caller that names the chunks knows their ids.
    proposed = tuple(mode for mode in RICHEST_FIRST if mode is not ResponseMode.IDS_ONLY)
    return CostEstimate(by_mode, tokens, len(texts), lever, proposed)


async def count_answer(answer: dict[str, Any]) -> int:
    """How many tokens an answer has as a model reads it."""
    text = encode_answer(answer)
    if len(text) <= _SHORT_BYTES and load_vocabulary.cache_info().currsize:
        return count_tokens(text)
    # The first count reads a vocabulary, and one of a long text takes a moment.
    return await asyncio.to_thread(count_tokens, text)
