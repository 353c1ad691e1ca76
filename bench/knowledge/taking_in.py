"""Takes a set into a store as `headgate knowledge ingest` does: files that are read, cut, and embedded."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from bench.knowledge.sets import Document
from headgate.catalog.tokens import count_tokens
from headgate.documents.library import open_library
from headgate.knowledge.extraction import extract
from headgate.knowledge.ingestion import Extract, Ingestion, Summary
from headgate.knowledge.store import Intake
from headgate.knowledge.values import NewChunk, NewEntity, NewRelationship
from headgate.knowledge.vectors import Vectors

__all__ = ["extract", "nothing", "take_in"]


class Silent:
    """Shows nothing."""

    def tell(self, phase: Literal["read", "embed"], done: int, total: int, file: str) -> None:
        """Nobody looks."""


def nothing(chunks: Sequence[NewChunk]) -> tuple[tuple[NewEntity, ...], tuple[NewRelationship, ...]]:
    """Whom the documents speak of does not matter here."""
    return (), ()


async def take_in(
    store: Intake, documents: Sequence[Document], vectors: Vectors | None, extracted: Extract = nothing
) -> Summary:
    """Write the documents as files into a directory `docs`, and take that in."""
    with tempfile.TemporaryDirectory(prefix="bench-knowledge-") as directory:
        root = Path(directory) / "docs"
        root.mkdir()
        for one in documents:
            (root / one.file).write_text(one.markdown)
        async with open_library([root]) as library:
            ingestion = Ingestion(
                store,
                library,
                count=lambda text: count_tokens(text.encode()),
                extract=extracted,
                vectors=vectors,
            )
            return await ingestion.run(Silent())
