"""A pattern of an agent is matched in linear time, or refused in a sentence that says where it is wrong."""

import re
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.pipeline import ProcessingError
from headgate.results.regex import MAX_HITS, MAX_PATTERN_BYTES, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "position", "reason"),
    [
        ("a(b", 1, "missing )"),
        ("(a)(b[)]", 3, "missing )"),
        ("a)b", 1, "unexpected )"),
        ("ab[c", 2, "missing ]"),
        ("a**", 1, "bad repetition operator"),
        ("*a", 0, "no argument for repetition operator"),
        ("x[z-a]", 2, "invalid character class range"),
        ("é\\", 1, "trailing"),
        (r"\\d\8", 3, "invalid escape sequence"),
        ("a{2,1}", 1, "invalid repetition size"),
        ("a\ud800", 1, "surrogate"),
        (r"a\C", 1, "write a dot"),
    ],
)
def test_an_invalid_pattern_is_refused_with_its_position_and_the_reason(
    pattern: str, position: int, reason: str
) -> None:
    with pytest.raises(
        ProcessingError, match=f"^invalid regex at position {position}: .*{re.escape(reason)}"
    ):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["a(?=b)", "(?!x)a", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?P<n>a)(?P=n)"])
def test_look_around_and_back_references_are_refused_with_a_hint(pattern: str) -> None:
    with pytest.raises(ProcessingError, match=r"^invalid regex at position \d+: .*linear time"):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "a" * (MAX_PATTERN_BYTES + 1),
        "|".join(f"word{number}" for number in range(50_000)),
        "(((a{100}){100}){100}){100}",
        "((((((a{9}){9}){9}){9}){9}){9}){9}",
        r"\pL{900}",
        "(.{100}x){50}",
        "a{1001}",
    ],
)
def test_a_pattern_that_would_take_too_much_memory_is_refused_at_once(pattern: str) -> None:
    with pytest.raises(ProcessingError, match=r"too large|characters|repetition"):
        compile_pattern(pattern)


@pytest.mark.parametrize("sign", ["a", "é", "\ufdfa", "\U0001f600", "\ud800"])
def test_the_limit_of_a_pattern_counts_bytes_in_any_script(sign: str) -> None:
    most = MAX_PATTERN_BYTES // len(sign.encode(errors="surrogatepass"))
    with pytest.raises(
        ProcessingError, match=rf"^the pattern is too large: it has {1024 + 3} bytes in UTF-8, at most"
    ):
        compile_pattern(sign * most + "x" * (1024 + 3 - most * len(sign.encode(errors="surrogatepass"))))
    if sign != "\ud800":
        assert compile_pattern(sign * most).search((sign * most).encode()) is not None


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "([a-z]+)*5$", "(a|aa)+$", "(a|a?)+5$", "(.*a){20}$", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_a_pattern_that_makes_others_backtrack_for_ever_is_done_at_once(pattern: str) -> None:
    text = b"a" * 100_000 + b"!"
    assert compile_pattern(pattern).search(text) is None


@pytest.mark.parametrize("sign", [r"\s", "[^x]", r"\W", r"\D", r"\PN", "(?s:.)", r"\n", r"[\x00-\x20]", "\n"])
def test_without_multiline_nothing_matches_the_end_of_a_line(sign: str) -> None:
    assert compile_pattern(f"a{sign}b").search(b"a\nb") is None
    assert compile_pattern(f"a{sign}b", multiline=True).search(b"a\nb") == (0, 3)


def test_beginnings_and_ends_are_those_of_lines() -> None:
    assert list(compile_pattern("^b$").find_hits(b"ab\nb\nb")) == [(3, 4), (5, 6)]


def test_case_may_be_ignored_in_any_script() -> None:
    assert compile_pattern("straße ÉTÉ", case_insensitive=True).search("STRAßE été".encode()) == (0, 13)


def test_an_empty_hit_comes_once_for_each_character_and_the_end() -> None:
    assert list(compile_pattern("x*").find_hits("é漢".encode())) == [(0, 0), (2, 2), (5, 5)]


def test_hits_far_apart_are_found_and_over_line_ends_too() -> None:
    content = b"-" * 300_000 + b"Start\n" + b"-" * 50_000 + b"\nEnd" + b"-" * 300_000
    pattern = compile_pattern("Start.*End", multiline=True)
    assert list(pattern.find_hits(content)) == [(300_000, 350_010)]


def test_a_hit_that_may_go_on_to_the_end_is_not_looked_for_there_each_time() -> None:
    # Each of these hits would read all that follows, and there are as many as there are bytes.
    pattern = compile_pattern("x(.*y)?", multiline=True)
    content = b"x" * 3_000_000
    assert len(list(islice(pattern.find_hits(content), 300))) == 300


@pytest.mark.parametrize(
    "pattern", ["a(?:.*b)?", "a.*z|a", "a[^b]*", r"a\s+", r"a[\s\S]{2,}?b", "(?:a|b)+", r"\W*"]
)
def test_of_hits_that_may_run_on_over_line_ends_fewer_are_counted(pattern: str) -> None:
    assert compile_pattern(pattern, multiline=True).max_hits == 2048
    assert compile_pattern(pattern).max_hits == MAX_HITS


@pytest.mark.parametrize(
    "pattern", ["a", r"\d+ ms", "[a-z]+@[a-z.]+", r"[\w.-]+", "a.{0,50}b", "x*", r"a\.+", r"\*"]
)
def test_of_hits_that_end_with_their_line_more_are_counted(pattern: str) -> None:
    assert compile_pattern(pattern, multiline=True).max_hits == 20_000


def test_millions_of_hits_come_one_after_the_other() -> None:
    hits = compile_pattern("a").find_hits(b"a" * 2_400_000)
    assert sum(1 for _ in islice(hits, MAX_HITS // 4)) == MAX_HITS // 4


@settings(max_examples=60, deadline=None)
@given(pattern=st.text(st.sampled_from("ab(|)[]^$*+?{}1,\\dZz.Q:é"), max_size=12), text=st.text("ab1é\n"))
def test_whatever_is_written_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    content = text.encode()
    for multiline in (False, True):
        try:
            made = compile_pattern(pattern, multiline=multiline)
        except ProcessingError:
            continue
        for searched in (made, made.for_values, made.prefilter):
            spans = [] if searched is None else list(searched.find_hits(content))
            assert spans == sorted(set(spans))


@settings(max_examples=60, deadline=None)
@given(
    pattern=st.sampled_from(["a", "^a", "b$", "a.b", "[^a]b", r"\s", "x*", "(?:a|ab)+", r"\bb"]),
    text=st.text("ab \n", max_size=40),
)
def test_hits_are_those_of_the_standard_library_line_by_line(pattern: str, text: str) -> None:
    content = text.encode()
    expected, start = [], 0
    for line in text.split("\n"):
        found = re.search(pattern, line)
        if found is not None:
            expected.append(start + found.start())
        start += len(line) + 1

    def end_of_line(position: int) -> int:
        end = content.find(b"\n", position)
        return len(content) if end < 0 else end

    assert [
        start for start, _, _ in compile_pattern(pattern).first_hit_per_part(content, end_of_line)
    ] == expected


@pytest.mark.parametrize("many", [1, 5, 40])
def test_of_parts_with_few_or_many_hits_each_is_given_once(many: int) -> None:
    lines = [b"-" if number % 7 == 3 else b"a" * (many if number % 90 < 70 else 1) for number in range(400)]
    content = b"\n".join(lines)

    def end_of_line(position: int) -> int:
        end = content.find(b"\n", position)
        return len(content) if end < 0 else end

    found = [
        content[start:end] for start, _, end in compile_pattern("a").first_hit_per_part(content, end_of_line)
    ]
    assert found == [line for line in lines if line != b"-"]
