"""Reads the settings of file, environment and flags, checks each, and lets the strongest source win."""

import ipaddress
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from headgate.config import environment
from headgate.config.config_files import BasePaths
from headgate.config.server_entries import SECRET_KEYS, fields_of
from headgate.config.setting_values import (
    CONTROL_CHARACTERS,
    allowed_values,
    convert,
    display_value,
    invalid_value_error,
    is_struct,
    known_values,
    plain_type,
    to_camel_case,
)
from headgate.config.settings import Settings, check_store_address
from headgate.domain.errors import ConfigError

# Other spellings of keys: by snake_case, and the whole name of a key that is shorter in the file.
_ALIASES = {"cacheTTL": "cacheTtl", "cacheTTLSeconds": "cacheTtl"}


def setting_types(kind: type[msgspec.Struct], above: str = "") -> dict[str, object]:
    """The type of each setting by its path."""
    types: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        plain = plain_type(field.type)
        if is_struct(plain):
            types |= setting_types(plain, f"{above}{field.name}.")
        else:
            types[above + field.name] = field.type
    return types


def setting_leaves(
    raw: object, annotation: object, path: str, keys: str, file: str, warnings: list[str]
) -> Iterator[tuple[str, str, object]]:
    """The path, the keys in the file and the value of each setting in a value; any other value is one itself.

    Unknown keys become warnings. Raises ConfigError where an object has to be and is none.
    """
    kind = plain_type(annotation)
    if not is_struct(kind):
        yield path, keys, raw
        return
    if not isinstance(raw, dict):
        raise invalid_value_error(f"{keys} in {file}", display_value(raw), allowed_values(kind))
    fields = fields_of(kind)
    for key, value in known_values(raw, fields, f"{keys} in {file}", warnings, aliases=_ALIASES).items():
        field = fields[key]
        yield from setting_leaves(value, field.type, f"{path}.{field.name}", f"{keys}.{key}", file, warnings)


def assemble_struct(values: Mapping[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of `kind` from these values, which are given by path."""
    made: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        plain, above = plain_type(field.type), f"{field.name}."
        inner = {path.removeprefix(above): one for path, one in values.items() if path.startswith(above)}
        if field.name in values:
            made[field.name] = values[field.name]
        elif inner and is_struct(plain):
            made[field.name] = plain(**assemble_struct(inner, plain))
    return made


StructT = TypeVar("StructT", bound=msgspec.Struct)


def read_fields(
    values: Mapping[str, object], kind: type[StructT], where: str, owner: str, warnings: list[str]
) -> StructT:
    """The struct of these values, which are those of known keys; an empty `where` is the owner itself.

    Unknown keys further inside become warnings that name the owner. Raises ConfigError.
    """
    fields = fields_of(kind)
    for key, field in fields.items():
        if field.required and key not in values:
            raise ConfigError(f"{where} has no {key}", hint=f"add {key} to {where}")
    inside = f" in {where}" if where else ""
    read = {
        fields[key].name: _read_value(key, value, fields[key].type, f"{key}{inside}", owner, warnings)
        for key, value in values.items()
    }
    return kind(**read)


def _read_value(
    key: str, value: object, annotation: object, where: str, owner: str, warnings: list[str]
) -> object:
    kind = plain_type(annotation)
    if is_struct(kind):
        return _read_object(value, kind, where, owner, warnings)
    if get_origin(kind) is dict and is_struct(get_args(kind)[1]):
        if not isinstance(value, dict):
            raise invalid_value_error(where, display_value(value), allowed_values(kind))
        # There is one such map, that of the tools.
        return {
            name: _read_object(one, get_args(kind)[1], f"tool {display_value(name)}", owner, warnings)
            for name, one in value.items()
        }
    return convert(value, annotation, where, private=key in SECRET_KEYS)


def _read_object(raw: object, kind: type[StructT], where: str, owner: str, warnings: list[str]) -> StructT:
    if not isinstance(raw, dict):
        raise invalid_value_error(where, display_value(raw), allowed_values(kind))
    values = known_values(raw, fields_of(kind), f"{where} of {owner}", warnings)
    return read_fields(values, kind, where, owner, warnings)


# By the path of each setting.
_TYPES: Mapping[str, object] = setting_types(Settings)
# The rest comes from elsewhere: the servers, the file itself, the environment alone.
_NOT_IN_FILE = ("servers", "config_path", "warnings", "left_out", "env_files", "reset_data")
FILE_FIELDS = tuple(name for name in Settings.__struct_fields__ if name not in _NOT_IN_FILE)
# Shorter in the file, as the times of a server are; the whole name means the same.
_SHORT_KEYS = {
    f"{name}_seconds": to_camel_case(name)
    for name in ("ledger_window", "doubt_window", "rejoin", "transaction_timeout", "first_listing_timeout")
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
    """The value of a setting, and where it was given."""

    # Of Settings, or the path of one in an object of theirs.
    field: str
    value: object
    where: str
    # The base of relative paths there.
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
        # A variable may have been set long ago, so its author should hear that it is overridden.
        heard = one.where in environment.KNOWN_VARIABLES and one.where not in environment.SHARED_WITH_OTHERS
        if values.setdefault(one.field, value) != value and heard:
            warnings.append(environment.overridden_warning(one.where, winner.where))
    return values


def _accept(given: GivenSetting) -> object:
    value, where = given.value, given.where
    if given.problem is not None:
        raise ConfigError(f"{where} cannot be read: {given.problem}", hint="or write ${NAME:-default}")
    if given.field == "listing" and where in environment.spellings(environment.ROUTING):
        value = environment.LISTING_OF_ROUTING[str(convert(value, environment.ROUTING_TYPES, where))]
    elif given.field == "transport" and isinstance(value, str) and value.casefold() in _STREAMABLE:
        value = "http"
    annotation = _TYPES[given.field]
    if plain_type(annotation) is Path:
        path = convert(str(value) if isinstance(value, Path) else value, str, where)
        return given.base_paths.resolve(str(path), where)
    converted = convert(value, annotation, where, private=given.field in _SECRET_SETTINGS)
    check = _CHECKS.get(given.field)
    return converted if check is None else check(converted, where)


def _one_line(value: object, where: str) -> object:
    if CONTROL_CHARACTERS.search(str(value)):
        raise invalid_value_error(where, "not one line", "text without control characters")
    return value


def _command(value: object, where: str) -> object:
    # An empty command disables it.
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
        allowed = "a text with {cache_id} in it, without which the rest cannot be read"
        raise invalid_value_error(where, display_value(value), allowed)
    return value


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
