"""The environment variables, in both spellings, and what each means."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from msgspec import Meta

from headgate.config import config_files
from headgate.config.setting_values import convert, display_value
from headgate.domain.gateway_chain import CHAIN_VARIABLE

# The last part of a name, the same under HEADGATE_ and MCPPROXY_, and the field of Settings, or its path.
SETTING_VARIABLES: Mapping[str, str] = {
    "TRANSPORT": "transport",
    "HOST": "host",
    "PORT": "port",
    "DATA_DIR": "data_dir",
    "TOOL_NAME_LIMIT": "tool_name_limit",
    "LOG_LEVEL": "log_level",
    "LOG_FILE": "log_file",
    "LOG_FORMAT": "log_format",
    "RESET_DATA": "reset_data",
    "LIST_CHANGED_EXEC": "list_changed_exec",
    "MAX_RESPONSE_SIZE": "max_response_size",
    "MAX_RESPONSE_TOKENS": "max_response_tokens",
    "LISTING": "listing",
    "LISTING_BUDGET_TOKENS": "listing_budget_tokens",
    "FIRST_LISTING_TIMEOUT": "first_listing_timeout_seconds",
    "DIALECT": "dialect",
    "TOP_K": "top_k",
    "TOOLS_LIMIT": "tools_limit",
    "EMBEDDER": "embedder",
    "HF_MODEL": "hf_model",
    "OPENAI_BASE_URL": "openai_base_url",
    "OPENAI_MODEL": "openai_model",
    "OPENAI_API_KEY": "openai_api_key",
    "LEDGER_WINDOW": "ledger_window_seconds",
    "DOUBT_WINDOW": "doubt_window_seconds",
    "LEDGER_MAX_BYTES": "ledger_max_bytes",
    "REJOIN": "rejoin_seconds",
    "LIST_DELIVERY_TOOLS": "list_delivery_tools",
    "TRANSACTION_TIMEOUT": "transaction_timeout_seconds",
    "CHUNK_ABOVE_BYTES": "chunk_above_bytes",
    "KNOWLEDGE_STORE": "knowledge.store",
    "KNOWLEDGE_REPLICA": "knowledge.replica",
    "KNOWLEDGE_EMBEDDER": "knowledge.embedder",
    "KNOWLEDGE_TOKEN_BUDGET": "knowledge.token_budget",
}
# The older word for the listing, which a variable for the listing itself overrides.
ROUTING = "ROUTING_TYPE"
ROUTING_TYPES = Literal["DYNAMIC", "CALL_TOOL"]
_LISTING_OF = {"DYNAMIC": "dynamic", "CALL_TOOL": "search"}


def listing_mode_of(routing: object, variable: str) -> str:
    """The listing that a routing type stands for; raises ConfigError."""
    return _LISTING_OF[str(convert(routing, ROUTING_TYPES, variable))]


# Characters of head and tail of each result; 0 is the same as not set.
TRUNCATE = "TRUNCATE_OUTPUT_LEN"
# Somebody who sets one of these believes to be protected, so silence would be wrong.
UNPROTECTED = (
    "HEADGATE_API_KEY",
    "BMCIS_API_KEY",
    "BMCIS_RATE_LIMIT_MINUTE",
    "BMCIS_RATE_LIMIT_HOUR",
    "BMCIS_RATE_LIMIT_DAY",
)
_PREFIXES = ("HEADGATE_", "MCPPROXY_")
_MORE_SPELLINGS = {
    "LOG_LEVEL": ("MCP_PROXY_LOG_LEVEL",),
    # As every other program calls them.
    "OPENAI_BASE_URL": ("OPENAI_BASE_URL",),
    "OPENAI_API_KEY": ("OPENAI_API_KEY",),
}


# Set for other programs too, so one that ours overrides is nothing to warn of.
SHARED_WITH_OTHERS = ("OPENAI_BASE_URL", "OPENAI_API_KEY")


def spellings(part: str) -> tuple[str, ...]:
    """The names of one variable, the strongest first."""
    return (*(prefix + part for prefix in _PREFIXES), *_MORE_SPELLINGS.get(part, ()))


KNOWN_VARIABLES = (
    *config_files.CONFIG_PATH_VARIABLES,
    # Set by a gateway for what it starts.
    CHAIN_VARIABLE,
    *(name for part in (*SETTING_VARIABLES, ROUTING, TRUNCATE) for name in spellings(part)),
    *UNPROTECTED,
)


def given_settings(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Each setting that the environment makes: field, value, variable; the weaker spelling comes first.

    An empty variable is not set.
    """
    for variable in _weakest_first(environ, ROUTING):
        yield "listing", environ[variable], variable
    for part, field in SETTING_VARIABLES.items():
        for variable in _weakest_first(environ, part):
            yield field, environ[variable], variable
    # Last, so that its length is the one that counts.
    length = _strongest(environ, TRUNCATE)
    if length and convert(environ[length], Annotated[int, Meta(ge=0)], length):
        yield "truncation", "head_tail", length
        yield "max_response_size", environ[length], length


def warn_unknown_variables(environ: Mapping[str, str], warnings: list[str]) -> None:
    """Warns of variables without effect."""
    # Its length is read when it is given, so the weaker spelling never is.
    *weaker, strongest = _weakest_first(environ, TRUNCATE) or [""]
    warnings += [
        overridden_warning(name, strongest)
        for name in weaker
        if environ[name].strip() != environ[strongest].strip()
    ]
    warnings += [
        f"{variable} has no effect in this version: nobody is checked or limited"
        for variable in UNPROTECTED
        if environ.get(variable)
    ]
    warnings += [
        _unknown(name) for name in environ if name.startswith(_PREFIXES) and name not in KNOWN_VARIABLES
    ]


def _unknown(variable: str) -> str:
    # Without the prefix, which would make every two names similar.
    prefix = next(prefix for prefix in _PREFIXES if variable.startswith(prefix))
    parts = [name.removeprefix(prefix) for name in KNOWN_VARIABLES if name.startswith(prefix)]
    nearest = difflib.get_close_matches(variable.removeprefix(prefix), parts, n=1)
    meant = f"; did you mean {prefix}{nearest[0]}?" if nearest else ""
    return f"the variable {display_value(variable)} is not known{meant}"


def overridden_warning(variable: str, by: str) -> str:
    """The warning about a variable that a stronger source sets to something else."""
    return f"{variable} has no effect: {by} overrides it with another value"


def _weakest_first(environ: Mapping[str, str], part: str) -> list[str]:
    return [name for name in reversed(spellings(part)) if environ.get(name)]


def _strongest(environ: Mapping[str, str], part: str) -> str | None:
    return next((name for name in spellings(part) if environ.get(name)), None)
