"""Converts a given value to the type of its setting, and reads the keys of an object in the file."""

import difflib
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeGuard, get_args, get_origin

import msgspec

from headgate.domain.errors import ConfigError

# A line break in a name or a path is always a mistake, and a log line must stay one line.
CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def about(description: str) -> msgspec.Meta:
    """The sentence that an editor shows for a setting."""
    return msgspec.Meta(description=description)


def between(least: float, most: float, description: str) -> msgspec.Meta:
    """The range of a number, both ends included."""
    return msgspec.Meta(ge=least, le=most, description=description)


def seconds(least: float, most: float, description: str) -> msgspec.Meta:
    """The range of a duration, both ends included."""
    return msgspec.Meta(ge=least, le=most, description=description, extra={"unit": "seconds"})


def text(most: int, description: str) -> msgspec.Meta:
    """The most characters of a text that is not empty."""
    return msgspec.Meta(min_length=1, max_length=most, description=description)


def convert(value: object, annotation: object, where: str, *, private: bool = False) -> object:
    """The value as `annotation`; text stands for numbers and booleans, because `${VAR}` yields text.

    Raises ConfigError with the setting, its value unless that is private, and the allowed values.
    """
    try:
        return msgspec.convert(_fold_case(value, annotation), type_if_set(annotation), strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        for place, part, kind in () if private else _parts_of(value, annotation):
            # The error of the invalid part is more precise.
            convert(part, kind, f"{place} of {where}")
        what = "of another kind" if private else display_value(value)
        raise invalid_value_error(where, what, allowed_values(annotation)) from error


def _parts_of(value: object, annotation: object) -> list[tuple[str, object, object]]:
    """The name, value and type of each part of an object or a list."""
    plain = plain_type(annotation)
    if isinstance(value, dict) and get_origin(plain) is dict:
        return [(display_value(key), part, get_args(plain)[1]) for key, part in value.items()]
    if isinstance(value, list) and get_origin(plain) is tuple:
        return [("an entry", part, get_args(plain)[0]) for part in value]
    return []


def invalid_value_error(where: str, what: str, what_is_allowed: str) -> ConfigError:
    """The error for a value that a setting cannot take."""
    return ConfigError(f"{where} is {what}, allowed is {what_is_allowed}", hint=f"correct or remove {where}")


def display_value(value: object) -> str:
    """A value for an error message, on one line and never long."""
    match value:
        case dict():
            return "an object"
        case list() | tuple():
            return "a list"
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case float():
            return f"{value:g}"
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_FIXED: Mapping[object, str] = {tuple: "a list of strings", bool: "true or false", Path: "a path"}


def allowed_values(annotation: object) -> str:
    """The values that a setting of this type takes, in words."""
    plain, meta = _parts(annotation)
    match get_origin(plain) or plain:
        case _ if _words(plain):
            *first, last = _words(plain)
            return f"{', '.join(first)} or {last}" if first else last
        case origin if origin in _FIXED:
            return _FIXED[origin]
        case kind if is_struct(kind):
            *first, last = (field.encode_name for field in msgspec.structs.fields(kind))
            return f"an object with {', '.join(first)} and {last}"
        case origin if origin is dict:
            values = get_args(plain)[1]
            words = ", ".join(_words(values)) or ("objects" if is_struct(values) else "strings")
            return "an object" if values is Any else f"an object whose values are {words}"
        case origin if origin in (int, float):
            unit = f" of {meta.extra['unit']}" if meta.extra else ""
            most = f", at least {meta.ge}" if meta.le is None else f" from {meta.ge} to {meta.le}"
            return f"{'an integer' if origin is int else 'a number'}{unit}{most}"
    return f"text of 1 to {meta.max_length} characters" if meta.max_length else "text"


def is_struct(kind: object) -> TypeGuard[type[msgspec.Struct]]:
    """Whether a value of this type is an object with keys of its own."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def plain_type(annotation: object) -> object:
    """The type of a setting without its range and without the None of one that is not set."""
    return _parts(annotation)[0]


def type_if_set(annotation: object) -> object:
    """The type of a setting with its range, without the None of one that is not set."""
    type_: object = Annotated[_parts(annotation)]
    return type_


def description(annotation: object) -> str:
    """The sentence that was given to `about`, `between` or `seconds`."""
    return _parts(annotation)[1].description or ""


def _fold_case(value: object, annotation: object) -> object:
    """A word in the case that it is declared in, so that `info` means `INFO`."""
    plain = plain_type(annotation)
    if isinstance(value, dict) and get_origin(plain) is dict:
        return {key: _fold_case(one, get_args(plain)[1]) for key, one in value.items()}
    if isinstance(value, str):
        words = {word.casefold(): word for word in _words(plain)}
        return words.get(value.casefold(), value)
    return value


def _words(plain: object) -> tuple[str, ...]:
    """The words that a setting can be, if it is one of several."""
    return tuple(str(word) for word in get_args(plain)) if get_origin(plain) is Literal else ()


def _parts(annotation: object) -> tuple[object, msgspec.Meta]:
    meta = msgspec.Meta()
    if get_origin(annotation) is Annotated:
        annotation, meta, *_ = get_args(annotation)
    # The absence of a setting is not a value, and msgspec would read the text "null" as None.
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return (kinds[0] if NoneType in get_args(annotation) else annotation), meta


_ABBREVIATED = {"ttl": "TTL"}


def to_camel_case(name: str) -> str:
    """`max_timeout` as `maxTimeout`; a name that is camelCase already stays."""
    first, *rest = name.split("_")
    return first + "".join(_ABBREVIATED.get(part) or part[:1].upper() + part[1:] for part in rest)


def known_values(
    raw: Mapping[str, object],
    known: Collection[str],
    where: str,
    warnings: list[str],
    *,
    later: Collection[str] = (),
    aliases: Mapping[str, str] = {},
) -> dict[str, object]:
    """The values of known keys, by their camelCase name; null is not set; all others become warnings.

    Raises ConfigError if one key is given in two spellings.
    """
    values: dict[str, object] = {}
    spelled: dict[str, str] = {}
    for key, value in raw.items():
        name = to_camel_case(key)
        name = aliases.get(name, name)
        if name in known:
            if name in spelled:
                raise ConfigError(
                    f"{where} has both {display_value(spelled[name])} and {display_value(key)}, "
                    "which are the same setting",
                    hint="remove one of the two",
                )
            spelled[name] = key
            if value is not None:
                values[name] = value
        elif name in later:
            warnings.append(f"{display_value(key)} in {where} has no effect in this version")
        else:
            nearest = difflib.get_close_matches(name, [*known, *later], n=1)
            meant = f"; did you mean {nearest[0]!r}?" if nearest else ""
            warnings.append(f"{display_value(key)} in {where} is not a known key{meant}")
    return values
