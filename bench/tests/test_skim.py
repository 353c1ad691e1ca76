"""The texts of section `skim` are what they are called, and each way is measured or said to be unable."""

import json

import pytest

from bench import skim
from bench.options import Options


def test_the_texts_are_messages_of_the_promised_size() -> None:
    for name, text in skim.texts(100_000, 50).items():
        message = json.loads(text)
        assert list(message) == ["jsonrpc", "id", "result"]
        assert len(text) > 90_000 or name == "50 deep"


def test_the_escaped_text_is_full_of_escaped_quotes_and_line_breaks() -> None:
    text = skim.texts(100_000, 1)["escaped string"]
    assert min(text.count(rb"\""), text.count(rb"\n")) > 1_000


def test_a_text_that_ends_elsewhere_is_not_measured() -> None:
    with pytest.raises(AssertionError, match="was found at"):
        skim.measure("padded", skim.texts(1_000, 1)["plain string"] + b" ", 1)


def test_a_short_run_measures_all_and_says_what_no_parser_can_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = skim.run(Options(quick=True, candidates="abcdehm"))
    lines = figures["lines"]
    assert isinstance(lines, list)
    unable = [(one["text"], one["way"]) for one in lines if one["cpu_seconds"] is None]
    assert unable == [
        ("100,000 deep", "msgspec.json.decode, whole"),
        ("100,000 deep", "json.loads, whole"),
    ]
    table = capsys.readouterr().out
    assert table.count("cannot") == 2
    assert table.count("skim, ") == 8
    assert table.count("regex, ") == 2
