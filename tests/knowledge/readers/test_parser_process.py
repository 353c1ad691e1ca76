"""Parsing in another process: bounded in time and memory, and a bad file never takes the next with it."""

import asyncio
import io
import logging
import os
import signal

import pytest
from pypdf import PdfWriter

from headgate.knowledge.ingestion.document_source import DocumentUnreadable
from headgate.knowledge.readers.file_library import open_parser_process
from testkit.procfs import descendants
from testkit.waiting import eventually
from tests.knowledge.readers.sample_files import pdf, scan, text_of, word, word_with

WAIT_SECONDS = 30.0
# Takes minutes: for each of them the parser looks through all that are open.
SLOW_PAGE = b"<div><b>" * 50_000


def processes() -> set[int]:
    """Those that parse."""
    return descendants(os.getpid())


async def test_every_kind_of_file_is_parsed_in_one_process() -> None:
    async with asyncio.timeout(WAIT_SECONDS), open_parser_process() as parsing:
        files = {".md": b"# A\n", ".html": b"<p>A", ".pdf": pdf("A"), ".docx": word(("Normal", "A"))}
        for extension, content in files.items():
            assert "A" in text_of(await parsing.parse(extension, content))
        assert len(processes()) == 1
    assert processes() == set()


async def test_a_file_that_takes_too_long_is_told_and_the_next_is_read() -> None:
    async with asyncio.timeout(WAIT_SECONDS), open_parser_process(seconds=3.0) as parsing:
        with pytest.raises(DocumentUnreadable, match="takes longer than 3 s"):
            await parsing.parse(".html", SLOW_PAGE)
        assert "fine" in text_of(await parsing.parse(".txt", b"fine"))


async def test_a_file_that_ends_the_process_is_told_and_the_next_is_read() -> None:
    async with asyncio.timeout(WAIT_SECONDS), open_parser_process() as parsing:
        reading = asyncio.create_task(parsing.parse(".html", SLOW_PAGE))
        await eventually(lambda: bool(processes()), WAIT_SECONDS, "the process")
        [process] = processes()
        os.kill(process, signal.SIGKILL)
        with pytest.raises(DocumentUnreadable, match="ended the process that read it"):
            await reading
        assert "fine" in text_of(await parsing.parse(".txt", b"fine"))


async def test_nothing_is_left_when_nobody_waits_any_more() -> None:
    async with asyncio.timeout(WAIT_SECONDS), open_parser_process() as parsing:
        reading = asyncio.create_task(parsing.parse(".html", SLOW_PAGE))
        await eventually(lambda: bool(processes()), WAIT_SECONDS, "the process")
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert processes() == set()


async def test_what_a_parser_stumbles_over_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(WAIT_SECONDS), open_parser_process() as parsing:
        with caplog.at_level(logging.WARNING), pytest.raises(DocumentUnreadable, match="is broken"):
            await parsing.parse(".docx", word_with("word/document.xml", b"<other/>"))
    assert "AttributeError" in caplog.text


async def test_a_page_that_is_broken_is_told_with_the_name_of_its_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer, file = PdfWriter(), io.BytesIO()
    for part in (pdf("fine"), scan(is_broken=True)):
        writer.append(io.BytesIO(part))
    writer.write(file)
    async with asyncio.timeout(WAIT_SECONDS), open_parser_process() as parsing:
        with caplog.at_level(logging.WARNING):
            parsed = await parsing.parse(".pdf", file.getvalue(), file="docs/a.pdf")
            assert text_of(parsed) == "fine\n\n"
            await parsing.parse(".txt", b"also fine", file="docs/b.txt")
    assert "'docs/a.pdf':\npage 2 cannot be read" in caplog.text
    assert len(caplog.records) == 1
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("extension", "content"),
    [
        (".html", b"<script>1</script>"),
        (".md", b"---\ntitle: x\n---\n"),
        (".json", b"[]"),
        (".json", b"{}"),
        (".csv", b",,\n"),
        (".docx", word()),
    ],
)
async def test_a_file_in_which_there_is_no_text_is_read_all_the_same(extension: str, content: bytes) -> None:
    async with asyncio.timeout(WAIT_SECONDS), open_parser_process() as parsing:
        assert text_of(await parsing.parse(extension, content)) == ""
