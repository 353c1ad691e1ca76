"""A report is read in a terminal: it fits, and nothing in it is obeyed."""

import pytest

from headgate.catalog.evaluation.evaluation_report import (
    SearchabilityReport,
    UnreachedServer,
    format_report,
    limit_rows,
    report_on_catalog,
    report_on_set,
)
from headgate.catalog.evaluation.labelled_set import QueryRun, read_labelled_set
from headgate.catalog.evaluation.searchability import SyntheticQuery
from headgate.domain.terminal import table_lines, wrap_text
from tests.catalog.evaluation.catalog_samples import document

LONG = "x" * 70


def report(count: int = 3) -> SearchabilityReport:
    """A catalog in which every tool but the first is taken for the first."""
    tools = [
        document("server", f"tool_{number}", f"Handle things {number} {LONG}.") for number in range(count)
    ]
    asked = [SyntheticQuery(one.key, "handle things") for one in tools]
    answers = [QueryRun((("server", "tool_0"),), 0.001) for _ in tools]
    unreached = [UnreachedServer("away", "'away' could not be reached")]
    return report_on_catalog(tools, asked, answers, unreached, version="1", model=None)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = format_report(report(), width, 10).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


def test_a_terminal_that_is_too_narrow_gets_what_fits_sixty_columns() -> None:
    assert format_report(report(), 5, 10) == format_report(report(), 60, 10)


def test_everything_that_was_found_out_is_said() -> None:
    text = format_report(report(), 100, 10)
    for words in (
        "3 tools of 1 server, 3 requests",
        "words alone",
        "Not checked: 'away' could not be reached",
        "0 of 3",
        "0.333",
        "server:tool_1",
        "p50 1.00 ms",
        "0 of 1",
    ):
        assert words in text


def test_lists_are_cut_and_say_so() -> None:
    text = format_report(report(30), 100, 5)
    assert "(5 of 29; --limit shows more)" in text
    assert "server:tool_28" not in text
    assert "limit" not in format_report(report(30), 100, 100)


def test_a_report_is_cut_for_json_in_the_same_way() -> None:
    cut = limit_rows(report(30), 5)
    assert isinstance(cut, SearchabilityReport)
    assert (len(cut.confusions), len(cut.weaknesses), cut.tools) == (5, 5, 30)


def test_what_a_terminal_would_obey_is_not_sent_to_it() -> None:
    evil = "a\x1b[2Jb\nc\u202e"
    tools = [f'{{"id":"{number}","name":"n{number}"}}' for number in range(2)]
    tools.append('{"id":"a\\u001b[2Jb","name":"e"}')
    labelled = read_labelled_set(tools, ['{"query":"a\\u001b]0;x\\u0007\\nb","gold":["a\\u001b[2Jb"]}'])
    text = format_report(report_on_set(evil, labelled, [QueryRun((), 0.1)], version="1", model=evil), 100, 10)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "nothing" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_columns_give_way_and_numbers_stand_to_the_right() -> None:
    lines = table_lines(("name", "n", "text"), [("a" * 90, "7", "one two three"), ("b", "12", "four")], 40)
    assert max(map(len, lines)) <= 40
    assert ".." in lines[1]
    place = lines[0].index(" n ") + 1
    assert [line[place] for line in lines if line[place].isdigit()] == ["7", "2"]


def test_a_set_is_worded_with_what_was_left_out_and_missed() -> None:
    questions = ['{"query":"read it","gold":["a"]}', '{"query":"later","gold":["a"],"split":"test"}']
    labelled = read_labelled_set(['{"id":"a","name":"n"}', '{"id":"b","name":"m"}'], questions)
    wrong = next(key for key, identifier in labelled.identifiers.items() if identifier == "b")
    text = format_report(
        report_on_set("set", labelled, [QueryRun((wrong,), 0.1)], version="1", model="minilm"), 100, 10
    )
    for words in (
        "set: 1 labelled request over 2 tools",
        "1 request of the split 'test'",
        "words and minilm",
    ):
        assert words in text
    assert "without the model" in text
    assert text.splitlines()[-1].split() == ["a", "b", "read", "it"]


def test_letters_that_are_twice_as_wide_take_twice_the_room() -> None:
    lines = table_lines(("name", "text"), [("天気予報" * 10, "我想知道上海目前的天气状况" * 4)], 60)
    assert all(len(line.encode("gb18030")) <= 60 for line in lines)
    assert len(lines) > 3


def test_a_word_that_is_wider_than_a_line_is_cut() -> None:
    assert wrap_text("ab " + "x" * 25, 10) == ["ab", "x" * 10, "x" * 10, "x" * 5]
    assert wrap_text("", 10) == [""]


@pytest.mark.parametrize("width", [-3, 0, 1])
def test_no_width_is_too_narrow_for_a_letter(width: int) -> None:
    assert "".join(wrap_text("ab cd", width)) == "abcd"
