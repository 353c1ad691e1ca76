"""Checks each given setting beyond its type, and lets the strongest source win."""

import ipaddress
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from headgate.config import environment
from headgate.config.config_files import BasePaths
from headgate.config.knowledge_settings import check_store_address
from headgate.config.nested_objects import setting_types
from headgate.config.setting_values import (
    CONTROL_CHARACTERS,
    convert,
    display_value,
    invalid_value_error,
    to_camel_case,
)
from headgate.config.settings import Settings
from headgate.domain.errors import ConfigError

# By the path of each setting.
_TYPES: Mapping[str, object] = setting_types(Settings)
# The rest comes from elsewhere: the servers, the file itself, the environment alone.
_NOT_IN_FILE = ("servers", "config_path", "warnings", "left_out", "env_files", "reset_data")
FILE_FIELDS = tuple(name for name in Settings.__struct_fields__ if name not in _NOT_IN_FILE)
# Shorter in the file, as the times of a server are; the whole name means the same.
_SHORT_KEYS = {
    "ledger_window_seconds": "ledgerWindow",
    "doubt_window_seconds": "doubtWindow",
    "rejoin_seconds": "rejoin",
    "transaction_timeout_seconds": "transactionTimeout",
    "first_listing_timeout_seconds": "firstListingTimeout",
}
# The field of each key in the file.
FILE_KEYS: Mapping[str, str] = {
    _SHORT_KEYS.get(field) or to_camel_case(field): field for field in FILE_FIELDS
}
FILE_ALIASES: Mapping[str, str] = {to_camel_case(field): key for field, key in _SHORT_KEYS.items()}

# An error message ends up in a log.
_SECRET_SETTINGS = ("seal_keys", "openai_api_key", "knowledge.store", "knowledge.replica")

# From a value and the words for where it was given to the value that goes on.
_ValueStep = Callable[[object, str], object]

_STREAMABLE = ("streamable-http", "streamable_http", "streamablehttp")

_HOST = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")


class GivenSetting(msgspec.Struct, frozen=True):
    """A value that somebody gave to a setting, and where."""

    # Of Settings, or the path of one in an object of theirs.
    field: str
    value: object
    where: str
    # What a relative path means there.
    base_paths: BasePaths
    # Why there is no value, such as a variable that is not set.
    problem: str | None = None


def resolve_settings(given: Sequence[GivenSetting], warnings: list[str]) -> dict[str, Any]:
    """The values in force, by field or path; what stands later in `given` wins.

    Raises ConfigError for a value that cannot be used; one that is overridden anyway becomes a warning.
    """
    values: dict[str, Any] = {}
    winners: dict[str, GivenSetting] = {}
    for one in reversed(given):
        try:
            value = _accept(one)
        except ConfigError as error:
            if one.field not in values:
                raise
            warnings.append(f"{error.message}; it has no effect, because it is overridden")
            continue
        winner = winners.setdefault(one.field, one)
        if values.setdefault(one.field, value) != value and _warns_when_overridden(one):
            warnings.append(environment.overridden_warning(one.where, winner.where))
    return values


def _warns_when_overridden(given: GivenSetting) -> bool:
    """Whether its author should hear that it is overridden: a variable may have been set long ago."""
    return given.where in environment.KNOWN_VARIABLES and given.where not in environment.SHARED_WITH_OTHERS


def _accept(given: GivenSetting) -> object:
    value, where = given.value, given.where
    if given.problem is not None:
        raise ConfigError(f"{where} cannot be read: {given.problem}", hint="or write ${NAME:-default}")
    prepare = _PREPARATIONS.get(given.field)
    if prepare is not None:
        value = prepare(value, where)
    annotation = _TYPES[given.field]
    if _is_path(annotation):
        path = convert(str(value) if isinstance(value, Path) else value, str, where)
        return given.base_paths.resolve(str(path), where)
    converted = convert(value, annotation, where, private=given.field in _SECRET_SETTINGS)
    check = _CHECKS.get(given.field)
    return converted if check is None else check(converted, where)


def _is_path(annotation: object) -> bool:
    return annotation is Path or any(_is_path(part) for part in get_args(annotation))


def _known_listing(value: object, where: str) -> object:
    if where in environment.spellings(environment.ROUTING):
        return environment.listing_mode_of(value, where)
    return value


def _server_transport(value: object, _where: str) -> object:
    return "http" if isinstance(value, str) and value.casefold() in _STREAMABLE else value


def _one_line(value: object, where: str) -> object:
    if CONTROL_CHARACTERS.search(str(value)):
        raise invalid_value_error(where, "not one line", "text without control characters")
    return value


def _command(value: object, where: str) -> object:
    # Nothing to run, as somebody writes who wants it off.
    if not str(value).strip():
        return None
    line = _one_line(value, where)
    try:
        shlex.split(str(line))
    except ValueError as error:
        problem = f"{display_value(value)}, which cannot be split into words ({error})"
        raise invalid_value_error(where, problem, "a command line with balanced quotes") from error
    return line


def _loopback(value: object, where: str) -> object:
    host = str(value).strip().removeprefix("[").removesuffix("]")
    if host.casefold() == "localhost":
        return "localhost"
    try:
        if ipaddress.ip_address(host).is_loopback:
            return host
    except ValueError:
        # Another name: what it resolves to can change under us.
        pass
    raise ConfigError(
        f"{where} is {value!r}, but without authentication the gateway listens on a loopback address only",
        hint="use 127.0.0.1, put a proxy that authenticates in front, and name its host in allowedHosts",
    )


def _each(pattern: re.Pattern[str], what_is_allowed: str) -> _ValueStep:
    def check(value: object, where: str) -> object:
        assert isinstance(value, tuple)
        for entry in value:
            if not pattern.fullmatch(entry):
                raise invalid_value_error(f"an entry of {where}", display_value(entry), what_is_allowed)
        # Both headers compare without regard to case.
        return tuple(entry.lower() for entry in value)

    return check


def _notice(value: object, where: str) -> object:
    if value is not None and "{cache_id}" not in str(value):
        raise invalid_value_error(
            where, display_value(value), "a text with {cache_id} in it, without which nobody could read on"
        )
    return value


_PREPARATIONS: Mapping[str, _ValueStep] = {
    "listing": _known_listing,
    "transport": _server_transport,
}
_CHECKS: Mapping[str, _ValueStep] = {
    "name": _one_line,
    "host": _loopback,
    "list_changed_exec": _command,
    "truncation_message": _notice,
    "knowledge.store": check_store_address,
    "knowledge.replica": check_store_address,
    "allowed_hosts": _each(_HOST, "a host such as gate.example.com or gate.example.com:8443"),
    "allowed_origins": _each(_ORIGIN, "an origin such as https://app.example.com, without a path"),
}
