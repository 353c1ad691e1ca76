"""Figures come from the rounds as promised, and goals are judged on the right ones."""

from dataclasses import replace

from bench.load.plan import Outcome
from bench.path.goals import Verdict, judge
from bench.path.scenario import LARGE, SMALL, Cell, Row, Scenario
from bench.path.summary import Figure, Table, tables

CROWD = Scenario("stdio", SMALL, 32)


def test_ratios_are_taken_within_a_round_and_then_the_median() -> None:
    # The machine got twice as slow in round 1; the ratio does not notice.
    cells = [_cell("b", 0, cpu=1.0), _cell("h", 0, cpu=1.5), _cell("b", 1, cpu=2.0), _cell("h", 1, cpu=3.0)]
    [table] = tables(cells)
    line = table.line("h")
    assert line is not None
    assert line.cpu_to_forwarder == Figure(1.5, 1.5, 1.5)
    assert line.cpu_us is not None
    assert (line.cpu_us.low, line.cpu_us.median, line.cpu_us.high) == (1.5e4, 2.25e4, 3e4)


def test_added_latency_is_what_the_upstream_alone_does_not_need() -> None:
    [table] = tables([_cell("a", 0, p50=0.001), _cell("h", 0, p50=0.004)])
    line = table.line("h")
    assert line is not None
    assert line.added_p50_ms == 3.0


def test_calls_given_up_leave_no_figure_for_cpu() -> None:
    cell = _cell("c", 0)
    [table] = tables([replace(cell, outcome=_outcome(given_up=3))])
    line = table.line("c")
    assert line is not None
    assert line.cpu_us is None
    assert line.calls_per_second is not None


TWICE = "at most 2x the CPU of the bare forwarder, 200 B, a legacy client"
TWENTY = "at least 20x less CPU than FastMCP's proxy, 200 B"
TEN = "more than 10x the calls/s of npm mcp-proxy, 200 B"


def test_goals_are_met_at_their_bounds_and_missed_beyond() -> None:
    assert [_verdicts([2.0] * 3)[goal].met for goal in (TWICE, TWENTY, TEN)] == [True, True, True]
    assert [_verdicts([2.1] * 3)[goal].met for goal in (TWICE, TWENTY)] == [False, False]
    assert _verdicts([2.0] * 3, npm_calls=10)[TEN].met is False


def test_a_goal_met_in_some_samples_only_says_so() -> None:
    verdict = _verdicts([1.5, 1.9, 2.4])[TWICE]
    assert (verdict.met, verdict.caveat) == (True, "not in every sample")
    assert verdict.measured == "1.90x (1.50..2.40)"
    assert _verdicts([1.5, 1.6, 1.9])[TWICE].caveat == ""


def test_one_sample_is_too_few_to_judge() -> None:
    assert _verdicts([0.7])[TWICE].caveat == "too few samples to judge"


def test_a_goal_is_missed_when_calls_failed() -> None:
    verdict = _verdicts([1.0] * 3, errors=2)[TWICE]
    assert (verdict.met, verdict.caveat) == (False, "6 of Headgate's calls failed")


def test_a_goal_without_its_candidate_is_not_called_met() -> None:
    assert {verdict.met for verdict in judge([], 1.0)} == {None}


def test_a_large_result_that_costs_more_than_parsing_misses_its_goal() -> None:
    found: list[Table] = tables([_cell("h", 0, cpu=1.0, scenario=Scenario("stdio", LARGE, 1))])
    assert judge(found, parse_cpu_us=10_001.0)[-1].met is True
    assert judge(found, parse_cpu_us=10_000.0)[-1].met is False


def _verdicts(headgate: list[float], npm_calls: int = 9, errors: int = 0) -> dict[str, Verdict]:
    cells = []
    for turn, cpu in enumerate(headgate):
        cells += [_cell("b", turn, cpu=1.0), _cell("c", turn, cpu=40.0)]
        cells += [replace(_cell("h", turn), outcome=_outcome(cpu=cpu, errors=errors))]
        cells += [replace(_cell("e", turn), outcome=_outcome(calls=npm_calls))]
    return {verdict.goal: verdict for verdict in judge(tables(cells), 1.0)}


def _cell(key: str, turn: int, cpu: float = 1.0, p50: float = 0.001, scenario: Scenario = CROWD) -> Cell:
    return Cell(scenario, Row(key, key), turn, _outcome(cpu=cpu, p50=p50))


def _outcome(
    cpu: float = 1.0, p50: float = 0.001, calls: int = 100, given_up: int = 0, errors: int = 0
) -> Outcome:
    return Outcome(
        calls=calls,
        errors=errors,
        given_up=given_up,
        first_error="",
        elapsed=1.0,
        cpu=cpu,
        generator_cpu=0.1,
        p50=p50,
        p99=p50,
    )
