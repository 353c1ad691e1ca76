"""Fills the placeholders in a JSON template of tool arguments."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import DecodeError

# A string that is one placeholder: `$name`, `$name.member.0`.
_WHOLE_PLACEHOLDER = re.compile(r"\$([A-Za-z_][\w-]*(?:\.[^.\s${}]+)*)")
# Placeholders inside a string, and the escaped dollar.
_EMBEDDED_PLACEHOLDER = re.compile(r"\$\$|\$\{([^{}]*)\}")


def fill_template(template: bytes, values: Mapping[str, object]) -> bytes:
    """The template with every placeholder filled; raises ValueError, which names the missing value.

    A string that is `$name` or `$name.path.to.member` (`$name.list.0`) becomes that value, of any type.
    `${name.path}` inside a string becomes text, `$$` a dollar. Names of members are not changed.
    """
    try:
        return msgspec.json.encode(_filled(msgspec.json.decode(template), values))
    except (DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise ValueError(f"the template cannot be filled: {error}") from error


def value_at_path(path: str, values: object) -> Any:
    """The value at a path such as `name.member.0`; raises ValueError that names the path."""
    found: Any = values
    for step in path.split("."):
        if isinstance(found, Mapping) and step in found:
            found = found[step]
        elif isinstance(found, list | tuple) and step.isascii() and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            raise ValueError(f"there is no {step!r} at {path!r}"[:400])
    return found


def _filled(value: Any, values: Mapping[str, object]) -> Any:
    match value:
        case str():
            if "$" not in value:
                return value
            whole = _WHOLE_PLACEHOLDER.fullmatch(value)
            if whole is not None:
                return value_at_path(whole[1], values)
            return _EMBEDDED_PLACEHOLDER.sub(lambda found: _embedded_text(found[1], values), value)
        case list():
            return [_filled(element, values) for element in value]
        case dict():
            return {name: _filled(member, values) for name, member in value.items()}
        case _:
            return value


def _embedded_text(path: str | None, values: Mapping[str, object]) -> str:
    value = "$" if path is None else value_at_path(path, values)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
