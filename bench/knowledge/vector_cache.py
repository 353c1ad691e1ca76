"""Vectors of passages, kept in .bench like those of tools, so that only the first run takes minutes."""

from pathlib import Path
from typing import Final

from bench.retrieval.vectors import KEPT, KeptVectors
from headgate.embedding.embedder import Embedder
from headgate.embedding.minilm import (
    PASSAGE_PIECES,
    PASSAGE_WINDOWS,
    MiniLMEmbedder,
    MiniLMWeights,
    fingerprint_of,
)

# How much of a passage is read: windows of so many pieces.
READ: Final = (PASSAGE_WINDOWS, PASSAGE_PIECES)


class KeptPassages(KeptVectors):
    """The offline model as it reads passages, behind a file."""

    def __init__(
        self,
        directory: Path = KEPT,
        *,
        windows: int = PASSAGE_WINDOWS,
        pieces: int = PASSAGE_PIECES,
        fresh_questions: bool = False,
    ) -> None:
        """With `fresh_questions` those are embedded each time, because it is measured how long that takes."""
        self._windows, self._pieces = windows, pieces
        self.fingerprint = fingerprint_of(pieces, windows)
        super().__init__(directory, fresh_questions=fresh_questions)

    def load(self) -> Embedder:
        """The model itself."""
        if self._model is None:
            self._model = MiniLMEmbedder(MiniLMWeights(), pieces=self._pieces, windows=self._windows)
        return self._model
