"""The commands of the documents as people run them: processes that are fed, interrupted and killed."""

import json
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from testkit.waiting import wait_until
from tests.knowledge.readers.sample_files import pdf, word
from tests.real.knowledge import (
    SECONDS,
    Message,
    refused,
    started,
    told,
    write_all,
    write_lines,
)

KINDS = {"markdown", "text", "html", "pdf", "docx", "csv", "json"}
GRAPH: list[Message] = [
    {"kind": "entity", "id": "v-1", "type": "VENDOR", "name": "Initech", "aliases": ["Initech Ltd"]},
    {"kind": "entity", "id": "v-2", "type": "VENDOR", "name": "Globex"},
    {"kind": "entity", "id": "p-1", "type": "PERSON", "name": "Bill Lumbergh", "attributes": {"desk": 4}},
    {"kind": "relationship", "source": "p-1", "target": "v-1", "type": "works_for", "confidence": 0.9},
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a document of every kind, and the store that has them."""
    place = tmp_path_factory.mktemp("kinds")
    library = write_all(
        place / "library",
        {
            "one.md": "# Notes\n\nThe manatee swims in Markdown.\n",
            "two.txt": "The manatee swims in plain text.\n",
            "three.html": "<h1>Page</h1><p>The manatee swims in a page.</p><script>manatee()</script>",
            "four.csv": "animal,place\nmanatee,table\n",
            "five.json": '[{"animal": "manatee", "place": "record"}]',
        },
    )
    (library / "six.pdf").write_bytes(pdf("The manatee swims in print."))
    (library / "seven.docx").write_bytes(word(("Heading 1", "Letter"), ("Normal", "A manatee in a letter.")))
    (library / "eight.png").write_bytes(b"\x89PNG")
    graph = write_lines(place / "graph.jsonl", GRAPH)
    summary = json.loads(
        told(place, "ingest", library, "--graph", graph, "--data-dir", place / "data", "--json")
    )
    assert (summary["added"], summary["failed"], summary["skipped"]) == (7, [], {".png": 1})
    return place


def test_every_kind_of_document_is_found(place: Path) -> None:
    answer = json.loads(told(place, "search", "manatee", "--data-dir", place / "data", "--json"))
    assert answer["total_found"] == 7
    assert len({result["source_file"] for result in answer["results"]}) == 7


def test_what_there_is_is_counted(place: Path) -> None:
    counted = json.loads(told(place, "stats", "--data-dir", place / "data", "--json"))
    assert (counted["sources"], counted["chunks"]) == (7, 7)
    assert set(counted["doc_types"]) == KINDS


def test_a_vendor_is_told(place: Path) -> None:
    said = told(place, "vendor", "initech LTD", "--data-dir", place / "data")
    assert "Bill Lumbergh WORKS_FOR Initech" in said
    wrong = refused(place, "vendor", "Hooli", "--data-dir", place / "data")
    assert wrong.startswith(
        "headgate: Vendor 'Hooli' not found. Try headgate knowledge search first to find exact"
    )


def test_a_graph_that_was_exported_comes_in_again_as_it_was(place: Path, tmp_path: Path) -> None:
    exported = told(place, "export", "--what", "graph", "--data-dir", place / "data")
    (tmp_path / "again.jsonl").write_text(exported, encoding="utf-8")
    told(tmp_path, "ingest", "--graph", "again.jsonl", "--data-dir", "data")
    again = told(tmp_path, "export", "--what", "graph", "--data-dir", "data")
    assert sorted(map(comparable, exported.splitlines())) == sorted(map(comparable, again.splitlines()))
    assert '"Bill Lumbergh"' in again


def comparable(line: str) -> str:
    return json.dumps(json.loads(line), sort_keys=True)


def test_what_changes_and_what_goes_is_followed_until_somebody_interrupts(tmp_path: Path) -> None:
    docs = write_all(tmp_path / "docs", {"a.md": "# A\n\nfirst\n", "b.md": "# B\n\nsecond\n"})
    out = tmp_path / "out"

    def seen() -> Callable[[str], int]:
        summaries = [json.loads(line) for line in out.read_text().splitlines()]
        return lambda what: sum(summary[what] for summary in summaries)

    watch = ("watch", "docs", "--interval", "0.1", "--json", "--data-dir", "data")
    with started(tmp_path, *watch) as child:
        wait_until(lambda: seen()("added") == 2, SECONDS, "both are there")
        (docs / "a.md").write_text("# A\n\nfirst, changed\n", encoding="utf-8")
        wait_until(lambda: seen()("changed") == 1, SECONDS, "the change is seen")
        (docs / "b.md").unlink()
        wait_until(lambda: seen()("removed") == 1, SECONDS, "the removal is seen")
        child.send_signal(signal.SIGINT)
        assert child.wait(SECONDS) == 130
    assert (tmp_path / "log").read_text() == "headgate: stopped; what was ingested is kept\n"
    assert files_in(tmp_path) == {"docs/a.md"}


def files_in(place: Path) -> set[str]:
    lines = told(place, "export", "--what", "sources", "--data-dir", "data").splitlines()
    return {json.loads(line)["source_file"] for line in lines}


def many(number: int) -> dict[str, str]:
    """So many documents that the test has time to stop the process that reads them."""
    paragraph = "Acme Corp supplies Globex Ltd with turbines from Hamburg since 2019. " * 10
    return {f"d{n:04}.md": f"# Part {n}\n\n{paragraph}\n\nunique{n}\n" for n in range(number)}


MANY = 200


def has_some(process: "subprocess.Popen[bytes]", place: Path) -> bool:
    """Whether a document is in the store that the process fills."""
    assert process.poll() is None, "it was too quick to be stopped"
    file = place / "data" / "knowledge.db"
    if not file.exists():
        return False
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)) as store:
        try:
            return bool(store.execute("SELECT count(*) FROM sources").fetchone()[0])
        except sqlite3.OperationalError:
            # Its tables are being made.
            return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a store has after an uninterrupted ingestion."""
    place = tmp_path_factory.mktemp("whole")
    write_all(place / "docs", many(MANY))
    told(place, "ingest", "docs", "--data-dir", "data")
    return contents(place)


def contents(place: Path) -> dict[str, Any]:
    """Everything but ids and moments."""
    counted: dict[str, Any] = json.loads(told(place, "stats", "--data-dir", "data", "--json"))
    numbers = ("sources", "chunks", "entities", "relationships", "mentions")
    found = json.loads(told(place, "search", "unique7 turbines", "--data-dir", "data", "--json"))
    scores = [(result["source_file"], result["hybrid_score"]) for result in found["results"]]
    return {"counted": {name: counted[name] for name in numbers if name in counted}, "scores": scores}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_an_ingestion_that_was_stopped_goes_on_where_it_was(
    tmp_path: Path, whole: dict[str, Any], number: signal.Signals
) -> None:
    write_all(tmp_path / "docs", many(MANY))
    ingest = ("ingest", "docs", "--data-dir", "data")
    with started(tmp_path, *ingest) as child:
        wait_until(lambda: has_some(child, tmp_path), SECONDS, "a part is there")
        child.send_signal(number)
        code = child.wait(SECONDS)
    if number is signal.SIGINT:
        assert code == 130
        assert (tmp_path / "log").read_text() == (
            "headgate: interrupted; what was ingested so far is kept, and the same command goes on from "
            "there\n"
        )
    some = len(files_in(tmp_path))
    assert 0 < some < MANY
    summary = json.loads(told(tmp_path, *ingest, "--json"))
    assert (summary["added"], summary["unchanged"], summary["failed"]) == (MANY - some, some, [])
    assert contents(tmp_path) == whole


def failures(place: Path, *paths: str) -> list[Message]:
    """What an ingestion could not parse, and why."""
    summary = json.loads(told(place, "ingest", *paths, "--data-dir", place / "data", "--json"))
    failed: list[Message] = summary["failed"]
    return failed


def test_a_file_that_failed_is_not_parsed_again_until_it_changes_whichever_path_leads_to_it(
    tmp_path: Path,
) -> None:
    library = write_all(tmp_path / "library", {"good.md": "# Good", "deep/also.md": "# Also"})
    broken = library / "deep" / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7 broken")
    (first,) = failures(tmp_path, "library")
    # What a parser would never say tells that none was asked.
    record = tmp_path / "data" / "knowledge-failed.json"
    record.write_bytes(record.read_bytes().replace(first["reason"].encode(), b"is remembered"))
    for paths in (["library"], ["library/deep"], ["library/deep/broken.pdf", "library/good.md"]):
        assert [one["reason"] for one in failures(tmp_path, *paths)] == ["is remembered"]
    broken.write_bytes(b"%PDF-1.7 broken otherwise")
    assert failures(tmp_path, "library") == [first]


def test_weights_of_nothing_are_refused_before_anything_is_served(tmp_path: Path) -> None:
    nothing = {"weights": {"vector": 0, "bm25": 0}}
    (tmp_path / "headgate.json").write_text(json.dumps({"proxySettings": {"knowledge": nothing}}))
    said = refused(tmp_path, "serve", "--transport", "stdio", "--config", "headgate.json")
    assert said.startswith("headgate: both of knowledge.weights are 0, so that nothing could be ranked; ")
