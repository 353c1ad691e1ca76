"""Finds and parses configuration files (JSON with comments), `.env` files and files with secrets."""

import codecs
import json
import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from headgate.config.setting_values import CONTROL_CHARACTERS, display_value, invalid_value_error
from headgate.config.variable_expansion import INPUT_PREFIX, input_variable
from headgate.domain.errors import ConfigError
from headgate.domain.regular_file import read_regular

# Far above any configuration, so that a wrong path cannot fill the memory.
MAX_CONFIG_BYTES = 4 * 1024 * 1024
_DEEPEST = 64

_STRING = r'"(?:[^"\\\n]|\\.)*"?'
_COMMENT_OR_STRING = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_COMMA_OR_STRING = re.compile(rf"{_STRING}|,(?=\s*[\]}}])|[\[{{]|[\]}}]", re.DOTALL)

# The messages of the parser, and the fix for each.
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
    """The object in the file `name`; raises ConfigError with the place of the error and the fix."""
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{name} is larger than {MAX_CONFIG_BYTES} bytes", hint="check which file is named")

    def refuse_constant(word: str) -> object:
        raise ConfigError(f"{name} holds {word}, which is not a JSON number", hint="write a number")

    text, unique = _plain_json(_decoded(content, name), name), partial(_without_duplicates, name)
    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse_constant)
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
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{name} holds a string with half of a character pair",
            hint=r"write both halves of the \u escape, or the character itself",
        ) from error
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
    text = _COMMENT_OR_STRING.sub(
        lambda found: found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0]), text
    )
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


def _without_duplicates(name: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            # Either could be meant, so neither is used.
            raise ConfigError(
                f"{name} has the key {display_value(key)} twice in one object",
                hint="rename or remove one of the two",
            )
        found[key] = value
    return found


CONFIG_FILE_NAMES = ("headgate.json", "mcp.json", "mcp_config.json", "mcp-config.json")
# The strongest first.
CONFIG_PATH_VARIABLES = ("HEADGATE_CONFIG", "HEADGATE_CONFIG_PATH", "MCPPROXY_CONFIG_PATH")
SECRETS_DIRECTORY = Path("/run/secrets")
# Tokens, keys and certificates are far smaller.
_LARGEST_SECRET_BYTES = 64 * 1024

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_SINGLE_QUOTED = re.compile(r"'([^']*)'\s*(?:#.*)?")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class BasePaths(msgspec.Struct, frozen=True):
    """The directories that relative paths and `~` refer to."""

    home: Path
    cwd: Path

    def resolve(self, path: str | Path, where: str) -> Path:
        """An absolute path; raises ConfigError for one that no file system takes."""
        text = str(path)
        if not text or CONTROL_CHARACTERS.search(text):
            raise invalid_value_error(where, display_value(text), "a path without control characters")
        if text == "~" or text.startswith(("~/", "~\\")):
            return self.home / text[2:]
        return self.cwd / text


def base_paths_of(environ: Mapping[str, str], cwd: Path) -> BasePaths:
    """The user's directories; without HOME the working directory, as in a bare container."""
    return BasePaths(Path(environ.get("HOME") or environ.get("USERPROFILE") or cwd), cwd)


def find_config_file(named: Path | None, environ: Mapping[str, str], base_paths: BasePaths) -> Path | None:
    """The configuration file, or None; raises ConfigError if one is named and is not there."""
    for where, given in _named_paths(named, environ)[:1]:
        path = base_paths.resolve(given, where)
        if not os.path.exists(path):
            raise ConfigError(
                f"the configuration file {path} that {where} names does not exist",
                hint=f'create it, with {{"mcpServers": {{}}}} to begin with, or correct {where}',
            )
        return path
    directory = base_paths.cwd / (environ.get("XDG_CONFIG_HOME") or base_paths.home / ".config")
    candidates = [
        *(base_paths.cwd / name for name in CONFIG_FILE_NAMES),
        directory / "headgate" / "headgate.json",
    ]
    # Not Path.is_file: a directory that we may not enter (HOME of another user) holds nothing for us.
    return next((path for path in candidates if os.path.isfile(path)), None)


def overridden_config_paths(
    named: Path | None, environ: Mapping[str, str], base_paths: BasePaths
) -> list[tuple[str, str]]:
    """Each variable that names another file than the one that is read, and what overrides it."""
    given = _named_paths(named, environ)
    resolved = [base_paths.resolve(path, where) for where, path in given]
    return [(given[at][0], given[0][0]) for at, path in enumerate(resolved) if path != resolved[0]]


def _named_paths(named: Path | None, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Every name of a configuration file and where it was given, the strongest first."""
    given = [("--config", str(named))] if named is not None else []
    return given + [(name, environ[name]) for name in CONFIG_PATH_VARIABLES if environ.get(name)]


def read_config_file(path: Path) -> bytes:
    """The content of the file, at most one byte more than is allowed; raises ConfigError."""
    try:
        return read_regular(path, MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"the configuration file {path} cannot be read: {error.strerror}",
            hint="make it a file that this user may read, or name another one with --config",
        ) from error


class VariableLookup(msgspec.Struct, frozen=True):
    """The values of `${VAR}`: the environment, `.env` beside the file, then a secret file of that name."""

    environ: Mapping[str, str]
    dotenv: Mapping[str, str]
    secrets: Path
    # They come last: the values that the editor of the file would fill in.
    defaults: Mapping[str, str] = {}

    def __call__(self, name: str) -> str | None:
        """The value, or None where it is not set or not text."""
        if not name.startswith(INPUT_PREFIX):
            value = self._value(name)
        elif (value := self._value(input_variable(name.removeprefix(INPUT_PREFIX)))) is None:
            value = self._value(name.removeprefix(INPUT_PREFIX))
        return self.defaults.get(name) if value is None else value

    def _value(self, name: str) -> str | None:
        value = self.environ.get(name, self.dotenv.get(name))
        try:
            # The id of an input is free text; it must not name a file elsewhere.
            if value is None and "/" not in name and not name.startswith("."):
                value = read_regular(self.secrets / name, _LARGEST_SECRET_BYTES).decode().rstrip("\r\n")
            # Environment bytes that are not UTF-8 arrive as lone surrogates, which no message can carry.
            (value or "").encode()
        except (OSError, UnicodeError):
            return None
        return value


def read_dotenv(path: Path, warnings: list[str]) -> dict[str, str]:
    """The variables of a `.env` file, none if there is no file; what cannot be read becomes a warning."""
    try:
        text = read_regular(path, MAX_CONFIG_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        warnings.append(f"{path} is not used: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}")
        return {}
    variables: dict[str, str] = {}
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if assignment := _ASSIGNMENT.fullmatch(line):
            variables[assignment.group(1)] = _unquoted(assignment.group(2).strip())
        else:
            # The line may contain part of a secret, so only its number is reported.
            warnings.append(f"line {number} of {path} is not used: write NAME=value")
    return variables


def _unquoted(value: str) -> str:
    if quoted := _DOUBLE_QUOTED.fullmatch(value):
        return _ESCAPE.sub(lambda found: _ESCAPES.get(found.group(1), found.group(1)), quoted.group(1))
    if quoted := _SINGLE_QUOTED.fullmatch(value):
        return quoted.group(1)
    return re.sub(r"\s+#.*", "", value)
