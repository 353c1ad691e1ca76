"""Tokens are counted as the reference counts them, whatever the text is."""

import json
import lzma
import subprocess
import sys
from bisect import bisect_left
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.search.token_counter import BytePairMerges, count_tokens, load_vocabulary

HERE = Path(__file__).parent
CATALOGS = HERE.parent / "data" / "catalogs.jsonl.xz"
# Words, signs, digits, spaces and scripts, so that each rule of splitting meets each other.
PIECES = [
    *"aAsSé\u0301ǅ中ー٣1!/'\"{ \t\r\n\xa0",
    "\u017f",
    "'ll",
    "'RE",
    "😀",
    "\u200d",
    "word",
    "  ",
    "\r\n",
]

texts = st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def test_fixed_texts_have_the_counts_of_the_reference() -> None:
    """The counts are those of bpe-openai 0.1.4 and of tiktoken 0.14.0."""
    cases = json.loads((HERE / "token_counts.json").read_text("utf-8"))
    wrong = {text[:40]: count for text, count in cases if count_tokens(text.encode()) != count}
    assert len(cases) > 250
    assert wrong == {}


def test_listings_of_real_servers_have_the_counts_of_the_reference() -> None:
    expected = json.loads((HERE / "token_counts_of_catalogs.json").read_text("utf-8"))
    mark = ',"listing":'
    with lzma.open(CATALOGS, "rt", encoding="utf-8", newline="\n") as lines:
        counted = {
            json.loads(line)["server"]: count_tokens(line[line.index(mark) + len(mark) : -2].encode())
            for line in lines
        }
    assert counted == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a" * 1_000_000, 125_000),
        ("A" * 1_000_000, 125_000),
        ("!" * 1_000_000, 62_500),
        (" " * 1_000_000, 7_813),
        ("中" * 300_000, 300_000),
    ],
)
def test_a_word_of_a_million_letters_is_counted_in_its_turn(text: str, count: int) -> None:
    assert count_tokens(text.encode()) == count


@pytest.mark.parametrize("line", ["The same words, 123 of them.\n", "Dieselben Wörter, 中文 auch.\n"])
def test_a_long_text_is_counted_word_by_word_with_the_same_result(line: str) -> None:
    splitter = load_vocabulary().splitter
    assert splitter.split(line * 5_000) == splitter.split(line) * 5_000
    assert count_tokens(line.encode() * 5_000) == count_tokens(line.encode()) * 5_000


def test_counting_the_same_again_gives_the_same_when_other_words_came_between() -> None:
    text = b"the same words, uncommonwords and all"
    before = count_tokens(text)
    many = " ".join(f"w{number:x}ord" for number in range(40_000)).encode()
    assert count_tokens(many) == count_tokens(many)
    assert count_tokens(text) == before


@pytest.mark.parametrize(
    "broken", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ok \x80\x80 ok"]
)
def test_bytes_that_are_no_text_count_as_what_stands_for_them(broken: bytes) -> None:
    assert count_tokens(broken) == count_tokens(broken.decode(errors="replace").encode()) > 0


@given(texts)
def test_a_text_has_tokens_and_none_is_shorter_than_a_byte(text: str) -> None:
    content = text.encode()
    count = count_tokens(content)
    assert bool(content) <= count <= len(content)
    assert count_tokens(content) == count


@given(st.binary(max_size=80))
def test_any_bytes_are_counted(content: bytes) -> None:
    assert bool(content) <= count_tokens(content) <= 3 * len(content)


@given(texts)
def test_the_words_of_a_text_are_the_text(text: str) -> None:
    words = load_vocabulary().splitter.split(text)
    assert "".join(words) == text
    assert "" not in words


@given(st.text("abcdeéA中", min_size=1, max_size=8), st.integers(2049, 9000))
@settings(max_examples=20, deadline=None)
def test_a_long_word_counts_the_same_in_windows_and_at_once(piece: str, size: int) -> None:
    merges = load_vocabulary().merges
    word = (piece * size).encode()[:size]
    assert merges.count(word) == merges.count_at_once(word)


@pytest.mark.parametrize("symbols", [400, 401])
@pytest.mark.parametrize("before", [1500, 1501, 1502, 1503])
def test_a_word_whose_end_decides_about_its_middle_is_counted_at_once(symbols: int, before: int) -> None:
    """A made-up vocabulary in which symbols are paired from the end on, which no window can know."""
    first = [number // 128 for number in range(symbols)]
    second = [128 + number % 128 for number in range(symbols)]
    made = [(first[number], second[number], 256 + number) for number in range(symbols)]
    made += [(256 + number, 257 + number, 256 + 2 * symbols - number) for number in range(symbols - 1)]
    word = b"\x7f" * before + bytes(byte for pair in zip(first, second, strict=True) for byte in pair)
    assert merges_of(made).count(word) == before + (symbols + 1) // 2


def merges_of(made: list[tuple[int, int, int]]) -> BytePairMerges:
    """Of merges, each given by its two tokens and what they become."""
    made = sorted(made)
    lefts = [left for left, _, _ in made]
    starts = [bisect_left(lefts, token) for token in range(max(whole for _, _, whole in made) + 2)]
    rights, wholes = [right for _, right, _ in made], [whole for _, _, whole in made]
    return BytePairMerges(bytes(range(256)), starts, rights, wholes)


def test_importing_reads_no_vocabulary() -> None:
    code = (
        "from headgate.search.token_counter import count_tokens; "
        "from headgate.search.token_counter import load_vocabulary; "
        "before = load_vocabulary.cache_info().misses; count_tokens(b'a'); "
        "print(before, load_vocabulary.cache_info().misses)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=30)
    assert run.stdout.split() == [b"0", b"1"]
