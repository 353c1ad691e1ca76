"""What counts as a difference, and when an explanation of one is stale."""

import tomllib

from conformance.cells import CELLS
from conformance.comparison import DIFFERENCES, Difference, Explanation, compare, explanations, stale
from conformance.suite import Check, Results

GOOD = Check("a", "A", "SUCCESS")
BAD = Check("a", "A", "FAILURE", "broken")


def explained(status: str, check: str = "a/A") -> Explanation:
    return Explanation("2025/http", "ping", check, status, "it is so")


def test_a_check_that_fails_only_through_the_gateway_is_a_difference() -> None:
    assert compare({"ping": (GOOD,)}, {"ping": (BAD,)}) == [
        Difference("ping", "a/A", "SUCCESS", "FAILURE", "broken")
    ]


def test_the_worst_of_several_checks_with_one_name_counts() -> None:
    assert compare({"ping": (GOOD, GOOD)}, {"ping": (GOOD, BAD, GOOD)})[0].through == "FAILURE"


def test_a_check_that_is_no_longer_made_is_a_difference() -> None:
    assert compare({"ping": (GOOD,)}, {"ping": ()})[0].through == "ABSENT"


def test_a_scenario_that_did_not_run_is_a_difference() -> None:
    assert compare({"ping": (GOOD,)}, {})[0].scenario == "ping"


def test_notes_of_the_suite_are_no_difference() -> None:
    assert compare({"ping": (Check("n", "N", "INFO"),)}, {"ping": ()}) == []


def test_an_explanation_covers_only_the_status_that_it_names() -> None:
    found = compare({"ping": (GOOD,)}, {"ping": (BAD,)})[0]
    assert explained("FAILURE").covers(found)
    assert explained("", "*").covers(found)
    assert not explained("WARNING").covers(found)


def test_an_explanation_of_what_is_gone_is_stale_once_its_scenario_ran() -> None:
    ran: Results = {"ping": (GOOD,)}
    assert stale([explained("FAILURE")], [], ran) == [explained("FAILURE")]
    assert stale([explained("FAILURE")], [], {"tools-list": (GOOD,)}) == []


def test_an_explanation_that_depends_on_the_machine_is_never_stale() -> None:
    unsure = Explanation("2025/http", "ping", "a/A", "FAILURE", "it is slow", certain=False)
    assert stale([unsure], [], {"ping": (GOOD,)}) == []


def test_every_explanation_names_cells_that_exist_and_says_why() -> None:
    entries = tomllib.loads(DIFFERENCES.read_text())["difference"]
    assert {cell for one in entries for cell in one["cells"]} <= CELLS.keys()
    assert all(one["reason"] and (one.get("status") or one["checks"] == ["*"]) for one in entries)
    assert sum(len(explanations(cell)) for cell in CELLS) == sum(
        len(one["cells"]) * len(one["checks"]) for one in entries
    )
