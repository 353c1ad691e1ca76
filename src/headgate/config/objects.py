"""Reads one value of an entry, and where that is an object, the values in it."""

from collections.abc import Mapping
from typing import TypeVar, get_args, get_origin

import msgspec

from headgate.config.entries import PRIVATE, fields_of
from headgate.config.keys import known_values
from headgate.config.values import allowed, convert, is_struct, plain_type, refusal, shown
from headgate.domain.errors import ConfigError

T = TypeVar("T", bound=msgspec.Struct)


def read_fields(
    values: Mapping[str, object], kind: type[T], where: str, owner: str, warnings: list[str]
) -> T:
    """The struct of these values, which are those of known keys; an empty `where` is the owner itself.

    Unknown keys further inside become warnings that name the owner. Raises ConfigError.
    """
    fields = fields_of(kind)
    for key, field in fields.items():
        if field.required and key not in values:
            raise ConfigError(f"{where} has no {key}", hint=f"add {key} to {where}")
    inside = f" in {where}" if where else ""
    read = {
        fields[key].name: _read(key, value, fields[key].type, f"{key}{inside}", owner, warnings)
        for key, value in values.items()
    }
    return kind(**read)


def _read(key: str, value: object, annotation: object, where: str, owner: str, warnings: list[str]) -> object:
    kind = plain_type(annotation)
    if is_struct(kind):
        return _read_object(value, kind, where, owner, warnings)
    if get_origin(kind) is dict and isinstance(value, dict) and is_struct(get_args(kind)[1]):
        # There is one such map, that of the tools.
        return {
            name: _read_object(one, get_args(kind)[1], f"tool {shown(name)}", owner, warnings)
            for name, one in value.items()
        }
    return convert(value, annotation, where, private=key in PRIVATE)


def _read_object(raw: object, kind: type[T], where: str, owner: str, warnings: list[str]) -> T:
    if not isinstance(raw, dict):
        raise refusal(where, shown(raw), allowed(kind))
    values = known_values(raw, fields_of(kind), f"{where} of {owner}", warnings)
    return read_fields(values, kind, where, owner, warnings)
