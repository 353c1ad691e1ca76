"""How many tokens a caller may be answered with in a rolling day; reserved first, and then settled."""

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from types import TracebackType
from typing import Final

import msgspec

from headgate.domain.call import Caller
from headgate.domain.errors import BudgetSpent

DAY_SECONDS: Final = 24 * 3600.0
# What was spent is kept in steps of ten minutes, so an account is small. All of a step comes back a day after
# the last of it was spent: a token counts a little longer than a day at most.
_STEP_SECONDS: Final = 600.0
# Accounts; beyond that those that nobody used for longest are forgotten.
_MOST_CALLERS: Final = 10_000
# Until an answer that is under way has been given.
_SOON_SECONDS: Final = 5.0
_MINUTE: Final = 60
_HOUR: Final = 3600

# What fits instead, given how many tokens are left; empty when nothing smaller does.
Advice = Callable[[int], str]


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the budgets, for the metrics."""

    callers: int
    spent: int
    reserved: int
    refused: int


class Reservation:
    """Tokens that nobody else gets until they are settled; given back when the work fails."""

    def __init__(self, account: "_Account | None", tokens: int, now: Callable[[], float]) -> None:
        self.tokens = tokens
        self._account = account
        self._now = now

    def settle(self, actual: int) -> None:
        """So many were spent, and the rest is free again; only the first time counts."""
        account, self._account = self._account, None
        if account is not None:
            account.reserved -= self.tokens
            account.spend(actual, self._now())

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle(0)


class TokenBudget:
    """The accounts of all callers; without a total nobody is refused."""

    def __init__(self, total_per_day: int | None = 100_000, *, clock: Callable[[], float]) -> None:
        self._total = total_per_day
        self._clock = clock
        self._accounts: OrderedDict[tuple[str, str], _Account] = OrderedDict()
        self._refused = 0

    @property
    def limited(self) -> bool:
        """Whether anybody can be refused."""
        return self._total is not None

    def left(self, caller: Caller) -> int | None:
        """How many tokens can be reserved now; None is any number."""
        if self._total is None:
            return None
        return max(0, self._total - self._account(caller).taken(self._clock()))

    def reserve(self, caller: Caller, tokens: int, advice: Advice = lambda left: "") -> Reservation:
        """Set so many tokens aside; raises BudgetSpent, which says what is left and what to do instead."""
        left = self.left(caller)
        if left is None:
            return Reservation(None, tokens, self._clock)
        if tokens > left:
            self._refused += 1
            raise self._refusal(caller, self._total or 0, tokens, advice)
        account = self._account(caller)
        account.reserved += tokens
        return Reservation(account, tokens, self._clock)

    @property
    def spending(self) -> Spending:
        """What is spent and reserved now, of all callers together."""
        now = self._clock()
        reserved = sum(account.reserved for account in self._accounts.values())
        taken = sum(account.taken(now) for account in self._accounts.values())
        return Spending(
            callers=len(self._accounts), spent=taken - reserved, reserved=reserved, refused=self._refused
        )

    def _account(self, caller: Caller) -> "_Account":
        key = (caller.tenant, caller.principal)
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account()
            self._forget_the_idle()
        self._accounts.move_to_end(key)
        return account

    def _forget_the_idle(self) -> None:
        while len(self._accounts) > _MOST_CALLERS:
            newest = next(reversed(self._accounts))
            # One who is being answered is kept, or he could be answered twice for the same tokens.
            idle = (key for key, account in self._accounts.items() if not account.reserved and key != newest)
            key = next(idle, None)
            if key is None:
                return
            del self._accounts[key]

    def _refusal(self, caller: Caller, total: int, tokens: int, advice: Advice) -> BudgetSpent:
        account, now = self._account(caller), self._clock()
        left = max(0, total - account.taken(now))
        wait = None
        if tokens <= total:
            wait = math.ceil(account.wait_for(account.taken(now) + tokens - total, now))
        steps = [advice(left)]
        if wait is not None:
            steps.append(f"retry in {_spoken(wait)}")
        elif not steps[0] and (smaller := advice(total)):
            later = math.ceil(account.wait_for(account.taken(now), now))
            # Without a number for programs: the same call would never fit.
            steps.append(f"retry in {_spoken(later)} with less: {smaller}")
        hint = ", or ".join(filter(None, steps)) or "ask for less: it is more than the budget of a whole day"
        return BudgetSpent(left, total, tokens, hint=hint, retry_after_seconds=wait)


class _Account:
    """What one caller spent in the last day, by steps, and what is reserved for him."""

    def __init__(self) -> None:
        self.reserved = 0
        # The step, when the last of it was spent, and how many.
        self._spent: deque[tuple[int, float, int]] = deque()
        self._sum = 0

    def spend(self, tokens: int, now: float) -> None:
        """So many are gone, for a day from now on."""
        if tokens <= 0:
            return
        step = int(now // _STEP_SECONDS)
        if self._spent and self._spent[-1][0] == step:
            tokens_before = self._spent.pop()[2]
            self._sum -= tokens_before
            tokens += tokens_before
        self._spent.append((step, now, tokens))
        self._sum += tokens

    def taken(self, now: float) -> int:
        """What is spent or reserved."""
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
        # What is missing is only reserved, and most answers take less than that.
        return _SOON_SECONDS


def _spoken(seconds: float) -> str:
    if seconds < _MINUTE:
        return f"{math.ceil(seconds)} s"
    if seconds < 2 * _HOUR:
        return f"{math.ceil(seconds / _MINUTE)} min"
    return f"{math.ceil(seconds / _HOUR)} h"
