"""A model of Hugging Face by its name, run by sentence-transformers."""

import hashlib
from collections.abc import Sequence
from typing import Any

from headgate.domain.errors import ConfigError, EmbedderUnavailable
from headgate.embedding.embedder import EmbeddingProgress, EmbeddingQuery, import_extra

CHOICE = "HF"
EXTRA = "huggingface"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
BATCH_TEXTS = 32


class HuggingFaceEmbedder:
    """The model in memory; loading may download it and is work for a thread."""

    def __init__(self, model: str = MODEL) -> None:
        library: Any = import_extra("sentence_transformers", choice=CHOICE, extra=EXTRA)
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
        self.fingerprint = f"hf-{_digest(self._model)}"

    def embed(self, texts: Sequence[str], progress: EmbeddingProgress | None = None) -> list[bytes]:
        """Embed in batches, so that progress can be reported."""
        vectors: list[bytes] = []
        for start in range(0, len(texts), BATCH_TEXTS):
            if self._closed:
                raise EmbedderUnavailable(self.name, "it is closed")
            encoded = self._encoded(list(texts[start : start + BATCH_TEXTS]))
            vectors.extend(row.astype("<f4").tobytes() for row in encoded)
            if progress:
                progress(len(vectors), len(texts))
        return vectors

    def embed_query(self, question: EmbeddingQuery) -> list[bytes]:
        """Embed the question and its clauses."""
        return self.embed(question.texts)

    def close(self) -> None:
        """Stop before the next batch."""
        self._closed = True

    def _encoded(self, texts: list[str]) -> Any:
        return self._model.encode(
            texts, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )


def _digest(model: Any) -> str:
    """A digest of the weights: a name may refer to another model tomorrow."""
    digest = hashlib.sha256()
    for name, weights in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weights.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:24]
