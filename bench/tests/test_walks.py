"""Section `walks` counts the functions of Headgate that a request enters, and nothing else."""

import sys
from pathlib import Path

import headgate
from bench import walks
from bench.options import Options
from bench.walk_recorder import Recorder
from headgate.protocol.jsonrpc import one_line


def test_a_recorder_names_functions_of_the_package_in_the_order_of_the_first_call() -> None:
    recorder = Recorder(Path(headgate.__file__).parent)
    sys.setprofile(recorder.profile)
    try:
        one_line(b"1")
        recorder.start()
        one_line(b"2")
        recorder.start()
        one_line(b"3")
        Path("elsewhere").with_suffix("")
        entered = recorder.stop()
        one_line(b"4")
    finally:
        sys.setprofile(None)
    assert entered == [("headgate.protocol.jsonrpc", "one_line")]


def test_a_run_records_every_walk_and_lists_its_functions() -> None:
    figures = walks.run(Options(quick=True, candidates="abcdehm", list_functions=True))["walks"]
    assert isinstance(figures, list)
    found = {one["walk"]: [tuple(function) for function in one["functions"]] for one in figures}
    assert list(found) == [
        "plain call",
        "keyed call",
        "stored result and a search in it",
        "retrieve_tools",
        "knowledge search",
    ]
    call = ("headgate.gateway.calls", "ToolCalls.call")
    assert all(call in functions for functions in found.values())
    assert len(set(found["plain call"])) == len(found["plain call"])
    assert len(found["plain call"]) < min(
        len(functions) for name, functions in found.items() if name != "plain call"
    )


def test_a_plain_call_stays_short_enough_to_read() -> None:
    plain = next(one for one in walks.measure() if one.walk == "plain call")
    assert len(plain.modules) <= walks.MOST_MODULES
    assert len(plain.functions) <= walks.MOST_FUNCTIONS
