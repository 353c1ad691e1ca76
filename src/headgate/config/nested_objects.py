"""Objects in the configuration file: flattened to setting paths such as `knowledge.weights.vector`, or read
into structs.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from headgate.config.server_entries import SECRET_KEYS, fields_of
from headgate.config.setting_values import (
    allowed_values,
    convert,
    display_value,
    invalid_value_error,
    is_struct,
    known_values,
    plain_type,
)
from headgate.domain.errors import ConfigError

# What snake_case makes of some keys, and the whole name of what is shorter in the file.
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
    """The fields of `kind` that these values, each by its path, say something of."""
    made: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        plain, above = plain_type(field.type), f"{field.name}."
        if field.name in values:
            made[field.name] = values[field.name]
        elif is_struct(plain):
            inner = {path.removeprefix(above): one for path, one in values.items() if path.startswith(above)}
            if inner:
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
    if get_origin(kind) is dict and isinstance(value, dict) and is_struct(get_args(kind)[1]):
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
