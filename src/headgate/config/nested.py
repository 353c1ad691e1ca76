"""Settings that stand in an object of the file, each by its path, such as `knowledge.weights.vector`.

By its path a setting inside of an object can come from a variable or a flag as any other can.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from headgate.config.entries import fields_of
from headgate.config.keys import known_values
from headgate.config.values import allowed, is_struct, plain_type, refusal, shown

# What snake_case makes of some keys, and the whole name of what is shorter in the file.
_ALIASES = {"cacheTTL": "cacheTtl", "cacheTTLSeconds": "cacheTtl"}


def types_of(kind: type[msgspec.Struct], above: str = "") -> dict[str, object]:
    """The type of each setting by its path."""
    types: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        plain = plain_type(field.type)
        if is_struct(plain):
            types |= types_of(plain, f"{above}{field.name}.")
        else:
            types[above + field.name] = field.type
    return types


def leaves(
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
        raise refusal(f"{keys} in {file}", shown(raw), allowed(kind))
    fields = fields_of(kind)
    for key, value in known_values(raw, fields, f"{keys} in {file}", warnings, aliases=_ALIASES).items():
        field = fields[key]
        yield from leaves(value, field.type, f"{path}.{field.name}", f"{keys}.{key}", file, warnings)


def assembled(values: Mapping[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of `kind` that these values, each by its path, say something of."""
    made: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        plain, above = plain_type(field.type), f"{field.name}."
        if field.name in values:
            made[field.name] = values[field.name]
        elif is_struct(plain):
            inner = {path.removeprefix(above): one for path, one in values.items() if path.startswith(above)}
            if inner:
                made[field.name] = plain(**assembled(inner, plain))
    return made
