"""What `headgate knowledge` prints: everything that people need in a table, all of it for programs."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from headgate.domain.errors import EmbedderUnavailable
from headgate.domain.terminal import ProgressPrinter
from headgate.knowledge.commands.answer_tables import (
    json_document,
    printed_counts,
    printed_search,
    printed_statistics,
    printed_vendor,
    warning_lines,
)
from headgate.knowledge.commands.ingestion_report import (
    ImportedGraph,
    IngestionNews,
    IngestionProgress,
    IngestionReport,
    printed_summary,
)
from headgate.knowledge.data_model import StoreStatistics
from headgate.knowledge.ingestion.document_source import UnreadableFile
from headgate.knowledge.ingestion.pipeline import IngestionSummary
from tests.cli.test_progress import Clock, Terminal

SUMMARY = IngestionSummary(
    added=2,
    unchanged=1_200,
    skipped={".png": 3, ".zip": 1},
    failed=(UnreadableFile("docs/scan.pdf", "has pages without text\x1b[2J"),),
    chunks_added=30,
    chunks_kept=10,
    vectors=30,
    entities=1,
    relationships=2,
    seconds=2.0,
    advice="",
)
RESULT: dict[str, Any] = {"chunk_id": 1234, "hybrid_score": 0.016393, "rank": 1}
METADATA = {"source_file": "docs/a.md", "source_category": "legal", "chunk_index": 0, "total_chunks": 3}
PREVIEW = {"chunk_snippet": "The seller\nis not liable.", "context_header": "docs/a.md > Terms"}


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def answer(*results: dict[str, Any], **more: Any) -> dict[str, Any]:
    page = {"cursor": None, "page_size": 10, "has_more": False, "total_available": 42}
    return {
        "results": list(results),
        "total_found": 42,
        "strategy_used": "hybrid",
        "execution_time_ms": 12.3,
        "pagination": page,
    } | more


def test_a_summary_tells_what_happened_to_files_and_chunks() -> None:
    assert printed_summary(IngestionReport(documents=SUMMARY), as_json=False).splitlines() == [
        "files   2 added, 1,200 unchanged, 4 skipped (3 .png, 1 .zip), 1 failed",
        "chunks  30 added, 10 kept, 30 given a vector",
        "found   1 entity and 2 relationships, counted in each document",
        "time    2.0 s, 20 chunks/s",
        "",
        "  not read       why",
        "  docs/scan.pdf  has pages without text [2J",
    ]


def test_a_summary_of_nothing_says_so_and_what_to_do() -> None:
    said = printed_summary(IngestionReport(documents=IngestionSummary(advice="install it")), as_json=False)
    assert said.splitlines() == ["files   none", "time    0.0 s", "note: install it"]


def test_graphs_are_told_with_the_documents_or_alone() -> None:
    graph = ImportedGraph(file="vendors.csv", entities=2, relationships=1)
    said = printed_summary(IngestionReport(graphs=(graph,)), as_json=False)
    assert said == "graph   vendors.csv: 2 entities and 1 relationship"
    assert json.loads(printed_summary(IngestionReport(graphs=(graph,)), as_json=True)) == {
        "graphs": [{"file": "vendors.csv", "entities": 2, "relationships": 1}]
    }


def test_files_that_failed_for_one_reason_are_one_line_with_the_first_of_them() -> None:
    missing = 'needs pip install "headgate-mcp[knowledge]"'
    failed = [UnreadableFile(f"{number:02}.pdf", missing) for number in range(77)]
    failed.insert(3, UnreadableFile("a.md", "is broken"))
    failed += [UnreadableFile("b.md", "is empty"), UnreadableFile("c.md", "is empty")]
    said = printed_summary(IngestionReport(documents=IngestionSummary(failed=tuple(failed))), as_json=False)
    assert said.splitlines()[3:] == [
        "  not read  why",
        f"  77 files  {missing}: 00.pdf, 01.pdf, 02.pdf and 74 more",
        "  a.md      is broken",
        "  b.md      is empty",
        "  c.md      is empty",
        "  --json names them all",
    ]


def test_documents_without_text_are_told() -> None:
    ingested = IngestionReport(documents=IngestionSummary(added=3), without_text=2)
    assert printed_summary(ingested, as_json=False).startswith("files   3 added; 2 without any text\n")
    assert json.loads(printed_summary(ingested, as_json=True))["without_text"] == 2


def test_vectors_that_are_missing_are_the_work_of_the_next_ingestion() -> None:
    away = EmbedderUnavailable("OPENAI", "it does not answer").sentence
    for as_json in (True, False):
        said = printed_summary(IngestionReport(documents=IngestionSummary(advice=away)), as_json=as_json)
        assert "search goes on with words alone; the next ingestion makes the vectors that are" in said
        assert "answers again" not in said


def test_a_program_gets_every_failure_by_name() -> None:
    failed = tuple(UnreadableFile(f"{number}.pdf", f"is broken, {number}") for number in range(30))
    many = IngestionReport(documents=IngestionSummary(failed=failed, seconds=1.0))
    assert "and 10 more: --json names them all" in printed_summary(many, as_json=False)
    document = json.loads(printed_summary(many, as_json=True))
    assert document["failed"][29] == {"file": "29.pdf", "reason": "is broken, 29"}
    assert document["chunks_per_second"] == 0


def test_files_without_an_extension_are_called_so() -> None:
    said = printed_summary(
        IngestionReport(documents=IngestionSummary(skipped={"": 2, ".eml": 1})), as_json=False
    )
    assert said.splitlines()[0] == "files   3 skipped (2 without an extension, 1 .eml)"


@pytest.mark.parametrize(
    ("summary", "failed"),
    [
        (None, False),
        (IngestionSummary(), False),
        (IngestionSummary(failed=SUMMARY.failed), True),
        (IngestionSummary(failed=SUMMARY.failed, unchanged=1), False),
    ],
)
def test_all_have_failed_when_none_could_be_read(summary: IngestionSummary | None, *, failed: bool) -> None:
    assert IngestionReport(documents=summary).all_failed is failed


def news() -> IngestionNews:
    return IngestionNews(lambda: datetime(2026, 11, 16, 9, 5, tzinfo=UTC))


def test_what_is_told_of_every_change_is_one_line_with_the_time_and_the_files() -> None:
    change = IngestionSummary(changed=4, chunks_added=2, chunks_removed=1, seconds=0.5)
    said = news().render(
        IngestionReport(documents=change, changed=("d.md", "b.md", "c.md", "a.md")), as_json=False
    )
    assert said == (
        "09:05:00  a.md, b.md, c.md and 1 more; files: 4 changed; chunks: 2 added, 1 removed; "
        "time: 0.5 s, 4.0 chunks/s"
    )
    (line,) = news().render(IngestionReport(documents=change), as_json=True).splitlines()
    assert json.loads(line)["changed"] == 4


def test_a_failure_and_an_advice_are_told_once_until_they_change() -> None:
    told = news()

    def lines(*changed: str, reason: str = "is broken", advice: str = "install it") -> list[str]:
        summary = IngestionSummary(failed=(UnreadableFile("a.pdf", reason),), advice=advice)
        return told.render(IngestionReport(documents=summary, changed=changed), as_json=False).splitlines()[
            1:
        ]

    table = ["", "  not read  why", "  a.pdf     is broken"]
    assert lines() == [*table, "note: install it"]
    assert lines("b.md") == []
    assert lines("a.pdf") == table
    assert lines("b.md", reason="is empty")[2:] == ["  a.pdf     is empty"]
    assert lines("b.md", reason="is empty", advice="ingest again") == ["note: ingest again"]


def test_an_answer_has_the_columns_of_its_mode() -> None:
    ids, *_ = printed_search(answer(RESULT)).splitlines()
    assert ids.split() == ["rank", "score", "chunk"]
    head, row, *_ = printed_search(answer(RESULT | METADATA)).splitlines()
    assert head.split() == ["rank", "score", "chunk", "part", "category", "file"]
    assert row.split() == ["1", "0.0164", "1234", "1", "of", "3", "legal", "docs/a.md"]
    assert printed_search(answer(RESULT | METADATA | PREVIEW)).splitlines() == [
        "  rank   score  chunk  where",
        "     1  0.0164   1234  docs/a.md > Terms",
        "        The seller is not liable.",
        "",
        "1 of 42 found (hybrid, 12 ms)",
    ]


PLACE = "documents/contracts/larkfield-hosting-new.md"


def test_where_a_chunk_stands_is_broken_between_words_alone_and_its_text_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    found = RESULT | {"context_header": f"{PLACE} > Terms of Service", "chunk_snippet": "word " * 30}
    _, *lines = printed_search(answer(found)).splitlines()
    assert lines[:3] == ["     1  0.0164   1234", f"      {PLACE} > Terms", "      of Service"]
    assert max(map(len, lines)) <= 60
    found["context_header"] = "docs/a.md > Terms of Service > Liability"
    _, *lines = printed_search(answer(found)).splitlines()
    assert lines[:2] == [
        "     1  0.0164   1234  docs/a.md > Terms of Service >",
        "                       Liability",
    ]
    assert max(map(len, lines)) <= 60


def test_where_a_chunk_stands_is_one_line_for_whoever_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    header = f"{PLACE} > {'A long heading ' * 20}> End"
    found = RESULT | METADATA | {"context_header": header, "chunk_snippet": "word " * 30}
    _, where, *text = printed_search(answer(found)).splitlines()
    assert where == f"     1  0.0164   1234  {header}"
    assert max(map(len, text)) <= 100
    paths = RESULT | METADATA | {"source_file": "x" * 300, "source_category": "y" * 90}
    assert printed_search(answer(paths)).splitlines()[1].endswith(f"{'y' * 90}  {'x' * 300}")


def test_a_path_that_has_no_room_gets_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    found = answer(RESULT | METADATA | {"source_file": PLACE})
    assert printed_search(found).splitlines()[:4] == [
        "  rank   score  chunk  part    category",
        "        file",
        "     1  0.0164   1234  1 of 3  legal",
        f"        {PLACE}",
    ]


def test_an_answer_ends_with_how_much_there_is_and_how_to_get_it() -> None:
    more = {"cursor": "t8k", "page_size": 1, "has_more": True, "total_available": 42}
    *_, last = printed_search(answer(RESULT, pagination=more)).splitlines()
    assert last == "1 of 42 found (hybrid, 12 ms); more with --cursor t8k"


def test_a_list_that_was_cut_is_told_from_all_that_there_is() -> None:
    *_, last = printed_search(answer(RESULT, total_found=200)).splitlines()
    assert last == "1 of the best 200 (hybrid, 12 ms)"
    *_, last = printed_search(answer(RESULT, total_found=199)).splitlines()
    assert last == "1 of 199 found (hybrid, 12 ms)"


def test_the_whole_text_keeps_its_lines_and_moves_no_cursor() -> None:
    full = RESULT | METADATA | {"context_header": "docs/a.md > Terms", "chunk_text": "one\n\n\x1b[2Jtwo"}
    assert printed_search(answer(full)).splitlines()[:6] == [
        "1. docs/a.md > Terms",
        "   chunk 1234, part 1 of 3, score 0.0164",
        "",
        "   one",
        "",
        "    [2Jtwo",
    ]


def test_an_explanation_says_what_each_list_gave() -> None:
    explanation = {
        "vector": {"rank": 1, "similarity": 0.83, "weight": 0.6, "contribution": 0.009836},
        "bm25": None,
        "fused": 0.009836,
        "boosts": {"vendor": 0.15},
        "score": 0.011311,
    }
    said = printed_search(answer(RESULT | {"explanation": explanation}))
    row = said.splitlines()[4]
    assert " ".join(row.split()) == "1 rank 1, 0.8300: 0.0098 - 0.0098 0.0113 vendor +15%"


def test_boosts_are_told_whole_however_narrow_the_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    boosts = {"vendor": 0.15, "doc_type": 0.1, "entity": 0.1, "topic": 0.08, "recency": 0.05}
    explanation = {"vector": None, "bm25": None, "fused": 0.01, "boosts": boosts, "score": 0.02}
    said = printed_search(answer(RESULT | {"explanation": explanation}))
    assert "vendor +15%, doc_type +10%, entity +10%, topic +8%, recency +5%" in " ".join(said.split())


def test_an_explanation_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    explanation = {
        "vector": {"rank": 1, "similarity": 0.83, "weight": 0.6, "contribution": 0.009836},
        "bm25": {"rank": 2, "score": 6.8, "weight": 0.4, "contribution": 0.006452},
        "fused": 0.016288,
        "boosts": {"vendor": 0.15, "topic": 0.08},
        "score": 0.020034,
    }
    said = printed_search(answer(RESULT | {"explanation": explanation})).splitlines()
    assert said[3:9] == [
        "  rank 1",
        "    by meaning  rank 1, 0.8300: 0.0098",
        "    by words    rank 2, 6.8000: 0.0065",
        "    fused       0.0163",
        "    score       0.0200",
        "    boosts      vendor +15%, topic +8%",
    ]


def test_nothing_found_is_said() -> None:
    assert printed_search(answer()) == "Nothing was found."
    assert json.loads(json_document(answer()))["results"] == []


def test_warnings_are_one_line_each_with_what_to_do() -> None:
    warning = {"level": "warning", "code": "X", "message": "Too\nhigh.", "suggestion": "Ask for less"}
    assert warning_lines(answer(warnings=[warning])) == ["Too high; ask for less"]
    assert warning_lines(answer()) == []


def test_a_vendor_is_told_with_its_types_entities_and_relationships() -> None:
    vendor = {
        "vendor_id": 7,
        "vendor_name": "Acme",
        "statistics": {
            "entity_count": 2,
            "relationship_count": 1,
            "entity_type_distribution": {"ORG": 2},
            "relationship_type_distribution": {"SUPPLIES": 1},
        },
        "entities": [
            {"entity_id": 9, "name": "Globex", "entity_type": "ORG", "confidence": 0.9, "mentions": 3}
        ],
        "relationships": [
            {
                "relationship_id": 1,
                "relationship_type": "SUPPLIES",
                "source_name": "Acme",
                "target_name": "Globex",
                "confidence": 0.8,
            }
        ],
        "pagination": {"cursor": None, "has_more": False},
    }
    assert printed_vendor(vendor).splitlines() == [
        "Acme (id 7)",
        "  entities          2 (2 ORG)",
        "  relationships     1 (1 SUPPLIES)",
        "",
        "  id  type  confidence  mentions  entity",
        "   9  ORG       0.9000         3  Globex",
        "",
        "  id  confidence  relationship",
        "   1      0.8000  Acme SUPPLIES Globex",
    ]
    assert json.loads(json_document(vendor)) == vendor


def test_all_of_a_vendor_has_names_and_attributes_of_everybody() -> None:
    entity = {"entity_id": 9, "name": "Ann", "entity_type": "PERSON", "confidence": 1.0, "mentions": 0}
    related = {"relationship_id": 1, "relationship_type": "WORKS_FOR", "confidence": 1.0}
    vendor = {
        "vendor_id": 7,
        "vendor_name": "Acme",
        "vendor_type": "VENDOR",
        "external_id": "V-7",
        "aliases": ["ACM", "Acme Co"],
        "attributes": {"country": "NO", "tiers": [1, 2]},
        "mentioned_in": [3, 8],
        "entities": [entity | {"aliases": ["A. Smith"], "attributes": {"phone": "1\x1b2"}}],
        "relationships": [
            related | {"source_name": "Ann", "target_name": "Acme", "attributes": {"since": 2019}}
        ],
        "pagination": {"cursor": None, "has_more": False},
    }
    said = printed_vendor(vendor).splitlines()
    assert said[1:6] == [
        "  type              VENDOR",
        "  own id            V-7",
        "  aliases           ACM, Acme Co",
        "  attributes        country: NO, tiers: [1,2]",
        "  in chunks         3, 8",
    ]
    assert said[8].endswith("Ann (also A. Smith; phone: 1 2)")
    assert said[-1].endswith("Ann WORKS_FOR Acme (since: 2019)")


def test_the_ids_of_a_vendor_are_told_with_how_to_get_more() -> None:
    vendor = {
        "vendor_id": 7,
        "vendor_name": "Acme",
        "entity_ids": [9, 10],
        "relationship_ids": [],
        "pagination": {"cursor": "t8k", "has_more": True},
    }
    assert printed_vendor(vendor).splitlines() == [
        "Acme (id 7)",
        "  entity ids        9, 10",
        "",
        "more with --cursor t8k",
    ]


def test_what_there_is_is_counted_by_kind() -> None:
    statistics = StoreStatistics(sources=1_000, categories={"legal": 400, "press": 600}, model="MiniLM")
    lines = dict(line.split(maxsplit=1) for line in printed_statistics(statistics).splitlines())
    assert (lines["sources"], lines["categories"]) == ("1,000", "legal 400, press 600")
    assert (lines["model"], lines["relationships"]) == ("MiniLM", "-")
    assert json.loads(json_document(statistics))["sources"] == 1_000


def test_the_lines_of_an_export_are_counted() -> None:
    assert printed_counts({"sources": 2, "chunks": 1_000}) == "sources  2\nchunks   1,000"
    assert printed_counts({}) == "nothing"
    assert json.loads(json_document({"sources": 2})) == {"sources": 2}


def test_an_ingestion_tells_of_files_and_of_chunks_that_are_embedded_meanwhile() -> None:
    clock, stream = Clock(), Terminal()
    ingestion = IngestionProgress(ProgressPrinter(stream, clock))
    ingestion.report("read", 0, 4, "a.md")
    clock.now += 10
    ingestion.report("embed", 64, 100, "")
    clock.now += 10
    ingestion.report("read", 2, 4, "c.md")
    ingestion.report("read", 4, 4, "")
    clock.now += 20
    ingestion.report("embed", 80, 100, "")
    first, second, third = (line.strip() for line in stream.getvalue().split("\r")[1:])
    assert first == "reading [........................] 0 of 4  0.0 files/s  6.4 chunks/s  a.md"
    assert second == "reading [############............] 2 of 4  0.1 files/s  3.2 chunks/s  c.md"
    assert third == "embedding [###################.....] 80 of 100  2.0 chunks/s"


def test_an_ingestion_without_an_embedder_tells_of_files_alone() -> None:
    clock, stream = Clock(), io.StringIO()
    ingestion = IngestionProgress(ProgressPrinter(stream, clock))
    ingestion.report("read", 0, 4, "a.md")
    clock.now += 10
    ingestion.report("read", 2, 4, "c.md")
    clock.now += 10
    ingestion.report("read", 4, 4, "")
    assert stream.getvalue() == "reading: 2 of 4, 0.2 files/s\n"
