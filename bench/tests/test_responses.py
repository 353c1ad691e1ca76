"""Section `responses` measures what it says: fixed results, and two versions that find the same."""

import json

import pytest

from bench.responses import plain
from bench.responses.conversations import ERRORS, Step, Talk, definitions
from bench.responses.operations import JSON, LOG, OPERATIONS, Differs, Operation
from bench.responses.plain import Shown
from bench.responses.speed import Timed, growth, speed
from bench.responses.workloads import NEEDLE, deep, items, log, result_of, rows


def test_results_are_the_same_every_time() -> None:
    assert (log(20_000, 5), items(20_000), rows(), deep()) == (log(20_000, 5), items(20_000), rows(), deep())


def test_results_are_what_they_are_called() -> None:
    lines = log(1_000_000, ERRORS).splitlines()
    assert sum(" ERROR " in line for line in lines) == ERRORS == 200
    assert {len(row) for row in json.loads(rows())} == {15}
    assert deep().count("CrashLoopBackOff") == 1


def test_every_operation_finds_what_the_standard_library_finds() -> None:
    timed = speed((30_000,), seconds=0.0)
    assert [(one.operation, one.kind) for one in timed] == [(one.name, one.kind) for one in OPERATIONS]
    assert all(one.ms > 0 and one.plain_ms > 0 for one in timed)


@pytest.mark.parametrize("kind", [JSON, LOG])
def test_a_version_that_misses_a_hit_is_not_timed(kind: str) -> None:
    text = items(30_000) if kind == JSON else log(30_000)
    regex = next(one for one in OPERATIONS if (one.name, one.kind) == ("regex", kind))
    found = regex.plain(text)
    assert found.hits
    with pytest.raises(Differs):
        regex.compare(regex.ours(result_of(text))(), Shown(found.text, found.hits - 1), text)


def test_a_reply_without_what_is_looked_for_is_not_timed() -> None:
    text = log(30_000)
    lost = Operation(
        name="read", kind=LOG, plain=plain.last_lines, tool="proxy_read", arguments={}, shows=NEEDLE
    )
    with pytest.raises(Differs):
        lost.compare(lost.ours(result_of(text))(), Shown(NEEDLE), text)


def test_growth_is_one_for_ten_times_the_time_and_two_for_a_hundred_times() -> None:
    assert growth(_timed(10.0, 100.0), "filter", JSON) == pytest.approx(1.0)
    assert growth(_timed(10.0, 1000.0), "filter", JSON) == pytest.approx(2.0)


def _timed(*times: float) -> list[Timed]:
    return [
        Timed(operation="filter", kind=JSON, size=3 * 10**power, rounds=3, plain_rounds=1, ms=ms, plain_ms=ms)
        for power, ms in enumerate(times, 6)
    ]


def test_what_is_asked_and_what_is_listed_is_not_saved() -> None:
    talk = Talk(
        workload="log",
        way="search",
        whole=10_000,
        whole_asked=10,
        steps=[Step("up_log", 10, 400), Step("proxy_search", 50, 600)],
    )
    assert talk.saved == pytest.approx(0.9)
    assert talk.saved_net() == pytest.approx(0.895)
    assert talk.saved_net(500) == pytest.approx(0.845)
    assert 0 < definitions()["stubs"] < definitions()["whole"]
