"""Vectors of texts, kept in .bench by the fingerprint of the model, so that a second run is quick."""

import hashlib
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headgate.embedding.embedder import Embedder, EmbeddingProgress, EmbeddingQuery, embedding_query
from headgate.embedding.minilm import MiniLMEmbedder, fingerprint_of

KEPT: Final = Path(__file__).resolve().parents[2] / ".bench" / "vectors"
_BATCH: Final = 64
_VECTOR_BYTES: Final = MiniLMEmbedder.dimensions * 4
# A run that takes minutes says so while it does.
_REPORT_SECONDS: Final = 10.0


class KeptVectors:
    """The offline model behind a file: it is loaded and runs only for what the file does not have."""

    name = MiniLMEmbedder.name
    dimensions = MiniLMEmbedder.dimensions
    fingerprint = fingerprint_of()

    def __init__(self, directory: Path = KEPT, *, fresh_questions: bool = False) -> None:
        """With `fresh_questions` those are embedded each time, because it is measured how long that takes."""
        directory.mkdir(parents=True, exist_ok=True)
        # It is used by the threads of an event loop, one at a time.
        self._lock = threading.Lock()
        self._file = sqlite3.connect(directory / f"{self.fingerprint}.db", check_same_thread=False)
        self._file.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB NOT NULL)")
        self._fresh_questions = fresh_questions
        self._model: Embedder | None = None

    @property
    def loaded(self) -> bool:
        """Whether the model was needed so far."""
        return self._model is not None

    def load(self) -> Embedder:
        """The model itself."""
        if self._model is None:
            self._model = MiniLMEmbedder()
        return self._model

    def embed(self, texts: Sequence[str], progress: EmbeddingProgress | None = None) -> list[bytes]:
        """Return the vectors of the texts, from the file as far as it has them."""
        with self._lock:
            known = {text: found for text in dict.fromkeys(texts) if (found := self._kept(text))}
            missing = [text for text in dict.fromkeys(texts) if text not in known]
            report = _Report("tools", len(missing))
            for start in range(0, len(missing), _BATCH):
                batch = missing[start : start + _BATCH]
                made = dict(zip(batch, self.load().embed(batch), strict=True))
                self._keep(made)
                known |= made
                report.done(start + len(batch))
        if progress:
            progress(len(texts), len(texts))
        return [known[text] for text in texts]

    def embed_query(self, question: EmbeddingQuery) -> list[bytes]:
        """Return the vector of the question and those of its clauses, from the file if it has them."""
        if self._fresh_questions:
            return self.load().embed_query(question)
        called = f"{question.clauses} {question.text}"
        with self._lock:
            kept = self._kept(called)
            if kept is None:
                kept = b"".join(self.load().embed_query(question))
                self._keep({called: kept})
        return [kept[start : start + _VECTOR_BYTES] for start in range(0, len(kept), _VECTOR_BYTES)]

    def prepare(self, questions: Sequence[str]) -> None:
        """Make the vectors of these questions: one that comes late would be answered by words alone."""
        report = _Report("questions", len(questions))
        for number, question in enumerate(questions, 1):
            self.embed_query(embedding_query(question))
            report.done(number)

    def close(self) -> None:
        """Leave what is under way."""
        if self._model is not None:
            self._model.close()

    def _kept(self, text: str) -> bytes | None:
        row = self._file.execute("SELECT vector FROM vectors WHERE text = ?", (_digest(text),)).fetchone()
        found: bytes | None = row[0] if row else None
        return found

    def _keep(self, vectors: dict[str, bytes]) -> None:
        rows = [(_digest(text), vector) for text, vector in vectors.items()]
        with self._file:
            self._file.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)


class _Report:
    """Says now and then how far it is."""

    def __init__(self, what: str, count: int) -> None:
        self._what = what
        self._count = count
        self._last = time.monotonic()

    def done(self, number: int) -> None:
        if time.monotonic() - self._last > _REPORT_SECONDS:
            self._last = time.monotonic()
            print(
                f"bench: vectors of {self._what}, {number:,} of {self._count:,}", file=sys.stderr, flush=True
            )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
