"""The settings of the document server: the object `knowledge`."""

import re
from collections.abc import Collection
from typing import Annotated, Literal

import msgspec

from headgate.config.setting_values import CONTROL_CHARACTERS, about, between, invalid_value_error, seconds
from headgate.domain.errors import ConfigError

_WEEK = 7 * 86_400
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,29})://.")
_SCHEMES = ("postgresql", "postgres")
_ADDRESS = "an address such as postgresql://user:password@host:5432/database"


class WeightSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much each of the two rankings counts; only the ratio matters."""

    vector: Annotated[float, between(0, 1000, "How much the ranking by meaning counts.")] = 0.5
    bm25: Annotated[float, between(0, 1000, "How much the ranking by words counts.")] = 0.5


class BoostSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """By which share the score of a chunk grows that fits in other ways too."""

    vendor: Annotated[float, between(0, 1, "The share for the vendor that the query names.")] = 0.15
    doc_type: Annotated[float, between(0, 1, "The share for the kind of document that it names.")] = 0.10
    recency: Annotated[float, between(0, 1, "The share for a document of today; less for older ones.")] = 0.05
    entity: Annotated[float, between(0, 1, "The share for anybody or anything else that it names.")] = 0.10
    topic: Annotated[float, between(0, 1, "The share for a heading or category with its words.")] = 0.08


class KnowledgeSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The store of the documents, and the parameters of their search."""

    # None is knowledge.db in the data directory.
    store: Annotated[
        str | None, about("The PostgreSQL that keeps the documents; unset, knowledge.db in dataDir.")
    ] = None
    replica: Annotated[str | None, about("A replica of that PostgreSQL, which searches read from.")] = None
    # None is the gateway's own.
    embedder: Annotated[
        Literal["BM25", "SEMANTIC", "HF", "OPENAI"] | None,
        about("What documents are searched by besides words; unset, as the tools are."),
    ] = None
    k: Annotated[int, between(1, 1000, "The constant of reciprocal rank fusion, 1 / (k + rank).")] = 60
    weights: Annotated[WeightSettings, about("How much meaning and words count; only the ratio matters.")] = (
        WeightSettings()
    )
    boost: Annotated[bool, about("Whether a search is boosted that does not say.")] = False
    boosts: Annotated[
        BoostSettings, about("By which share the score of a chunk grows that also fits so.")
    ] = BoostSettings()
    token_budget: Annotated[
        int, between(0, 1_000_000_000, "The tokens that a caller may have in 24 hours; 0 is no limit.")
    ] = 100_000
    structured_content: Annotated[
        bool, about("Whether answers have structuredContent too, which some clients show to the model.")
    ] = True
    cache_entries: Annotated[int, between(1, 1_000_000, "The most searches that are remembered.")] = 1000
    cache_ttl_seconds: Annotated[
        float, seconds(1, _WEEK, "How long a search is remembered, if nothing is ingested meanwhile.")
    ] = msgspec.field(default=3600.0, name="cacheTtl")
    pool_min: Annotated[int, between(1, 1000, "The connections to PostgreSQL that are always open.")] = 2
    pool_max: Annotated[int, between(1, 1000, "The most connections to PostgreSQL.")] = 10


def check_store_address(value: object, where: str) -> object:
    """The address of a PostgreSQL; raises ConfigError without repeating it: it holds a password."""
    text = str(value)
    found = _SCHEME.match(text)
    if found is None or CONTROL_CHARACTERS.search(text) or " " in text:
        raise invalid_value_error(where, "not usable", _ADDRESS)
    if found.group(1).casefold() not in _SCHEMES:
        raise invalid_value_error(where, f"an address of {found.group(1)!r}", _ADDRESS)
    return value


def consistent_knowledge_settings(
    settings: KnowledgeSettings, given: Collection[str], warnings: list[str]
) -> KnowledgeSettings:
    """The settings made consistent; `given` are the paths of those that were set.

    Raises ConfigError where given settings contradict each other.
    """
    if settings.weights.vector + settings.weights.bm25 <= 0:
        raise ConfigError(
            "both of knowledge.weights are 0, so that nothing could be ranked",
            hint="make vector or bm25 larger than 0, or remove weights",
        )
    if settings.replica is not None and settings.store is None:
        warnings.append("knowledge.replica has no effect without knowledge.store, of which it is a replica")
    if settings.pool_min <= settings.pool_max:
        return settings
    if {"knowledge.pool_min", "knowledge.pool_max"}.issubset(given):
        raise ConfigError(
            f"knowledge.poolMin is {settings.pool_min}, which is more than poolMax, {settings.pool_max}",
            hint="make poolMax at least as large as poolMin",
        )
    # The one that was set wins.
    size = settings.pool_min if "knowledge.pool_min" in given else settings.pool_max
    return msgspec.structs.replace(settings, pool_min=size, pool_max=size)
