"""The steps of a transaction, what undoes them, and what is on record of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headgate.delivery.transactions.plan import Remedy, StepState

# What undoes a step: a tool, and its arguments or how to make them of the step's answer.
Compensation = tuple[str, Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] | None]


class Event(NamedTuple):
    """One line of a transaction's history: when, what, and about which step; 0 for the whole."""

    seconds: float
    what: str
    step: int = 0
    detail: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class Step:
    """One call of a transaction, and how it is undone."""

    number: int
    tool: str
    compensate: Compensation | None
    state: StepState = StepState.SENT
    remedy: Remedy = Remedy.NONE
    answer: Any = None
    # How often its compensation was tried and is known not to have happened.
    failed_undos: int = 0

    def compensation(self) -> tuple[str, dict[str, Any]]:
        """The call that undoes it; raises whatever the program's own function raises."""
        if self.compensate is None:
            raise ValueError(f"step {self.number} has no compensation")
        tool, given = self.compensate
        arguments = given(self.answer) if callable(given) else given
        return tool, dict(arguments or {})


def compensation_of(given: Compensation | str | None) -> Compensation | None:
    """The same in one form, or ValueError with what is allowed."""
    if given is None:
        return None
    if isinstance(given, str):
        return (given, None)
    match given:
        case (str(tool), None | Mapping() as arguments):
            return (tool, arguments)
        case (str(tool), arguments) if callable(arguments):
            return (tool, arguments)
    raise ValueError("compensate must be (tool, arguments): a dict, or a function of the step's result")
