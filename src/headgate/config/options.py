"""What each setting accepts beyond its type, wherever it was given."""

import ipaddress
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from headgate.config import environment
from headgate.config.files import Places
from headgate.config.keys import camel
from headgate.config.knowledge import store_address
from headgate.config.nested import types_of
from headgate.config.settings import Settings
from headgate.config.values import CONTROL, convert, refusal, shown
from headgate.domain.errors import ConfigError

# By the path of each setting.
_TYPES: Mapping[str, object] = types_of(Settings)
# The rest comes from elsewhere: the servers, the file itself, the environment alone.
_NOT_IN_FILE = ("servers", "config_path", "warnings", "left_out", "env_files", "reset_data")
FILE_FIELDS = tuple(name for name in Settings.__struct_fields__ if name not in _NOT_IN_FILE)
# Shorter in the file, as the times of a server are; the whole name means the same.
_SHORT = {
    "ledger_window_seconds": "ledgerWindow",
    "doubt_window_seconds": "doubtWindow",
    "rejoin_seconds": "rejoin",
    "transaction_timeout_seconds": "transactionTimeout",
    "first_listing_timeout_seconds": "firstListingTimeout",
}
# The field of each key in the file.
FILE_KEYS: Mapping[str, str] = {_SHORT.get(field) or camel(field): field for field in FILE_FIELDS}
FILE_ALIASES: Mapping[str, str] = {camel(field): key for field, key in _SHORT.items()}

# An error message ends up in a log.
_PRIVATE = ("seal_keys", "openai_api_key", "knowledge.store", "knowledge.replica")

# From a value and the words for where it was given to the value that goes on.
_Step = Callable[[object, str], object]

_STREAMABLE = ("streamable-http", "streamable_http", "streamablehttp")

_HOST = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")


class Given(msgspec.Struct, frozen=True):
    """A value that somebody gave to a setting, and where."""

    # Of Settings, or the path of one in an object of theirs.
    field: str
    value: object
    where: str
    # What a relative path means there.
    here: Places
    # Why there is no value, such as a variable that is not set.
    problem: str | None = None


def settle(given: Sequence[Given], warnings: list[str]) -> dict[str, Any]:
    """The values in force, by field or path; what stands later in `given` wins.

    Raises ConfigError for a value that cannot be used; one that is overridden anyway becomes a warning.
    """
    values: dict[str, Any] = {}
    winners: dict[str, Given] = {}
    for one in reversed(given):
        try:
            value = _accept(one)
        except ConfigError as error:
            if one.field not in values:
                raise
            warnings.append(f"{error.message}; it has no effect, because it is overridden")
            continue
        winner = winners.setdefault(one.field, one)
        if values.setdefault(one.field, value) != value and _is_noteworthy(one):
            warnings.append(environment.overridden(one.where, winner.where))
    return values


def _is_noteworthy(given: Given) -> bool:
    """Whether its author should hear that it is overridden: a variable may have been set long ago."""
    return given.where in environment.KNOWN and given.where not in environment.SHARED_WITH_OTHERS


def _accept(given: Given) -> object:
    value, where = given.value, given.where
    if given.problem is not None:
        raise ConfigError(f"{where} cannot be read: {given.problem}", hint="or write ${NAME:-default}")
    prepare = _PREPARATIONS.get(given.field)
    if prepare is not None:
        value = prepare(value, where)
    annotation = _TYPES[given.field]
    if _is_path(annotation):
        path = convert(str(value) if isinstance(value, Path) else value, str, where)
        return given.here.resolve(str(path), where)
    converted = convert(value, annotation, where, private=given.field in _PRIVATE)
    check = _CHECKS.get(given.field)
    return converted if check is None else check(converted, where)


def _is_path(annotation: object) -> bool:
    return annotation is Path or any(_is_path(part) for part in get_args(annotation))


def _known_listing(value: object, where: str) -> object:
    if where in environment.spellings(environment.ROUTING):
        return environment.listing_of(value, where)
    return value


def _front(value: object, _where: str) -> object:
    return "http" if isinstance(value, str) and value.casefold() in _STREAMABLE else value


def _one_line(value: object, where: str) -> object:
    if CONTROL.search(str(value)):
        raise refusal(where, "not one line", "text without control characters")
    return value


def _command(value: object, where: str) -> object:
    # Nothing to run, as somebody writes who wants it off.
    if not str(value).strip():
        return None
    line = _one_line(value, where)
    try:
        shlex.split(str(line))
    except ValueError as error:
        problem = f"{shown(value)}, which cannot be split into words ({error})"
        raise refusal(where, problem, "a command line with balanced quotes") from error
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


def _each(pattern: re.Pattern[str], what_is_allowed: str) -> _Step:
    def check(value: object, where: str) -> object:
        assert isinstance(value, tuple)
        for entry in value:
            if not pattern.fullmatch(entry):
                raise refusal(f"an entry of {where}", shown(entry), what_is_allowed)
        # Both headers compare without regard to case.
        return tuple(entry.lower() for entry in value)

    return check


def _notice(value: object, where: str) -> object:
    if value is not None and "{cache_id}" not in str(value):
        raise refusal(where, shown(value), "a text with {cache_id} in it, without which nobody could read on")
    return value


_PREPARATIONS: Mapping[str, _Step] = {
    "listing": _known_listing,
    "transport": _front,
}
_CHECKS: Mapping[str, _Step] = {
    "name": _one_line,
    "host": _loopback,
    "list_changed_exec": _command,
    "truncation_message": _notice,
    "knowledge.store": store_address,
    "knowledge.replica": store_address,
    "allowed_hosts": _each(_HOST, "a host such as gate.example.com or gate.example.com:8443"),
    "allowed_origins": _each(_ORIGIN, "an origin such as https://app.example.com, without a path"),
}
