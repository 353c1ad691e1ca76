"""Reads server entries in the formats of other MCP clients."""

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from headgate.config.config_files import BasePaths, read_dotenv
from headgate.config.setting_values import CONTROL_CHARACTERS, display_value, invalid_value_error
from headgate.domain.errors import ConfigError

# The largest `timeout` in seconds: a larger number can only be the milliseconds that Gemini CLI writes.
_LONGEST_SECONDS = 3600
_LONGEST_MILLISECONDS = 86_400_000
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
# Where clients keep their servers when not in `mcpServers`: Zed, and Amp.
_SERVER_SECTIONS = ("context_servers", "amp.mcpServers")
# The keys below `mcp` in the settings of older versions of VS Code.
_VS_CODE_SECTION = "mcp"
# Words that only a shell understands.
_SHELL_WORDS = frozenset(("&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"))


def unwrap_editor_settings(document: Mapping[str, object]) -> dict[str, object]:
    """The settings of an editor with its servers where a configuration has them; others stay as they are."""
    read = dict(document)
    for section in _SERVER_SECTIONS:
        if section in read and "mcpServers" not in read:
            read["mcpServers"] = read.pop(section)
    settings = read.get(_VS_CODE_SECTION)
    if isinstance(settings, dict) and isinstance(settings.get("servers"), dict) and "servers" not in read:
        del read[_VS_CODE_SECTION]
        read = {**settings, **read}
    return read


def normalise_entry(
    entry: Mapping[str, object], base_paths: BasePaths, where: str, warnings: list[str], env_files: set[Path]
) -> dict[str, object]:
    """The values of an entry as this gateway reads them; what was read another way becomes a warning.

    `entry` has the values of known keys with their variables replaced; a file that they name is added to
    `env_files`. Raises ConfigError.
    """
    read = dict(entry)
    command = read.get("command")
    if isinstance(command, dict) and "path" in command:
        # Zed wrote program, arguments and variables into one object.
        read["command"] = command["path"]
        given = {key: command[key] for key in ("args", "env") if command.get(key) is not None}
        read = given | read
    for key in ("env", "headers"):
        if isinstance(values := read.get(key), dict):
            # A null is left out, as where it is not written.
            read[key] = {
                name: _text(value, f"{key}.{name}") for name, value in values.items() if value is not None
            }
    if isinstance(arguments := read.get("args"), list):
        read["args"] = [_text(value, f"args[{index}]") for index, value in enumerate(arguments)]
    if isinstance(certificate := read.get("clientCert"), str):
        read["clientCert"] = {"cert": certificate}
    _read_command(read, where, warnings)
    _read_env_file(read, base_paths, where, warnings, env_files)
    _read_timeout(read, where, warnings)
    return read


def _text(value: object, where: str) -> str:
    """Numbers and booleans as text."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
    # Never the value itself: a token may be in it.
    kind = "null" if value is None else display_value(value)
    raise invalid_value_error(where, kind, "text, a number, true or false")


def _read_command(read: dict[str, object], where: str, warnings: list[str]) -> None:
    """A whole command line becomes a program and its arguments."""
    command = read.get("command")
    if isinstance(command, list) and command:
        words = [_text(word, f"command[{index}]") for index, word in enumerate(command)]
    elif (
        # It has several words, and no program has such a name, spaces included.
        isinstance(command, str)
        and CONTROL_CHARACTERS.search(command) is None
        and len(command.split()) > 1
        and not os.path.exists(os.path.expanduser(command))
        and shutil.which(command) is None
    ):
        words = _split(command)
    else:
        return
    variables: dict[str, str] = {}
    while len(words) > 1 and (assignment := _ASSIGNMENT.fullmatch(words[0])):
        variables[assignment.group(1)] = assignment.group(2)
        del words[0]
    program, *arguments = words
    read["command"] = program
    if isinstance(given := read.get("args", []), list):
        read["args"] = [*arguments, *given]
    if variables:
        env = read.get("env", {})
        read["env"] = variables | env if isinstance(env, dict) else env
    if isinstance(command, str):
        count = f"{len(arguments)} argument{'' if len(arguments) == 1 else 's'}"
        warnings.append(
            f"command of {where} is a whole command line, read as the program {display_value(program)} with "
            f"{count}: write the program into command and the rest into args"
        )


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command, posix=os.name != "nt")
    except ValueError as error:
        raise ConfigError(
            "its command has a quote that is not closed",
            hint="write the program into command and each argument into args",
        ) from error
    if _SHELL_WORDS.intersection(words):
        raise ConfigError(
            "its command is a line for a shell", hint='write "command": "sh" and "args": ["-c", "the line"]'
        )
    return words


def _read_env_file(
    read: dict[str, object], base_paths: BasePaths, where: str, warnings: list[str], env_files: set[Path]
) -> None:
    """The variables of `envFile`, below those of `env`."""
    named = read.get("envFile")
    if not isinstance(named, str) or not named:
        return
    path = base_paths.resolve(named, "envFile")
    env_files.add(path)
    if not os.path.exists(path):
        warnings.append(f"envFile of {where} does not exist, so its variables are not set: create {path}")
        return
    env = read.get("env", {})
    if isinstance(env, dict):
        read["env"] = read_dotenv(path, warnings) | env


def _read_timeout(read: dict[str, object], where: str, warnings: list[str]) -> None:
    """A number that is too large for seconds is one of milliseconds."""
    given = read.get("timeout")
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return
    try:
        milliseconds = float(given)
    except (ValueError, OverflowError):
        return
    if not _LONGEST_SECONDS < milliseconds <= _LONGEST_MILLISECONDS:
        return
    seconds = min(milliseconds / 1000, _LONGEST_SECONDS)
    read["timeout"] = seconds
    warnings.append(
        f"timeout of {where} is {milliseconds:.16g}, which is read as milliseconds: "
        f"{seconds:g} s are in force; write seconds"
    )
