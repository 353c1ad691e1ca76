"""The options of the document server, independent of how they are configured."""

from pathlib import Path

import msgspec


class ScoreBoosts(msgspec.Struct, frozen=True, kw_only=True):
    """The share by which the score of a chunk grows for each kind of match."""

    vendor: float = 0.15
    doc_type: float = 0.10
    recency: float = 0.05
    entity: float = 0.10
    topic: float = 0.08


class KnowledgeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the documents are stored, how they are embedded, and how they are searched."""

    # Holds knowledge.db, and the record of files that could not be read.
    data_dir: Path
    # None stores the documents in knowledge.db.
    store_url: str | None = None
    replica_url: str | None = None
    pool_min: int = 2
    pool_max: int = 10
    # None takes the offline model where its packages are installed.
    embedder: str | None = None
    hf_model: str = ""
    openai_base_url: str = ""
    openai_model: str = ""
    openai_api_key: str | None = None
    fusion_k: int = 60
    vector_weight: float = 0.5
    bm25_weight: float = 0.5
    # Applies to searches that do not choose.
    boost: bool = False
    boosts: ScoreBoosts = ScoreBoosts()
    cache_entries: int = 1000
    cache_ttl_seconds: float = 3600.0
    # Per caller in 24 hours; 0 is no limit.
    token_budget: int = 100_000
    structured_content: bool = True

    @property
    def database_path(self) -> Path:
        """The SQLite file; unused with a store URL."""
        return self.data_dir / "knowledge.db"

    @property
    def bm25_only(self) -> bool:
        return self.embedder == "BM25"
