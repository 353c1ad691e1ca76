"""The Protocol of an embedder, the texts it reads of tools and queries, and the error of a missing extra."""

import importlib
import math
import re
import struct
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Final, Protocol

import msgspec

from headgate.domain.errors import ConfigError

# The whole text, the name alone and the first sentence alone: a long description would drown both.
BLEND_WEIGHTS: Final = (1.0, 0.5, 0.5)
TEXTS_PER_TOOL: Final = len(BLEND_WEIGHTS)
# Raised whenever a tool would get another vector from the same model.
INPUT_VERSION: Final = 2
# A description begins with the purpose of the tool.
LONGEST_SENTENCE: Final = 300
LONGEST_DESCRIPTION: Final = 2_000
LONGEST_QUESTION: Final = 4_000

_SENTENCE_END: Final = re.compile(r"\.\s")
_WORD: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CLAUSE_END: Final = re.compile(
    r"[.!?;:]\s+|[\n\r]+|,\s+|[\u3002\uff01\uff1f\uff1b\uff0c\u3001]|\b(?:and|then|also|additionally|finally)\b",
    re.IGNORECASE,
)
# A shorter query has one intent, however many commas it has.
LONG_QUESTION_WORDS: Final = 30
# Fewer words ask for nothing by themselves.
SHORTEST_CLAUSE: Final = 3
MOST_CLAUSES: Final = 12


class EmbeddingQuery(msgspec.Struct, frozen=True):
    """A query, and the spans of its clauses if it is long: each may need another tool."""

    text: str
    clauses: tuple[tuple[int, int], ...] = ()

    @property
    def texts(self) -> list[str]:
        """The question, then its clauses."""
        return [self.text, *(self.text[start:end] for start, end in self.clauses)]


def tool_texts(server: str, name: str, description: str) -> tuple[str, str, str]:
    """The texts whose vectors `blend` makes one of; none is empty."""
    called = f"{_spoken(server)} {_spoken(name)}".strip() or name
    first = _SENTENCE_END.split(description, maxsplit=1)[0][:LONGEST_SENTENCE].strip()
    return f"{called}: {description[:LONGEST_DESCRIPTION]}", called, first or _spoken(name) or called


def embedding_query(text: str) -> EmbeddingQuery:
    """The part of a request that is embedded."""
    text = text[:LONGEST_QUESTION]
    if len(_WORD.findall(text)) < LONG_QUESTION_WORDS:
        return EmbeddingQuery(text)
    ends = [match.span() for match in _CLAUSE_END.finditer(text)]
    clauses = zip([0, *(end for _, end in ends)], [*(start for start, _ in ends), len(text)], strict=True)
    telling = [span for span in clauses if len(_WORD.findall(text[slice(*span)])) >= SHORTEST_CLAUSE]
    return EmbeddingQuery(text, tuple(telling[:MOST_CLAUSES]) if len(telling) > 1 else ())


def blend_vectors(vectors: Sequence[bytes]) -> bytes:
    """One vector of the vectors of a tool's texts, of length one again."""
    count = len(vectors[0]) // 4
    sums = [0.0] * count
    for share, vector in zip(BLEND_WEIGHTS, vectors, strict=True):
        for place, number in enumerate(struct.unpack(f"<{count}f", vector)):
            sums[place] += share * number
    # Three opposite vectors could cancel each other out; the whole text stands then.
    length = math.hypot(*sums)
    return struct.pack(f"<{count}f", *(number / length for number in sums)) if length else vectors[0]


def _spoken(name: str) -> str:
    """`getUserInfo` and `get_user_info` as a person would say them."""
    return " ".join(_WORD.findall(_HUMP.sub(" ", name))).lower()


# An agent waits for its search; words alone answer at once.
QUERY_TIMEOUT_SECONDS = 2.0
# How many texts of how many are done.
EmbeddingProgress = Callable[[int, int], None]


class Embedder(Protocol):
    """Makes vectors of texts; it blocks, so it is called in a thread and not on the loop."""

    @property
    def name(self) -> str:
        """The display name of the model."""

    @property
    def dimensions(self) -> int:
        """The length of a vector; 0 while it is unknown."""

    @property
    def fingerprint(self) -> str:
        """Changes when the same text would get another vector: a cache keeps vectors under it."""

    def embed(self, texts: Sequence[str], progress: EmbeddingProgress | None = None) -> list[bytes]:
        """Return unit vectors as little-endian float32; raises EmbedderUnavailable."""

    def embed_query(self, question: EmbeddingQuery) -> list[bytes]:
        """Return the vector of the question and one for each of its clauses, soon or not at all."""

    def close(self) -> None:
        """Abort running work in any thread, which then raises EmbedderUnavailable."""


class PackagesMissing(ConfigError):
    """An embedder was chosen and its packages are not installed."""

    def __init__(self, choice: str, extra: str, package: str) -> None:
        super().__init__(
            f"the embedder {choice} needs the package {package!r}, which is not installed",
            hint=f'pip install "headgate-mcp[{extra}]"',
        )


def import_extra(module: str, *, choice: str, extra: str) -> ModuleType:
    """Import a module of an extra; raises PackagesMissing, or ConfigError for one that is broken."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        raise PackagesMissing(choice, extra, package) from missing
    except ImportError as broken:
        raise ConfigError(
            f"the embedder {choice} needs the package {package!r}, which is installed and cannot be imported",
            hint=f'see why with python -c "import {package}", '
            f'or pip install --force-reinstall "headgate-mcp[{extra}]"',
        ) from broken
