"""Takes a set into a store as `headgate knowledge ingest` does: files that are read, cut, and embedded."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from bench.knowledge.sets import Document
from headgate.knowledge.data_model import NewChunk
from headgate.knowledge.ingestion.document_source import (
    DocumentLibrary,
    FileInventory,
    ReadDocument,
    SourceRoots,
)
from headgate.knowledge.ingestion.pipeline import IngestionPipeline, IngestionSummary
from headgate.knowledge.interfaces import AsyncEmbedder, EntityExtractor, ExtractedGraph, IndexWriter
from headgate.knowledge.readers.file_library import open_library
from headgate.search.token_counter import count_tokens


class Silent:
    """Shows nothing."""

    def report(self, phase: Literal["read", "embed"], done: int, total: int, file: str) -> None:
        """Report nothing."""


class NoEntities:
    """Extracts nothing: the entities do not matter here."""

    version = ""

    def extract(self, chunks: Sequence[NewChunk]) -> ExtractedGraph:
        """Nothing."""
        return (), ()


class EachSectionApart:
    """A library in which no two sections share a chunk."""

    def __init__(self, library: DocumentLibrary) -> None:
        self._library = library

    @property
    def parser_version(self) -> str:
        """Its own."""
        return f"{self._library.parser_version}-apart"

    async def inventory(self, known: SourceRoots) -> FileInventory:
        """As it is."""
        return await self._library.inventory(known)

    async def read(self, file: str, known: str) -> ReadDocument | None:
        """The same text, with each section by itself."""
        reading = await self._library.read(file, known)
        if reading is None:
            return None
        # Headings alone go with what follows them either way.
        sections = tuple(
            replace(section, apart=any(map(str.strip, section.text.split("\n")[1:])))
            for section in reading.parsed.sections
        )
        return replace(reading, parsed=replace(reading.parsed, sections=sections))


async def take_in(
    store: IndexWriter,
    documents: Sequence[Document],
    vectors: AsyncEmbedder | None,
    extractor: EntityExtractor | None = None,
    *,
    sections_apart: bool = False,
) -> IngestionSummary:
    """Write the documents as files into a directory `docs`, and take that in."""
    with tempfile.TemporaryDirectory(prefix="bench-knowledge-") as directory:
        root = Path(directory) / "docs"
        root.mkdir()
        for one in documents:
            (root / one.file).write_text(one.markdown)
        async with open_library([root]) as library:
            ingestion = IngestionPipeline(
                store,
                EachSectionApart(library) if sections_apart else library,
                count=lambda text: count_tokens(text.encode()),
                extractor=extractor or NoEntities(),
                vectors=vectors,
            )
            return await ingestion.run(Silent())
