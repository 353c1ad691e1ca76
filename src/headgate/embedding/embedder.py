"""What every embedder offers, and how it says that it cannot work."""

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Protocol

from headgate.domain.errors import ConfigError
from headgate.embedding.embedding_input import EmbeddingQuery

# An agent waits for its search; words alone answer at once.
QUERY_TIMEOUT_SECONDS = 2.0
# How many texts of how many are done.
EmbeddingProgress = Callable[[int, int], None]


class Embedder(Protocol):
    """Makes vectors of texts; it blocks, so it is called in a thread and not on the loop."""

    @property
    def name(self) -> str:
        """What people call the model."""

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has; 0 as long as nobody knows."""

    @property
    def fingerprint(self) -> str:
        """Changes when the same text would get another vector: a cache keeps vectors under it."""

    def embed(self, texts: Sequence[str], progress: EmbeddingProgress | None = None) -> list[bytes]:
        """Return vectors of length one, as little-endian float32; raises EmbedderAway when there are none."""

    def embed_query(self, question: EmbeddingQuery) -> list[bytes]:
        """Return the vector of the question and one for each of its clauses, soon or not at all."""

    def close(self) -> None:
        """Leave what is under way, in whichever thread: it raises EmbedderAway."""


class PackagesMissing(ConfigError):
    """An embedder was chosen and its packages are not installed."""

    def __init__(self, choice: str, extra: str, package: str) -> None:
        super().__init__(
            f"the embedder {choice} needs the package {package!r}, which is not installed",
            hint=f'pip install "headgate[{extra}]"',
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
            f'or pip install --force-reinstall "headgate[{extra}]"',
        ) from broken
