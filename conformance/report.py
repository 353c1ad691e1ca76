"""What a run shows: a table per cell, what differs, and one line per cell at the end."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from conformance.cells import Cell
from conformance.comparison import Difference, Explanation, failures
from conformance.suite import Check, Results

_MESSAGE_LENGTH: Final = 300
_BEGIN: Final = "<!-- results:begin -->"
_END: Final = "<!-- results:end -->"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one cell."""

    cell: Cell
    required: frozenset[str]
    direct: Results
    through: Results
    unexplained: list[Difference]
    explained: list[Difference]
    explanations: list[Explanation]
    stale: list[Explanation]
    seconds: float

    @property
    def failing(self) -> list[str]:
        """Required scenarios that fail without the gateway: then the fixture is at fault."""
        return [one for one in self.direct if one in self.required and failures(self.direct[one])]

    @property
    def passed(self) -> bool:
        """Whether nothing is unexplained and the fixture is sound."""
        return not (self.failing or self.unexplained or self.stale)


def table(verdict: Verdict) -> str:
    """Every scenario with its score on both sides, then what differs."""
    lines = [
        f"\n## {verdict.cell.name}: requirements {verdict.cell.revision}, {verdict.cell.what}\n",
        "| scenario | | direct | through | |",
        "|---|---|---|---|---|",
    ]
    for scenario in dict.fromkeys((*verdict.direct, *verdict.through)):
        kind = "required" if scenario in verdict.required else "unscored"
        one, other = verdict.direct.get(scenario, ()), verdict.through.get(scenario, ())
        lines.append(
            f"| {scenario} | {kind} | {_score(one)} | {_score(other)} | {_word(verdict, scenario)} |"
        )
    lines += [""]
    lines += [_line("DIFFERENT", one) for one in verdict.unexplained]
    lines += [_line("explained", one) for one in verdict.explained]
    lines += [f"STALE {one.scenario} {one.check}: explained, but no longer so" for one in verdict.stale]
    lines += [
        f"FIXTURE {scenario}: {check.id} {check.message}"
        for scenario in verdict.failing
        for check in failures(verdict.direct[scenario])
    ]
    return "\n".join(lines)


def summary(verdicts: Iterable[Verdict]) -> str:
    """One line per cell."""
    lines = [
        "\n| cell | revision | server behind it | direct | through | explained | unexplained | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in verdicts:
        direct, through = _total(one.direct), _total(one.through)
        counts = f"{len(one.explained)} | {len(one.unexplained) + len(one.stale)} | {one.seconds:.0f}"
        lines.append(
            f"| {one.cell.name} | {one.cell.revision} | {one.cell.what} | {direct} | {through} | {counts} |"
        )
    return "\n".join(lines)


def document(text: str, verdicts: list[Verdict]) -> str:
    """The page with its results written anew."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    if not after and _END not in rest:
        raise ValueError(f"the page has no {_BEGIN} and {_END}")
    return f"{before}{_BEGIN}\n{summary(verdicts).strip()}\n\n{_reasons(verdicts)}{_END}{after}"


def _reasons(verdicts: Iterable[Verdict]) -> str:
    """Every explained difference under its reason, with the cells that it is seen in."""
    seen: dict[str, dict[str, list[str]]] = {}
    for verdict in verdicts:
        for one in verdict.explained:
            reason = next(each.reason for each in verdict.explanations if each.covers(one))
            what = f"`{one.scenario}`: `{one.check}` {one.direct} → {one.through}"
            seen.setdefault(reason, {}).setdefault(what, []).append(verdict.cell.name)
    lines = ["### What differs, and why\n"]
    for reason, found in seen.items():
        lines.append(f"{reason}\n")
        lines += [f"- {what} ({', '.join(cells)})" for what, cells in found.items()]
        lines.append("")
    return "\n".join(lines) if seen else ""


def _total(results: Results) -> str:
    return _score(check for checks in results.values() for check in checks)


def _score(checks: Iterable[Check]) -> str:
    known = list(checks)
    passed = sum(check.status == "SUCCESS" for check in known)
    return f"{passed}/{len(failures(known))}"


def _word(verdict: Verdict, scenario: str) -> str:
    if any(one.scenario == scenario for one in verdict.unexplained):
        return "DIFFERENT"
    return "explained" if any(one.scenario == scenario for one in verdict.explained) else ""


def _line(word: str, one: Difference) -> str:
    message = f": {one.message[:_MESSAGE_LENGTH]}" if one.message else ""
    return f"{word} {one.scenario} {one.check}: {one.direct} -> {one.through}{message}"
