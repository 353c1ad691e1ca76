"""What differs between two runs of the suite, check by check, and which of it is explained."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conformance.suite import Check, Results

DIFFERENCES: Final = Path(__file__).with_name("differences.toml")
_GRAVITY: Final = ("ABSENT", "INFO", "SKIPPED", "SUCCESS", "WARNING", "FAILURE")
_SILENT: Final = ("ABSENT", "INFO")
_EVERY: Final = "*"


@dataclass(frozen=True, slots=True)
class Difference:
    """A check that the suite judges otherwise through the gateway."""

    scenario: str
    check: str
    direct: str
    through: str
    message: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A difference that is expected, and why."""

    cell: str
    scenario: str
    check: str
    status: str
    reason: str
    certain: bool = True

    def covers(self, difference: Difference) -> bool:
        """Whether this is the difference that was meant."""
        if self.scenario != difference.scenario:
            return False
        return self.check == _EVERY or (self.check, self.status) == (difference.check, difference.through)


def failures(checks: Iterable[Check]) -> list[Check]:
    """What counts against a scenario: the suite takes a warning for a failure too."""
    return [check for check in checks if check.status in ("FAILURE", "WARNING")]


def compare(direct: Results, through: Results) -> list[Difference]:
    """Every check that is not judged alike; notes of the suite do not count."""
    found = []
    for scenario in dict.fromkeys((*direct, *through)):
        one, other = _worst(direct.get(scenario, ())), _worst(through.get(scenario, ()))
        for key in dict.fromkeys((*one, *other)):
            before = one[key].status if key in one else "ABSENT"
            after = other[key].status if key in other else "ABSENT"
            if before != after and not (before in _SILENT and after in _SILENT):
                message = other[key].message if key in other else ""
                found.append(Difference(scenario, key, before, after, message))
    return found


def _worst(checks: Iterable[Check]) -> dict[str, Check]:
    worst: dict[str, Check] = {}
    for check in checks:
        # Some ids stand for many cases, each with a name of its own.
        key = f"{check.id}/{check.name}"
        known = worst.get(key)
        if known is None or _GRAVITY.index(check.status) > _GRAVITY.index(known.status):
            worst[key] = check
    return worst


def explanations(cell: str) -> list[Explanation]:
    """What is expected to differ in this cell."""
    entries = tomllib.loads(DIFFERENCES.read_text()).get("difference", [])
    return [
        Explanation(
            cell, one["scenario"], check, one.get("status", ""), one["reason"], one.get("certain", True)
        )
        for one in entries
        if cell in one["cells"]
        for check in one["checks"]
    ]


def stale(known: Iterable[Explanation], found: list[Difference], ran: Results) -> list[Explanation]:
    """Explanations of differences that are no longer there, among the scenarios that ran."""
    expected = [one for one in known if one.certain and one.scenario in ran]
    return [one for one in expected if not any(map(one.covers, found))]
