"""Every setting of the gateway with its type, range and default."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headgate.config.setting_values import (
    CONTROL_CHARACTERS,
    about,
    between,
    invalid_value_error,
    seconds,
    text,
)
from headgate.domain.errors import ConfigError
from headgate.domain.server_spec import ServerSpec

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
    """The settings made consistent; raises ConfigError where the `given` paths contradict each other."""
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


Listing = Literal["auto", "full", "partitioned", "slim", "search", "dynamic", "budget"]

_KIB = 1024
_MIB = 1024 * _KIB
_DAY = 86_400


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a gateway; equal settings need no change.

    The sentences are what an editor shows: the schema of the file is made of them.
    """

    # In the order of the file.
    servers: tuple[ServerSpec, ...] = ()
    # None where there is no file.
    config_path: Path | None = None
    # Problems that do not keep the gateway from running, one sentence each.
    warnings: tuple[str, ...] = ()
    # The invalid entries, which are not among the servers, by name, and the reason for each.
    left_out: dict[str, str] = {}
    # Files of variables that entries name, which are watched as the configuration is.
    env_files: tuple[Path, ...] = ()
    # From the environment only: in a file it would erase the data on every start.
    reset_data: bool = False

    name: Annotated[str, text(64, "The name that clients see of this gateway.")] = "headgate"
    prefix: Annotated[
        bool, about("Names of tools and prompts begin with their server's; false needs a single server.")
    ] = True
    listing: Annotated[
        Listing,
        about(
            "What tools/list shows: full is every tool, partitioned every tool with its top-level arguments, "
            "slim every tool in few words, search what finds and calls the others, "
            "dynamic what finds them and those found so far, budget as much as fits "
            "listingBudgetTokens, auto the fullest of full, slim and budget that fits."
        ),
    ] = "auto"
    listing_budget_tokens: Annotated[
        int, between(500, 1_000_000, "The most tokens (o200k) of tools/list in the modes budget and auto.")
    ] = 3000
    client_listings: Annotated[
        dict[str, Listing], about("The listing for clients by their name in clientInfo, which may have a *.")
    ] = {}
    dialect: Annotated[
        Literal["auto", "plain", "gemini", "openai"],
        about(
            "The dialect of JSON Schema that tools are served in: plain is as their servers wrote them, "
            "auto is what the client needs, if its name says so."
        ),
    ] = "auto"
    client_dialects: Annotated[
        dict[str, Literal["plain", "gemini", "openai"]],
        about("The dialect for clients by their name in clientInfo, which may have a *."),
    ] = {}
    first_listing_timeout_seconds: Annotated[
        float,
        seconds(0, 300, "How long a listing waits for servers that are starting and have never listed."),
    ] = 8.0
    top_k: Annotated[int, between(1, 50, "How many tools a search finds when it does not say.")] = 5
    tools_limit: Annotated[
        int, between(1, 100, "How many found tools a client's list has in the listing mode dynamic.")
    ] = 15
    # None means that the installed packages decide.
    embedder: Annotated[
        Literal["BM25", "SEMANTIC", "HF", "OPENAI"] | None,
        about("What search goes by besides words; BM25 is words alone."),
    ] = None
    hf_model: Annotated[str, about("The model of the embedder HF.")] = (
        "sentence-transformers/all-MiniLM-L6-v2"
    )
    openai_base_url: Annotated[str, about("Where the embedder OPENAI asks for vectors.")] = (
        "https://api.openai.com/v1"
    )
    openai_model: Annotated[str, about("The model of the embedder OPENAI.")] = "text-embedding-3-small"
    openai_api_key: Annotated[str | None, about("The key of the embedder OPENAI.")] = None
    # None means that it is not set, so the limit follows from the prefix of the client.
    tool_name_limit: Annotated[
        int | None, between(10, 200, "The longest public name of a tool or prompt.")
    ] = None

    max_response_size: Annotated[
        int,
        between(
            1, 100_000_000, "A result with more characters is stored, and an excerpt of it is shown instead."
        ),
    ] = 8000
    # None is no such limit.
    max_response_tokens: Annotated[
        int | None, between(1, 100_000_000, "The same limit in tokens, which are estimated.")
    ] = None
    enable_auto_truncation: Annotated[
        bool,
        about(
            "Whether results that are too large are cut; false shows every result whole, and lists every "
            "output schema."
        ),
    ] = True
    truncation: Annotated[
        Literal["cache", "head_tail"],
        about(
            "What is shown of a result that is too large: cache is its beginning, cut where JSON still "
            "parses and lines end, head_tail its head and its last 50 characters."
        ),
    ] = "cache"
    # None is a quarter of the limit.
    excerpt_size: Annotated[
        int | None,
        between(1, 100_000_000, "The most characters of an excerpt; unset, a quarter of the limit."),
    ] = None
    # None is built in.
    truncation_message: Annotated[
        str | None,
        Meta(
            max_length=2000,
            description=(
                "The notice below an excerpt, with {cache_id} and, if wanted, {shown}, {size}, {tokens}, "
                "{minutes} and {tools}."
            ),
        ),
    ] = None
    compact_tables: Annotated[
        bool,
        about("Whether excerpts of tables name their columns once, where that takes fewer tokens."),
    ] = False
    list_result_tools: Annotated[
        bool, about("Whether the tools that read stored results are listed; they can be called anyway.")
    ] = True
    cache_max_entries: Annotated[
        int, between(1, 1_000_000, "The most stored results while agents share one store.")
    ] = 50
    cache_ttl_seconds: Annotated[float, seconds(1, 604_800, "How long a result is stored after it came.")] = (
        300.0
    )
    cache_max_bytes: Annotated[
        int, between(_MIB, 1024 * 1024 * _MIB, "The most bytes of all stored results, on disk included.")
    ] = 1024 * _MIB
    enable_agent_isolation: Annotated[
        bool, about("Whether each agent (a key, or without one a session) reads its own results only.")
    ] = True
    max_entries_per_agent: Annotated[int, between(1, 100_000, "The most stored results of one agent.")] = 20
    max_memory_per_agent: Annotated[
        int, between(0, 1024 * 1024 * _MIB, "What an agent stores beyond so many bytes goes to disk.")
    ] = 100 * _MIB
    max_total_agents: Annotated[
        int, between(1, 1_000_000, "The most agents with stored results; the one idle longest goes first.")
    ] = 10_000

    ledger_window_seconds: Annotated[
        float, seconds(60, 90 * _DAY, "How long a recorded call is remembered, and its key with it.")
    ] = float(_DAY)
    doubt_window_seconds: Annotated[
        float,
        seconds(60, 365 * _DAY, "How long a call in doubt waits for a decision; at least the ledgerWindow."),
    ] = 7.0 * _DAY
    ledger_max_bytes: Annotated[
        int,
        between(
            _MIB,
            1024 * 1024 * _MIB,
            "The most bytes of recorded calls and their answers; beyond it the oldest answers are dropped.",
        ),
    ] = 256 * _MIB
    rejoin_seconds: Annotated[
        float,
        seconds(0, 900, "How long a recorded call goes on whose client was cut off, before it is cancelled."),
    ] = 5.0
    # None lists them where some server has something of delivery configured.
    list_delivery_tools: Annotated[
        bool | None, about("Whether the tools of transactions are listed; unset, where a server needs them.")
    ] = None
    transaction_timeout_seconds: Annotated[
        float, seconds(1, _DAY, "How long a transaction may take that does not say.")
    ] = 300.0
    chunk_above_bytes: Annotated[
        int, between(_KIB, 2048 * _MIB, "A larger result goes in chunks to a client that asked for them.")
    ] = 10_000_000

    knowledge: Annotated[
        KnowledgeSettings, about("What the team's own documents are kept in, and how they are searched.")
    ] = KnowledgeSettings()

    inherit_env: Annotated[
        tuple[str, ...],
        about(
            "Names of the gateway's own variables that every command inherits besides those that reach the "
            "network; a * stands for anything."
        ),
    ] = ()
    transport: Annotated[
        Literal["stdio", "http", "sse"],
        about("How clients come in; streamable-http is another word for http."),
    ] = "stdio"
    host: Annotated[str, about("The loopback address that the HTTP transports listen on.")] = "127.0.0.1"
    port: Annotated[int, between(0, 65535, "The port of the HTTP transports; 0 takes a free one.")] = 8000
    allowed_hosts: Annotated[
        tuple[str, ...], about("Host headers that are accepted besides the loopback names.")
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...], about("Origin headers that are accepted besides the loopback origins.")
    ] = ()

    data_dir: Annotated[Path, about("The directory for everything that the gateway keeps.")]
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"], about("The least important lines that are logged.")
    ] = "INFO"
    log_file: Annotated[Path | None, about("A file for the log.")] = None
    # None means pretty on a terminal and json elsewhere.
    log_format: Annotated[Literal["pretty", "json"] | None, about("How a log line looks.")] = None
    list_changed_exec: Annotated[str | None, about("A command that runs after the tools have changed.")] = (
        None
    )

    max_body_bytes: Annotated[int, between(_KIB, 1024 * _MIB, "The largest body of a request.")] = 4 * _MIB
    max_header_bytes: Annotated[int, between(_KIB, _MIB, "The largest head of a request.")] = 32 * _KIB
    max_headers: Annotated[int, between(10, 1000, "The most headers of a request.")] = 100
    header_timeout_seconds: Annotated[
        float, seconds(0.1, 300, "How long the head of a request may take.")
    ] = 10.0
    body_timeout_seconds: Annotated[float, seconds(0.1, 3600, "How long the body of a request may take.")] = (
        30.0
    )
    max_upstream_message_bytes: Annotated[
        int, between(64 * _KIB, 2048 * _MIB, "The largest message of a server.")
    ] = 256 * _MIB
    spool_above_bytes: Annotated[
        int, between(4 * _KIB, 2048 * _MIB, "A larger message of a server is kept on disk.")
    ] = _MIB
    max_sessions: Annotated[int, between(1, 1_000_000, "The most client sessions at a time.")] = 10_000
    session_idle_seconds: Annotated[
        float,
        seconds(
            0.1, 604_800, "A session without a request for so long is forgotten until its client comes back."
        ),
    ] = 1800.0
    seal_keys: Annotated[
        tuple[Annotated[str, Meta(min_length=32)], ...],
        about("Secrets of 32 characters or more that several gateways share; the first one seals."),
    ] = ()
    # SDK clients refuse an event of more than 1 MiB, so a page with its envelope stays below.
    page_bytes: Annotated[int, between(4 * _KIB, 1_000_000, "The size of one page of a listing.")] = (
        256 * _KIB
    )


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line; None where one is not given."""

    config: Path | None = None
    transport: str | None = None
    host: str | None = None
    port: int | None = None
    data_dir: Path | None = None
    listing: str | None = None
    # Of knowledge.
    store: str | None = None
