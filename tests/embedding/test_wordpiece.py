"""Texts are cut as the models expect, whatever is in them."""

import pytest

from headgate.embedding.minilm import WordPiece

MARKS = ["[UNK]", "[CLS]", "[SEP]"]
PIECES = [*MARKS, "file", "##s", "read", "##ing", "cafe", "$", "5", "-", "中", "文", "[", "]"]
MOST = 32


def cut(text: str, most: int = MOST) -> list[str]:
    return [PIECES[number] for number in WordPiece(PIECES).numbers(text, most)]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("  \t\n ", []),
        ("file", ["file"]),
        ("Files", ["file", "##s"]),
        ("reading files", ["read", "##ing", "file", "##s"]),
        ("Café", ["cafe"]),
        ("Cafe\u0301", ["cafe"]),
        ("$5", ["$", "5"]),
        ("file-file", ["file", "-", "file"]),
        ("中文", ["中", "文"]),
        ("fi\x00le\u200b", ["file"]),
        ("file\u00a0file", ["file", "file"]),
        ("unheard", ["[UNK]"]),
        ("fileunheard", ["[UNK]"]),
        ("s", ["[UNK]"]),
        ("x" * 101 + " file", ["[UNK]", "file"]),
    ],
)
def test_a_text_becomes_pieces_between_two_marks(text: str, pieces: list[str]) -> None:
    assert cut(text) == ["[CLS]", *pieces, "[SEP]"]


def test_a_mark_that_stands_in_a_text_is_text() -> None:
    assert cut("[SEP]") == ["[CLS]", "[", "[UNK]", "]", "[SEP]"]


def test_a_long_text_is_cut_off_before_the_last_mark() -> None:
    assert cut("file " * 1_000, most=5) == ["[CLS]", "file", "file", "file", "[SEP]"]


def test_the_pieces_of_each_part_are_found() -> None:
    text = "file; reading files, cafe"
    pieces = WordPiece(PIECES)
    numbers, places = pieces.numbers_and_places(text, [(0, 4), (6, 19), (21, 25)], MOST)
    assert numbers == pieces.numbers(text, MOST)
    assert [[PIECES[number] for number in numbers[start:end]] for start, end in places] == [
        ["file"],
        ["read", "##ing", "file", "##s"],
        ["cafe"],
    ]


def test_a_part_that_is_cut_off_has_no_pieces() -> None:
    numbers, places = WordPiece(PIECES).numbers_and_places("file " * 8, [(0, 9), (10, 19), (20, 29)], 5)
    assert len(numbers) == 5
    assert places == [(1, 3), (3, 4), (4, 4)]
