"""Parses JSON with comments, trailing commas and a byte order mark."""

import codecs
import json
import re
from collections.abc import Iterator
from functools import partial

from headgate.config.setting_values import display_value
from headgate.domain.errors import ConfigError

# Far above any configuration, so that a wrong path cannot fill the memory.
MAX_CONFIG_BYTES = 4 * 1024 * 1024
_DEEPEST = 64

_STRING = r'"(?:[^"\\\n]|\\.)*"?'
_COMMENT_OR_STRING = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_COMMA_OR_STRING = re.compile(rf"{_STRING}|,(?=\s*[\]}}])|[\[{{]|[\]}}]", re.DOTALL)

# What the parser says, and what to do about it.
_FIXES = {
    "Expecting ',' delimiter": "put a comma between the two values",
    "Expecting ':' delimiter": "put a colon between the key and its value",
    "Expecting property name": "write the key in double quotes",
    "Expecting value": "write a value here, or remove what is left over",
    "Unterminated string": "close the string with a double quote",
    "Invalid control character": r"write a line break in a string as \n and a tab as \t",
    "Invalid \\": r"write a backslash in a string as \\",
    "Illegal trailing comma": "remove the comma",
    "Extra data": "remove what follows the end of the object",
}


def parse_jsonc(content: bytes, name: str) -> dict[str, object]:
    """The object in a file called `name`; raises ConfigError that says where it is broken and the fix."""
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(
            f"{name} is larger than {MAX_CONFIG_BYTES} bytes",
            hint="check which file is named",
        )
    text = _plain_json(_decoded(content, name), name)
    try:
        value = json.loads(
            text,
            object_pairs_hook=partial(_without_duplicates, name),
            parse_constant=partial(_refuse_constant, name),
        )
    except json.JSONDecodeError as error:
        fix = next((fix for said, fix in _FIXES.items() if error.msg.startswith(said)), "correct the JSON")
        raise ConfigError(
            f"{name} is not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}", hint=fix
        ) from error
    except ValueError as error:
        # The one other reason: an integer of thousands of digits.
        raise ConfigError(f"{name} cannot be used: {error}", hint="write a smaller number") from error
    if not isinstance(value, dict):
        raise ConfigError(
            f"{name} does not hold a JSON object", hint='write {"mcpServers": {...}} as every MCP client does'
        )
    _refuse_lone_surrogates(value, name)
    return value


def _decoded(content: bytes, name: str) -> str:
    # Windows PowerShell redirects into UTF-16 with a mark.
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{name} is not UTF-8 text (byte {error.start})", hint="save the file as UTF-8"
        ) from error


def _plain_json(text: str, name: str) -> str:
    """The same text with blanks for comments and trailing commas: every position stays true."""
    text = _COMMENT_OR_STRING.sub(lambda found: _blank(found.group()), text)
    depth = 0

    def clean(found: re.Match[str]) -> str:
        nonlocal depth
        token = found.group()
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
        if depth > _DEEPEST:
            raise ConfigError(f"{name} is nested more than {_DEEPEST} deep", hint="remove the nesting")
        return " " if token == "," else token

    return _COMMA_OR_STRING.sub(clean, text)


def _blank(token: str) -> str:
    return token if token.startswith('"') else re.sub(r"[^\n]", " ", token)


def _without_duplicates(name: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            # Which of the two was meant is anybody's guess, so neither is used.
            raise ConfigError(
                f"{name} has the key {display_value(key)} twice in one object",
                hint="rename or remove one of the two",
            )
        found[key] = value
    return found


def _refuse_constant(name: str, word: str) -> object:
    raise ConfigError(f"{name} holds {word}, which is not a JSON number", hint="write a number")


def _refuse_lone_surrogates(value: dict[str, object], name: str) -> None:
    for text in _texts(value):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{name} holds a string with half of a character pair",
                hint=r"write both halves of the \u escape, or the character itself",
            ) from error


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts(item)
        case dict():
            for key, item in value.items():
                yield key
                yield from _texts(item)
