"""The environment variables, in both spellings, and what each means."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from msgspec import Meta

from headgate.config import config_files
from headgate.config.setting_values import convert, display_value
from headgate.domain.gateway_chain import CHAIN_VARIABLE

# The last part of a name, the same under HEADGATE_ and MCPPROXY_, and the field of Settings, or its path.
# fmt: off
_FIELDS = (
    "transport", "host", "port", "data_dir", "tool_name_limit", "log_level", "log_file", "log_format",
    "reset_data", "list_changed_exec", "max_response_size", "max_response_tokens", "listing",
    "listing_budget_tokens", "first_listing_timeout_seconds", "dialect", "top_k", "tools_limit", "embedder",
    "hf_model", "openai_base_url", "openai_model", "openai_api_key", "ledger_window_seconds",
    "doubt_window_seconds", "ledger_max_bytes", "rejoin_seconds", "list_delivery_tools",
    "transaction_timeout_seconds", "chunk_above_bytes", "knowledge.store", "knowledge.replica",
    "knowledge.embedder", "knowledge.token_budget",
)
# fmt: on
SETTING_VARIABLES: Mapping[str, str] = {
    field.removesuffix("_seconds").replace(".", "_").upper(): field for field in _FIELDS
}
# The older word for the listing, which a variable for the listing itself overrides.
ROUTING = "ROUTING_TYPE"
ROUTING_TYPES = Literal["DYNAMIC", "CALL_TOOL"]
LISTING_OF_ROUTING = {"DYNAMIC": "dynamic", "CALL_TOOL": "search"}
# Characters of head and tail of each result; 0 is the same as not set.
TRUNCATE = "TRUNCATE_OUTPUT_LEN"
# Setting one of these suggests protection that does not exist, so a warning says so.
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
    """Field, value and variable of each setting, the weaker spelling first; an empty variable is not set."""
    for variable in _weakest_first(environ, ROUTING):
        yield "listing", environ[variable], variable
    for part, field in SETTING_VARIABLES.items():
        for variable in _weakest_first(environ, part):
            yield field, environ[variable], variable
    # Last, so that its length is the one that counts.
    for length in _weakest_first(environ, TRUNCATE)[-1:]:
        if convert(environ[length], Annotated[int, Meta(ge=0)], length):
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
    for variable in environ:
        if not variable.startswith(_PREFIXES) or variable in KNOWN_VARIABLES:
            continue
        # Without the prefix, which would make every two names similar.
        prefix = next(filter(variable.startswith, _PREFIXES))
        parts = [name.removeprefix(prefix) for name in KNOWN_VARIABLES if name.startswith(prefix)]
        nearest = difflib.get_close_matches(variable.removeprefix(prefix), parts, n=1)
        meant = f"; did you mean {prefix}{nearest[0]}?" if nearest else ""
        warnings.append(f"the variable {display_value(variable)} is not known{meant}")


def overridden_warning(variable: str, by: str) -> str:
    """The warning about a variable that a stronger source sets to something else."""
    return f"{variable} has no effect: {by} overrides it with another value"


def _weakest_first(environ: Mapping[str, str], part: str) -> list[str]:
    return [name for name in reversed(spellings(part)) if environ.get(name)]
