"""Real files of every kind on their way into a store."""

import asyncio
import os
from pathlib import Path
from typing import Literal

from headgate.knowledge.data_model import NO_FILTERS
from headgate.knowledge.ingestion.pipeline import IngestionPipeline, IngestionSummary
from headgate.knowledge.readers.file_library import open_library
from tests.knowledge.function_extractor import FunctionExtractor
from tests.knowledge.memory_store import MemoryKnowledgeStore
from tests.knowledge.readers.sample_files import pdf, word

FILES = {
    "contracts/supply.pdf": pdf("Acme delivers steel within ten days", title="Supply"),
    "contracts/frame.docx": word(("Heading 1", "Liability"), ("Normal", "Nobody pays for a flood")),
    "guide.md": b"---\ncategory: help\n---\n# Guide\n\n## Start\n\nTurn the key\n",
    "page.html": b"<title>Page</title><h1>Opening hours</h1><p>Closed on Sunday",
    "prices.csv": b"part,price\nbolt,1.50\n",
    "vendors.jsonl": b'{"name": "Bolt Brothers"}\n',
    "readme.txt": "Grüezi".encode("utf-16"),
}


class Silent:
    """Reports nothing."""

    def report(self, phase: Literal["read", "embed"], done: int, total: int, file: str) -> None:
        pass


async def ingest(store: MemoryKnowledgeStore, directory: Path) -> IngestionSummary:
    async with asyncio.timeout(30), open_library([directory], ["*.tmp.md"]) as library:
        ingestion = IngestionPipeline(store, library, count=len, extractor=FunctionExtractor())
        return await ingestion.run(Silent())


async def test_every_kind_of_file_is_found_again_and_a_bad_one_is_told(tmp_path: Path) -> None:
    for name, content in FILES.items():
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "docs/scan.pdf").write_bytes(pdf(""))
    (tmp_path / "docs/a.tmp.md").write_text("left out")
    os.utime(tmp_path / "docs/prices.csv", (86_400.0, 86_400.0))
    store = MemoryKnowledgeStore()
    summary = await ingest(store, tmp_path / "docs")
    assert (summary.added, [failure.file for failure in summary.failed]) == (7, ["docs/scan.pdf"])
    known = (await store.sources(await store.source_ids(NO_FILTERS))).values()
    assert {(source.file, source.category, source.doc_type) for source in known} == {
        ("docs/contracts/supply.pdf", "contracts", "pdf"),
        ("docs/contracts/frame.docx", "contracts", "docx"),
        ("docs/guide.md", "help", "markdown"),
        ("docs/page.html", "docs", "html"),
        ("docs/prices.csv", "docs", "csv"),
        ("docs/vendors.jsonl", "docs", "json"),
        ("docs/readme.txt", "docs", "text"),
    }
    dates = {source.file: source.date for source in known}
    assert (dates["docs/contracts/supply.pdf"], dates["docs/prices.csv"]) == ("2024-05-06", "1970-01-02")
    headers = {chunk.header async for chunk in store.iter_chunks()}
    assert "docs/contracts/frame.docx > Liability" in headers
    assert "docs/prices.csv > part, price" in headers
    assert (await ingest(store, tmp_path / "docs")).unchanged == 7
