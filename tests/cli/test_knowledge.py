"""`headgate knowledge`: documents in, answers out, and every error one sentence with the fix."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from headgate.cli.command_runner import CommandGroup, exit_on_error
from headgate.cli.commands import cli
from headgate.domain.errors import ConfigError, StoreUnavailable
from headgate.knowledge.commands.command_options import buffered_store_log
from headgate.knowledge.commands.ingest_commands import INTERRUPTED
from testkit.gateway_process import clean_environment
from testkit.waiting import wait_until

SECONDS = 30.0
COMMANDS = (
    "ingest",
    "watch",
    "search",
    "vendor",
    "chunk",
    "sources",
    "stats",
    "export",
    "forget",
    "serve",
)
DOCUMENTS = {
    "contracts/acme.md": "# Acme\n\nAcme Corp delivers the anvils. The force majeure clause ends in May.\n",
    "contracts/globex.txt": "Globex GmbH supplies Acme Corp with rockets.\n",
    "notes.html": "<h1>Notes</h1><p>Rockets are late again.</p>",
}
GRAPH = """\
{"kind": "entity", "id": "v1", "type": "VENDOR", "name": "Initech", "aliases": ["Initech Ltd"],\
 "attributes": {"fax": 1}}
{"kind": "entity", "id": "p1", "type": "PERSON", "name": "Bill Lumbergh"}
{"kind": "relationship", "source": "p1", "target": "v1", "type": "works_for"}
"""


# By words alone, so that no test waits for a model.
ENVIRONMENT = {"COLUMNS": "120", "HEADGATE_KNOWLEDGE_EMBEDDER": "BM25"}


def environment(directory: Path) -> dict[str, str]:
    return {**clean_environment(), **ENVIRONMENT, "HOME": str(directory)}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "headgate", "knowledge", *map(str, arguments)]


@contextmanager
def log_as_it_was() -> Iterator[None]:
    """A command writes its log to a standard error that is gone with it."""
    root, loop = logging.getLogger(), logging.getLogger("asyncio")
    handlers, levels = root.handlers[:], (root.level, loop.level)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        loop.setLevel(levels[1])


def run(directory: Path, *arguments: str | Path) -> Result:
    """Run a command here: a process for each would take as long as all the rest."""
    with log_as_it_was(), chdir(directory):
        return CliRunner().invoke(
            cli, ["knowledge", *map(str, arguments)], env={**ENVIRONMENT, "HOME": str(directory)}
        )


def told(directory: Path, *arguments: str | Path) -> str:
    ended = run(directory, *arguments)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def refused(directory: Path, *arguments: str | Path) -> str:
    """The one sentence that says what is wrong."""
    ended = run(directory, *arguments)
    assert (ended.exit_code, ended.stdout) == (2, ""), ended.output
    (line,) = ended.stderr.splitlines()
    assert line.startswith("headgate: ")
    return line


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with documents that have been ingested, for those who only look."""
    place = tmp_path_factory.mktemp("place")
    for name, text in DOCUMENTS.items():
        path = place / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (place / "docs" / "logo.png").write_bytes(b"\x89PNG")
    (place / "graph.jsonl").write_text(GRAPH, encoding="utf-8")
    summary = json.loads(told(place, "ingest", "docs", "--graph", "graph.jsonl", "--json"))
    assert (summary["added"], summary["skipped"], summary["failed"]) == (3, {".png": 1}, [])
    assert summary["graphs"] == [{"file": "graph.jsonl", "entities": 2, "relationships": 1}]
    return place


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_where_the_documents_are(tmp_path: Path, name: str) -> None:
    said = told(tmp_path, name, "--help")
    for word in ("--config", "--data-dir", "--store", "--verbose"):
        assert word in said
    assert ("--json" in said) == (name != "serve")


def test_help_loads_no_gateway(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "headgate", "knowledge", "--help"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    for name in COMMANDS:
        assert f"  {name} " in ended.stdout
    for module in ("headgate.app", "headgate.knowledge.composition", "headgate.config", "asyncio"):
        assert f" {module}\n" not in ended.stderr


def test_the_other_commands_load_nothing_of_the_document_server(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "headgate", "--help"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert "  knowledge " in ended.stdout
    assert " headgate.cli.commands\n" in ended.stderr
    assert " headgate.knowledge" not in ended.stderr


def test_what_has_not_changed_is_not_read_again(place: Path) -> None:
    ended = run(place, "ingest", "docs")
    assert ended.exit_code == 0
    assert ended.stdout.splitlines()[0] == "files   3 unchanged, 1 skipped (1 .png)"
    # There is no terminal that would show a bar.
    assert ended.stderr == ""


def test_a_search_prints_what_it_found_and_nothing_else(place: Path) -> None:
    ended = run(place, "search", "rockets")
    assert (ended.exit_code, ended.stderr) == (0, "")
    head, first, text, *_, last = ended.stdout.splitlines()
    assert head.split() == ["rank", "score", "chunk", "where"]
    assert "docs/" in first
    assert "ockets" in text
    assert last.startswith("2 of 2 found (bm25")


def test_filters_modes_and_pages_reach_the_search(place: Path) -> None:
    arguments = ("search", "acme anvils rockets", "--mode", "metadata", "--strategy", "bm25", "--json")
    page = json.loads(told(place, *arguments, "--limit", "1"))
    assert (page["total_found"], page["pagination"]["has_more"]) == (3, True)
    following = json.loads(told(place, *arguments, "--limit", "2", "--cursor", page["pagination"]["cursor"]))
    files = {result["source_file"] for result in page["results"] + following["results"]}
    assert files == {f"docs/{name}" for name in DOCUMENTS}
    only = json.loads(told(place, *arguments, "--category", "contracts", "--type", "text"))
    assert [result["source_file"] for result in only["results"]] == ["docs/contracts/globex.txt"]
    none = json.loads(told(place, *arguments, "--until", "1990-01-01"))
    assert none["results"] == []


def test_an_explanation_is_printed_on_request(place: Path) -> None:
    said = told(place, "search", "rockets", "--explain", "--boosts", "--mode", "full")
    assert "Globex GmbH supplies Acme Corp with rockets." in said
    assert "by meaning" in said


def test_a_vendor_is_found_by_an_alias_in_any_case(place: Path) -> None:
    said = told(place, "vendor", "INITECH ltd")
    assert said.startswith("Initech (id ")
    assert "Bill Lumbergh WORKS_FOR Initech" in said


def test_a_vendor_is_told_with_its_attributes_in_every_mode_but_the_ids(place: Path) -> None:
    for mode in ("metadata", "preview", "full"):
        assert "  attributes        fax: 1\n" in told(place, "vendor", "initech", "--mode", mode)
    assert "fax" not in told(place, "vendor", "initech", "--mode", "ids_only")


def test_a_vendor_leads_to_the_chunks_that_speak_of_it(place: Path) -> None:
    said = json.loads(told(place, "vendor", "globex", "--json"))
    [chunk] = said["mentioned_in"]
    assert f"  in chunks         {chunk}\n" in told(place, "vendor", "globex")
    assert "Globex GmbH supplies" in told(place, "chunk", f"{chunk}")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("Innitech", " Names like it: Initech."),
        ("Bill Lumbergh", " 'Bill Lumbergh' is a PERSON, not a vendor."),
        ("Zzyzx", ""),
    ],
)
def test_a_vendor_that_is_not_there_is_said_in_words_of_the_command(
    place: Path, name: str, advice: str
) -> None:
    assert refused(place, "vendor", name).rstrip("\n") == (
        f"headgate: Vendor '{name}' not found. Try headgate knowledge search first to find exact vendor "
        f"names and IDs in the knowledge graph.{advice}"
    )


def test_what_a_vendor_is_called_is_quoted_as_it_is(place: Path) -> None:
    assert "Vendor 'list_sources' not found." in refused(place, "vendor", "list_sources")


def test_what_a_vendor_is_called_is_told_with_a_glimpse_of_it(place: Path) -> None:
    said = told(place, "vendor", "initech").splitlines()
    assert said[1:3] == ["  own id            v1", "  aliases           Initech Ltd"]
    assert "own id" not in told(place, "vendor", "initech", "--mode", "ids_only")


def test_ids_that_a_search_told_lead_to_the_texts(place: Path) -> None:
    found = json.loads(told(place, "search", "globex", "--mode", "ids_only", "--json"))["results"]
    id = found[0]["chunk_id"]
    said = told(place, "chunk", str(id)).splitlines()
    assert said[0].startswith(f"chunk {id}, part 1 of 1: docs/contracts/globex.txt")
    assert "   Globex GmbH supplies Acme Corp with rockets." in said
    row = told(place, "chunk", str(id), "--mode", "metadata").splitlines()[1]
    assert row.split() == [str(id), "1", "of", "1", "contracts", "docs/contracts/globex.txt"]
    ended = run(place, "chunk", str(id), "999", "--json")
    assert ended.exit_code == 1
    assert [one["chunk_id"] for one in json.loads(ended.stdout)["results"]] == [id]
    assert ended.stderr == "headgate: removed or never there: 999; search again for its id\n"


def test_documents_are_named_with_the_filters_of_a_search(place: Path) -> None:
    said = told(place, "sources").splitlines()
    assert said[0].split() == ["category", "type", "date", "chunks", "file"]
    assert [line.split()[-1] for line in said[1:4]] == [f"docs/{name}" for name in sorted(DOCUMENTS)]
    assert said[-1] == "3 of 3 documents"
    only = json.loads(told(place, "sources", "--type", "text", "--type", "html", "--json"))
    assert [one["doc_type"] for one in only["sources"]] == ["text", "html"]
    assert told(place, "sources", "--until", "1990-01-01") == "There is no such document.\n"


def test_help_says_which_kinds_of_documents_there_are_and_what_may_be_repeated(tmp_path: Path) -> None:
    said = " ".join(told(tmp_path, "search", "--help").split())
    assert "markdown, text, html, pdf, docx, csv, json" in said
    assert "may be given several times" in said
    assert "columns name,type" in " ".join(told(tmp_path, "ingest", "--help").split())


def test_files_that_cannot_be_read_are_an_error_when_there_is_no_other_or_when_asked(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "bad.pdf").write_bytes(b"no pdf")
    alone = run(tmp_path, "ingest", "docs")
    assert (alone.exit_code, "docs/bad.pdf" in alone.stdout) == (1, True)
    (docs / "good.txt").write_text("good", encoding="utf-8")
    assert run(tmp_path, "ingest", "docs").exit_code == 0
    assert run(tmp_path, "ingest", "docs", "--strict").exit_code == 1


def test_a_file_of_a_kind_that_is_not_read_is_an_error_when_there_is_no_other(tmp_path: Path) -> None:
    (tmp_path / "notes.xyz").write_text("words", encoding="utf-8")
    alone = run(tmp_path, "ingest", "notes.xyz")
    assert alone.exit_code == 1
    assert alone.stdout.startswith("files   1 skipped (1 .xyz)\n")
    assert alone.stdout.splitlines()[-1].startswith("note: what can be read are .csv, .docx, ")
    (tmp_path / "notes.txt").write_text("words", encoding="utf-8")
    assert run(tmp_path, "ingest", "notes.xyz", "notes.txt").exit_code == 0


def two_documents(place: Path) -> Path:
    """A directory with two documents that were ingested."""
    docs = place / "docs"
    docs.mkdir()
    for name in ("a.txt", "b.txt"):
        (docs / name).write_text("words", encoding="utf-8")
    told(place, "ingest", "docs")
    return docs


def test_what_could_not_be_read_is_an_error_also_where_other_documents_left(tmp_path: Path) -> None:
    docs = two_documents(tmp_path)
    for name in ("a.txt", "b.txt"):
        (docs / name).unlink()
    (docs / "bad.pdf").write_bytes(b"no pdf")
    (docs / "picture.png").write_bytes(b"png")
    ended = run(tmp_path, "ingest", "docs")
    assert (ended.exit_code, "what can be read" in ended.stdout) == (1, False)


def test_what_was_deleted_from_a_document_is_not_found_any_more(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("---\ntitle: Old\n---\nmarmots whistle\n", encoding="utf-8")
    told(tmp_path, "ingest", "docs")
    (docs / "a.md").write_text("---\ntitle: Old\n---\n", encoding="utf-8")
    assert told(tmp_path, "ingest", "docs").startswith("files   1 changed; 1 without any text\n")
    assert json.loads(told(tmp_path, "search", "marmots", "--json"))["results"] == []


def test_an_empty_directory_takes_no_document_away_until_it_is_meant(tmp_path: Path) -> None:
    docs = two_documents(tmp_path)
    docs.rename(tmp_path / "away")
    docs.mkdir()
    ended = run(tmp_path, "ingest", "docs")
    assert ended.exit_code == 1
    assert ended.stdout.splitlines()[-1].split(maxsplit=1) == [
        "docs",
        "has no documents any more, and its 2 stay; pass --emptied to remove them",
    ]
    assert told(tmp_path, "ingest", "docs", "--emptied").startswith("files   2 removed\n")


def test_what_there_is_is_counted(place: Path) -> None:
    counted = json.loads(told(place, "stats", "--json"))
    assert (counted["sources"], counted["categories"]) == (3, {"contracts": 2, "docs": 1})


def test_an_export_goes_to_standard_output_or_to_a_file(place: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in told(place, "export", "--what", "sources").splitlines()]
    assert [line["source_file"] for line in lines] == [f"docs/{name}" for name in sorted(DOCUMENTS)]
    said = told(place, "export", "--what", "graph", tmp_path / "graph.jsonl")
    assert "entities" in said
    again = told(place, "ingest", "--graph", tmp_path / "graph.jsonl", "--data-dir", tmp_path / "data")
    assert again.startswith("graph   graph.jsonl: ")


def test_a_reader_that_goes_away_is_no_traceback(place: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        ended = subprocess.run(
            command("export"),
            cwd=place,
            env=environment(place),
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == ""


@pytest.mark.parametrize("arguments", [["stats"], ["search", "rockets"], ["ingest", "docs"], ["export"]])
@pytest.mark.parametrize("more", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
def test_a_full_disk_behind_standard_output_is_one_sentence(
    place: Path, arguments: list[str], more: dict[str, str]
) -> None:
    plain = {name: value for name, value in environment(place).items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            command(*arguments),
            cwd=place,
            env=plain | more,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 2
    assert "cannot be written: No space left on device" in line


def test_whoever_serves_on_a_terminal_is_told_who_is_waited_for(place: Path) -> None:
    keyboard, terminal = os.openpty()
    with subprocess.Popen(
        command("serve"),
        cwd=place,
        env=environment(place),
        stdin=terminal,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == (
            "headgate: waiting for an MCP client on standard input; Ctrl-C ends it. For clients that come "
            "over HTTP: headgate knowledge serve --transport http\n"
        )
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
    os.close(terminal)
    os.close(keyboard)


WRONG: list[tuple[list[str], str]] = [
    (["search", "x", "--since", "yesterday"], "--since must be a day such as 2026-11-16, not 'yesterday'"),
    (
        ["sources", "--since", "2026-02-01", "--until", "2026-01-01"],
        "--since 2026-02-01 is after --until 2026-01-01; swap them",
    ),
    (["search", "x", "--type", ""], "--type must be a text"),
    (["search", " "], "Query cannot be empty or whitespace-only"),
    (["search", "x" * 501], "Query too long (max 500)"),
    (["search", "x", "--cursor", "nonsense"], "--cursor is not one that an answer ended with"),
    (["search", "x", "--store", "mysql://a:hunter2@b/c"], "--store is an address of 'mysql', allowed is"),
    (["ingest", "nowhere"], "nowhere"),
    (["ingest", "--graph", "nowhere.csv"], "nowhere.csv"),
    (["serve", "--transport", "carrier-pigeon"], "--transport is 'carrier-pigeon'"),
    (["serve", "--transport", "http", "--host", "0.0.0.0"], "loopback"),
    (["stats", "--config", "nowhere.json"], "nowhere.json"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_what_cannot_be_done_is_one_sentence(place: Path, arguments: list[str], words: str) -> None:
    said = refused(place, *arguments)
    assert words in said
    assert "hunter2" not in said


def test_what_a_sentence_says_already_is_not_said_again(place: Path) -> None:
    said = refused(place, "search", "x", "--strategy", "vector")
    assert said.count("Use --strategy bm25") == 1


@pytest.mark.parametrize("arguments", [["search", "x"], ["vendor", "x"], ["stats"], ["export"]])
def test_whoever_looks_before_anything_was_ingested_is_told_how_and_makes_no_file(
    tmp_path: Path, arguments: list[str]
) -> None:
    said = refused(tmp_path, *arguments, "--data-dir", "data")
    assert "no document has been ingested" in said
    assert "headgate knowledge ingest" in said
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_ingest_is_a_mistake(tmp_path: Path) -> None:
    ended = run(tmp_path, "ingest")
    assert ended.exit_code == 2
    assert "Name a PATH to ingest, or a --graph FILE to import." in ended.stderr


def test_a_path_from_a_variable_that_is_not_set_is_not_all_that_is_here(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    ended = run(tmp_path, "ingest", "", "--data-dir", "data")
    assert ended.exit_code == 2
    assert "A PATH is empty" in ended.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ingest", "--graph", ""], "Invalid value for '--graph': It is empty; name a JSONL or CSV file."),
        (["chunk", "abc"], "'abc' is no id of a chunk: a whole number from 1 on, as searches tell."),
        (["chunk", "0"], "'0' is no id of a chunk: a whole number from 1 on, as searches tell."),
    ],
)
def test_an_argument_that_is_none_is_told_with_what_is_allowed(
    place: Path, arguments: list[str], words: str
) -> None:
    ended = run(place, *arguments)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert words in ended.stderr


def test_the_traceback_is_there_for_who_asks(tmp_path: Path) -> None:
    plain, ended = run(tmp_path, "stats"), run(tmp_path, "stats", "-v")
    assert ended.exit_code == plain.exit_code == 2
    assert "Traceback" in ended.stderr
    assert ended.stderr.endswith(plain.stderr)


def test_who_interrupts_an_ingestion_is_told_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, exit_on_error(verbose=False, interrupted=INTERRUPTED):
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert capsys.readouterr().err == f"headgate: {INTERRUPTED}\n"
    assert "is kept" in INTERRUPTED


# A document that takes a thread a minute.
BUSY = """
import asyncio, threading
from headgate.cli.command_runner import run_until_interrupted

async def work():
    try:
        busy = asyncio.create_task(asyncio.to_thread(threading.Event().wait, 60))
        print("busy", flush=True)
        await busy
    finally:
        print("closed")

run_until_interrupted(work(), "interrupted; go on")
"""


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_who_interrupts_does_not_wait_for_a_thread_that_is_busy(
    tmp_path: Path, sign: signal.Signals, code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        process.send_signal(sign)
        said = process.communicate(timeout=SECONDS)
    assert (process.returncode, *said) == (code, "closed\n", "headgate: interrupted; go on\n")


def test_who_interrupts_any_command_is_told_nothing() -> None:
    @click.group(cls=CommandGroup)
    def commands() -> None:
        pass

    @commands.command()
    def load() -> None:
        raise KeyboardInterrupt

    ended = CliRunner().invoke(commands, ["load"])
    assert (ended.exit_code, ended.output) == (130, "")
    assert isinstance(cli, CommandGroup)


def test_a_sentence_of_the_documents_says_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), exit_on_error(verbose=False):
        raise StoreUnavailable
    assert capsys.readouterr().err == "headgate: Database unavailable, retry in 5s\n"


def test_who_can_mend_the_store_is_told_what_is_wrong_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit), exit_on_error(verbose=False):
        raise StoreUnavailable("the disk is full; make room on it")
    said = "headgate: the store of the documents cannot be used: the disk is full; make room on it\n"
    assert capsys.readouterr().err == said
    (tmp_path / "knowledge.db").write_bytes(b"no database at all" * 1000)
    for name in (["stats"], ["search", "acme"], ["ingest", str(tmp_path)], ["forget", "acme"]):
        said = refused(tmp_path, *name, "--data-dir", tmp_path)
        assert "cannot be used: the file is not a database; move knowledge.db away and ingest again" in said
    # What a traceback does not say.
    logged = run(tmp_path, "stats", "-v", "--data-dir", tmp_path)
    assert "the file is not a database" in logged.stderr


def test_what_a_store_logs_is_only_held_back_where_the_last_sentence_says_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("headgate.storage")
    with buffered_store_log():
        log.warning("the replica cannot be used")
        assert caplog.messages == []
    assert caplog.messages == ["the replica cannot be used"]
    with buffered_store_log() as released:
        log.warning("before")
        released()
        log.warning("after")
        assert caplog.messages[1:] == ["before", "after"]
    with suppress(StoreUnavailable), buffered_store_log():
        log.warning("the store cannot be used")
        raise StoreUnavailable
    assert caplog.messages[1:] == ["before", "after"]


def test_what_an_error_quotes_gives_a_terminal_nothing_to_obey(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), exit_on_error(verbose=False):
        raise ConfigError("\x1b[2Jacme\u202e", hint="look again")
    assert capsys.readouterr().err == "headgate:  [2Jacme ; look again\n"


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_changes_are_followed_until_somebody_interrupts(
    tmp_path: Path, sign: signal.Signals, code: int
) -> None:
    docs, out, log = tmp_path / "docs", tmp_path / "out", tmp_path / "log"
    docs.mkdir()
    (docs / "a.md").write_text("# One\n\nfirst\n", encoding="utf-8")

    def summaries() -> list[dict[str, Any]]:
        return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]

    with out.open("wb") as output, log.open("wb") as errors:
        child = subprocess.Popen(
            command("watch", "docs", "--interval", "0.1", "--json"),
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=output,
            stderr=errors,
        )
    try:
        wait_until(lambda: len(summaries()) == 1, SECONDS, "it has ingested")
        (docs / "b.md").write_text("# Two\n\nsecond\n", encoding="utf-8")
        wait_until(lambda: len(summaries()) == 2, SECONDS, "it has seen the change")
        child.send_signal(sign)
        assert child.wait(SECONDS) == code
    finally:
        child.kill()
        child.wait()
    first, second = summaries()
    assert (first["added"], second["added"], second["unchanged"]) == (1, 1, 1)
    assert log.read_text(encoding="utf-8") == "headgate: stopped; what was ingested is kept\n"
