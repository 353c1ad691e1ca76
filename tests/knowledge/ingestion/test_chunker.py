"""Chunks: along headings, paragraphs, sentences and words, with nothing lost and nothing cut needlessly."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.knowledge.ingestion.chunker import chunk_document, slice_sections
from headgate.knowledge.ingestion.document_source import DocumentSection
from headgate.search.token_counter import count_tokens


def count(text: str) -> int:
    """Tokens as models count them."""
    return count_tokens(text.encode())


def by_words(text: str) -> int:
    """A token for each word, so that sizes can be read off a test; a long word has several."""
    return sum(1 + len(word) // 20 for word in text.split())


def prose(words: int, word: str = "word") -> str:
    """A paragraph without an end of a sentence."""
    return " ".join(f"{word}{number}" for number in range(words)) + "\n\n"


SECTIONS = st.lists(
    st.builds(
        DocumentSection,
        st.lists(st.sampled_from("ABC"), max_size=3).map(tuple),
        st.text(st.sampled_from("ab .!?\n\t`#é漢"), min_size=1, max_size=200),
        st.booleans(),
        st.booleans(),
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(SECTIONS, st.integers(2, 40), st.integers(0, 10))
def test_without_overlaps_the_pieces_are_the_text(
    sections: list[DocumentSection], size: int, overlap: int
) -> None:
    overlap = min(overlap, size - 1)
    found = list(slice_sections(sections, count, size=size, overlap=overlap))
    assert "".join(piece.text[piece.overlap :] for piece in found) == "".join(
        section.text for section in sections
    )


@settings(max_examples=60)
@given(st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=120), st.integers(4, 30))
def test_no_word_is_cut_and_no_piece_is_too_large(words: list[str], size: int) -> None:
    found = chunk_document("f", [DocumentSection((), " ".join(words))], by_words, size=size, overlap=2)
    assert {word for chunk in found for word in chunk.text.split()} == set(words)
    assert all(by_words(chunk.text) <= size for chunk in found)


def test_a_word_that_is_too_long_by_itself_is_cut() -> None:
    found = chunk_document(
        "f", [DocumentSection((), f"before {'x' * 5000} after")], count, size=40, overlap=5
    )
    assert all(count(chunk.text) <= 40 for chunk in found)
    assert sum(chunk.text.count("x") for chunk in found) >= 5000


def test_the_header_is_the_file_and_the_headings_above() -> None:
    [chunk] = chunk_document("docs/a.md", [DocumentSection(("Terms", "Payment"), "30 days")], by_words)
    assert chunk.header == "docs/a.md > Terms > Payment"
    assert (chunk.text, chunk.tokens) == ("30 days", 2)


def test_a_heading_of_a_page_is_shortened_in_the_header() -> None:
    [chunk] = chunk_document("f", [DocumentSection(("h" * 500,), "x")], by_words)
    assert len(chunk.header) < 150
    assert chunk.header.endswith("…")


def headed(path: str, words: int) -> DocumentSection:
    """A section as parsers give it: its heading is the first line of its text."""
    headings = tuple(path.split("/"))
    return DocumentSection(headings, f"{'#' * len(headings)} {headings[-1]}\n\n{prose(words, headings[-1])}")


def headers(sections: list[DocumentSection], size: int) -> list[str]:
    return [chunk.header for chunk in chunk_document("f", sections, by_words, size=size, overlap=5)]


def test_small_sections_share_a_chunk_which_has_the_headings_that_it_begins_under() -> None:
    sections = [headed("A/B/C", 18), headed("A/B/D", 18), headed("A/E", 38)]
    assert headers(sections, 60) == ["f > A > B > C", "f > A > E"]
    [whole] = chunk_document("f", sections, by_words)
    assert whole.header == "f > A > B > C"
    assert [line for line in whole.text.split("\n") if line.startswith("#")] == ["### C", "### D", "## E"]


def test_top_level_sections_share_a_chunk_too() -> None:
    sections = [DocumentSection((), "before\n\n"), headed("A", 5), headed("B", 5)]
    assert headers(sections, 60) == ["f"]
    assert headers(sections[1:], 60) == ["f > A"]


def test_the_rest_of_a_section_keeps_its_heading_when_others_follow_it() -> None:
    long = DocumentSection(
        ("Manual", "Backup"), "## Backup\n\n" + "".join(prose(20, f"b{n}") for n in range(4))
    )
    found = chunk_document("f", [long, headed("Manual/Restore", 10)], by_words, size=60, overlap=5)
    assert [chunk.header for chunk in found] == ["f > Manual > Backup"] * 2
    assert "## Restore" in found[1].text


def test_a_part_of_a_section_keeps_its_heading_when_the_next_section_follows_it() -> None:
    sections = [
        headed("Manual/Windows", 50),
        headed("Manual/Windows/Install", 15),
        headed("Manual/Linux", 15),
    ]
    assert headers(sections, 60) == ["f > Manual > Windows", "f > Manual > Windows > Install"]


@settings(max_examples=100)
@given(st.lists(st.tuples(st.lists(st.sampled_from("ABC"), min_size=1, max_size=3), st.integers(0, 40))))
def test_whatever_is_read_stands_under_headings_that_the_header_or_the_text_before_it_names(
    outline: list[tuple[list[str], int]],
) -> None:
    sections = [headed("/".join(path), words) for path, words in outline]
    found = list(slice_sections(sections, by_words, size=30, overlap=3))
    for piece in found:
        seen = set(piece.path)
        for line in piece.text[piece.overlap :].split("\n"):
            if line.startswith("#"):
                seen.add(line.lstrip("# "))
            elif line.strip():
                assert re.split(r"\d", line.strip())[0] in seen


def test_headings_without_text_are_above_the_sections_that_share_a_chunk() -> None:
    sections = [DocumentSection(("Title",), "# Title\n\n"), headed("Title/Setup", 5), headed("Title/Use", 5)]
    assert headers(sections[:2], 60) == ["f > Title > Setup"]
    assert headers(sections, 60) == ["f > Title"]


@settings(max_examples=60)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_no_section_that_fits_a_chunk_is_cut_and_no_two_neighbours_would_fit_one(sizes: list[int]) -> None:
    texts = [prose(size, f"s{number}x") for number, size in enumerate(sizes)]
    sections = [DocumentSection(("A", str(number)), text) for number, text in enumerate(texts)]
    found = list(slice_sections(sections, by_words, size=60, overlap=10))
    assert [piece.overlap for piece in found] == [0] * len(found)
    assert all(any(text in piece.text for piece in found) for text in texts)
    whole = [sum(size for size, text in zip(sizes, texts, strict=True) if text in one.text) for one in found]
    firsts = [
        next(size for size, text in zip(sizes, texts, strict=True) if text in one.text) for one in found
    ]
    assert all(before + first > 60 for before, first in zip(whole, firsts[1:], strict=False))


def test_what_only_a_path_tells_stays_apart() -> None:
    pages = [DocumentSection(("A", f"Page {number}"), f"text {number}", apart=True) for number in (1, 2)]
    found = chunk_document("f", [*pages, DocumentSection(("A", "B"), "## B\n\nmore")], by_words)
    assert [chunk.header for chunk in found] == ["f > A > Page 1", "f > A > Page 2", "f > A > B"]


def test_records_share_no_chunk_with_other_sections() -> None:
    sections = [DocumentSection(("A", name), f"{name}: 1\n\n", records=True) for name in ("B", "C")]
    assert len(chunk_document("f", sections, by_words)) == 2


def test_headings_alone_are_joined_below_the_heading_that_they_share() -> None:
    sections = [
        DocumentSection(("A",), "# A\n\n"),
        *(DocumentSection(("A", name), f"## {name}\n\n") for name in "XYZ"),
    ]
    [chunk] = chunk_document("f", sections, by_words)
    assert chunk.header == "f > A"
    assert chunk.text == "# A\n\n## X\n\n## Y\n\n## Z"


def test_a_heading_without_text_belongs_to_what_follows() -> None:
    sections = [DocumentSection(("A",), "# A\n\n"), DocumentSection(("A", "B"), "few words")]
    [chunk] = chunk_document("f", sections, by_words)
    assert (chunk.header, chunk.text) == ("f > A > B", "# A\n\nfew words")


def test_a_heading_without_text_goes_with_whatever_follows_it() -> None:
    sections = [DocumentSection(("A",), "# A\n\n"), DocumentSection(("B",), "# B\n\nfew words")]
    [chunk] = chunk_document("f", sections, by_words)
    assert (chunk.header, chunk.text) == ("f > B", "# A\n\n# B\n\nfew words")


def test_headings_that_fill_more_than_a_chunk_are_headed_by_where_each_chunk_begins() -> None:
    names = [f"H{number}" for number in range(30)]
    sections = [*(DocumentSection((name,), f"# {name}\n\n") for name in names), headed("Last", 10)]
    found = chunk_document("f", sections, by_words, size=20, overlap=0)
    first_lines = [chunk.text.split("\n")[0].lstrip("# ") for chunk in found]
    assert [chunk.header for chunk in found[:-1]] == [f"f > {name}" for name in first_lines[:-1]]
    assert found[-1].header == "f > Last"
    trailing = chunk_document("f", sections[:-1], by_words, size=20, overlap=0)
    assert [chunk.header for chunk in trailing] == [f"f > {chunk.text.split()[1]}" for chunk in trailing]


def test_a_page_that_has_only_a_heading_is_a_page_of_its_own() -> None:
    pages = [
        DocumentSection(("A", f"Page {number}"), text, apart=True) for number, text in ((1, "A"), (2, "more"))
    ]
    assert [chunk.header for chunk in chunk_document("f", pages, by_words)] == [
        "f > A > Page 1",
        "f > A > Page 2",
    ]


def test_a_heading_without_text_is_not_left_behind_in_the_chunk_before_it() -> None:
    sections = [
        DocumentSection(("A", "B"), f"## B\n\n{prose(30)}"),
        DocumentSection(("A", "C"), "## C\n\n"),
        DocumentSection(("A", "C", "D"), f"### D\n\n{prose(40)}"),
    ]
    found = chunk_document("f", sections, by_words, size=60, overlap=0)
    assert [chunk.header for chunk in found] == ["f > A > B", "f > A > C > D"]
    assert found[1].text.startswith("## C\n\n### D\n\n")


def test_large_siblings_stay_apart() -> None:
    sections = [DocumentSection(("A", name), prose(300, name)) for name in ("B", "C")]
    assert [chunk.header for chunk in chunk_document("f", sections, by_words)] == ["f > A > B", "f > A > C"]


def test_a_piece_begins_with_the_end_of_the_one_before_it() -> None:
    text = "".join(f"Sentence {number} has exactly six words. " for number in range(40))
    first, second, *_ = chunk_document("f", [DocumentSection((), text)], by_words, size=60, overlap=12)
    assert first.text.split()[-12:] == second.text.split()[:12]


def test_a_sentence_that_is_too_long_to_repeat_gives_its_last_words() -> None:
    first, second, *_ = chunk_document("f", [DocumentSection((), prose(300))], by_words, size=60, overlap=12)
    repeated = first.text.split()[-1]
    assert repeated in second.text.split()[:12]


def record(number: int, words: int) -> str:
    """Something with a name, so many words about it, and what would begin a fence elsewhere."""
    return f"Item: KT-{number}\n```\n" + "".join(f"{place}: word\n" for place in range(words)) + "\n"


@settings(max_examples=60)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=30), st.integers(0, 19))
def test_no_piece_begins_or_ends_inside_of_a_record(sizes: list[int], overlap: int) -> None:
    text = "".join(record(number, words) for number, words in enumerate(sizes))
    found = chunk_document("f", [DocumentSection((), text, records=True)], by_words, size=40, overlap=overlap)
    records = text.strip().split("\n\n")
    assert all(one in records for chunk in found for one in chunk.text.split("\n\n"))


def test_whole_records_are_repeated_as_far_as_they_fit() -> None:
    text = "".join(record(number, 4) for number in range(12))
    first, second, *_ = chunk_document(
        "f", [DocumentSection((), text, records=True)], by_words, size=60, overlap=25
    )
    assert first.text.split("\n\n")[-2:] == second.text.split("\n\n")[:2]


def test_a_record_that_is_too_long_is_cut_and_the_next_one_repeats_nothing_of_it() -> None:
    text = record(1, 60) + record(2, 10)
    found = chunk_document("f", [DocumentSection((), text, records=True)], by_words, size=40, overlap=12)
    assert any("KT-1" not in chunk.text and "KT-2" not in chunk.text for chunk in found)
    assert found[-1].text == record(2, 10).strip()


def test_paragraphs_stay_whole_where_they_can() -> None:
    paragraphs = [prose(30, f"p{number}x") for number in range(4)]
    found = chunk_document("f", [DocumentSection((), "".join(paragraphs))], by_words, size=70, overlap=0)
    assert [chunk.text for chunk in found] == [
        "".join(paragraphs[:2]).rstrip(),
        "".join(paragraphs[2:]).rstrip(),
    ]


def test_a_fence_stays_whole_with_its_blank_lines() -> None:
    fence = "```python\n" + "\n\n".join(f"line_{number}()" for number in range(20)) + "\n```\n\n"
    found = chunk_document(
        "f", [DocumentSection((), prose(50) + fence + prose(50))], by_words, size=70, overlap=5
    )
    assert any(fence.strip() in chunk.text for chunk in found)


def test_a_fence_that_never_ends_is_cut_at_its_lines() -> None:
    text = "```\n" + "".join(f"a line of {number}\n" for number in range(100))
    found = chunk_document("f", [DocumentSection((), text)], by_words, size=50, overlap=0)
    assert len(found) > 1
    assert all(re.fullmatch(r"```|a line of \d+", line) for chunk in found for line in chunk.text.split("\n"))


def test_white_space_makes_no_chunk() -> None:
    assert chunk_document("f", [DocumentSection(("A",), " \n\n\t"), DocumentSection((), "")], by_words) == ()


def test_the_same_text_below_the_same_header_has_the_same_digest() -> None:
    one, other = (chunk_document("f", [DocumentSection((path,), "same")], by_words) for path in ("A", "B"))
    assert one == chunk_document("f", [DocumentSection(("A",), "same")], by_words)
    assert one[0].digest != other[0].digest


def test_a_large_text_is_counted_at_most_three_times() -> None:
    counted = 0

    def counting(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return by_words(text)

    text = prose(60) * 200 + prose(20_000) + "".join(f"Sentence {number}. " for number in range(20_000))
    chunk_document("f", [DocumentSection((), text)], counting)
    assert counted <= 3 * len(text)
