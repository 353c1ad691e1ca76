"""Plain text in every encoding that people still have."""

import pytest

from headgate.knowledge.readers.text import day_of, parse
from tests.knowledge.readers.sample_files import text_of


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_a_text_is_the_same_in_every_encoding(encoding: str) -> None:
    assert text_of(parse("Café “Zürich”\r\nsecond".encode(encoding))) == "Café “Zürich”\nsecond"


def test_what_no_store_could_keep_is_left_out() -> None:
    assert text_of(parse(b"a\x00b\x07c\td")) == "abc\td"
    assert text_of(parse("a\x80b\x96c\x9fd".encode())) == "abcd"
    assert text_of(parse("a\x85b\u2028c".encode())) == "a\nb\nc"
    assert text_of(parse(b"odd \x81 byte")) == "odd \ufffd byte"


def test_half_a_character_at_the_end_is_no_reason_to_fail() -> None:
    assert text_of(parse("ab\u20ac".encode("utf-16")[:-1])) == "ab\ufffd"


@pytest.mark.parametrize(
    ("written", "day"),
    [
        ("2026-11-16T10:00:00Z", "2026-11-16"),
        ("D:20261116093000+01'00'", "2026-11-16"),
        ("16.11.2026", "2026-11-16"),
        ("16 November 2026", "2026-11-16"),
        ("Mon, 16 Nov 2026 10:00:00 GMT", "2026-11-16"),
        ("Nov. 16th, 2026", "2026-11-16"),
        ("2026-02-30", ""),
        ("11/12/2026", ""),
        ("soon", ""),
    ],
)
def test_a_day_is_understood_when_it_can_be_only_one(written: str, day: str) -> None:
    assert day_of(written) == day
