"""Expands `${VAR}` and `${VAR:-default}` in every string of a configuration."""

import os
import re
from collections.abc import Callable

# A name that begins with INPUT is the id of an input of VS Code.
Lookup = Callable[[str], str | None]
INPUT_PREFIX = "input:"

# `$${` is how to write `${` itself; a `$` elsewhere means nothing, so that passwords and scripts stay.
_TOKEN = re.compile(r"\$\$\{|\$\{|\}")
_REFERENCE = re.compile(r"(?:([A-Za-z]+):)?([A-Za-z_][A-Za-z0-9_]*)(\}|:-)")
# The id of an input of VS Code may contain other characters than the name of a variable.
_INPUT = re.compile(r"(input):([^\s{}:]+)(\}|:-)")
# The separator of directories, as VS Code writes it.
_SEPARATOR = re.compile(r"(?:/|pathSeparator)\}")
# Enough for any configuration, and it keeps a hostile string from exhausting the stack.
_DEEPEST_DEFAULT = 16


def expand(value: object, lookup: Lookup) -> tuple[object, list[str]]:
    """The value with every reference replaced, and one sentence for each that could not be.

    The value of a variable is never expanded again, so a secret may contain `${`.
    """
    problems: list[str] = []
    return _expand(value, lookup, problems, ""), problems


def _expand(value: object, lookup: Lookup, problems: list[str], key: str) -> object:
    match value:
        case str() if "${" in value:
            text = _TemplateExpander(value, lookup, key.removeprefix("."))
            expanded = text.read(depth=0)
            problems += text.problems
            return expanded
        case dict():
            return {
                name: _expand(item, lookup, problems, f"{key}.{name if name.isprintable() else ascii(name)}")
                for name, item in value.items()
            }
        case list():
            return [_expand(item, lookup, problems, f"{key}[{index}]") for index, item in enumerate(value)]
    return value


def input_variable(identifier: str) -> str:
    """The variable for an input of VS Code: `api-key` is API_KEY."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", identifier).strip("_").upper()
    return name if name and not name[0].isdigit() else f"INPUT_{name}"


class _TemplateExpander:
    """One string, read from left to right."""

    def __init__(self, text: str, lookup: Lookup, key: str) -> None:
        self.problems: list[str] = []
        self._text = text
        self._lookup = lookup
        self._key = key
        self._position = 0

    def read(self, depth: int) -> str:
        """Up to the end of the string, or in a default up to the brace that closes it."""
        pieces: list[str] = []
        escaped = 0
        while token := _TOKEN.search(self._text, self._position):
            pieces.append(self._text[self._position : token.start()])
            self._position = token.end()
            match token.group():
                case "$${":
                    escaped += 1
                    pieces.append("${")
                case "${":
                    pieces.append(self._reference(depth))
                case _ if depth and not escaped:
                    return "".join(pieces)
                case _:
                    escaped = max(0, escaped - 1)
                    pieces.append("}")
        pieces.append(self._text[self._position :])
        self._position = len(self._text)
        if depth:
            self._problem("a ${ is not closed: add }, or write $${ for the text ${ itself")
        return "".join(pieces)

    def _reference(self, depth: int) -> str:
        if separator := _SEPARATOR.match(self._text, self._position):
            self._position = separator.end()
            return os.sep
        reference = _INPUT.match(self._text, self._position) or _REFERENCE.match(self._text, self._position)
        if reference is None or depth == _DEEPEST_DEFAULT:
            closing = self._text.find("}", self._position)
            self._position = len(self._text) if closing < 0 else closing + 1
            self._problem(
                "a ${ is not followed by a name and }: write ${NAME}, or $${ for the text ${ itself"
            )
            return ""
        self._position = reference.end()
        kind, name, end = reference.groups()
        value = self._value(kind, name)
        if end == "}":
            if value is None:
                why, variable = f"${{{name}}} is not set", name
                if kind == "input":
                    why, variable = (
                        f"${{input:{name}}} is a value that VS Code asks for",
                        input_variable(name),
                    )
                self._problem(f"{why}: set {variable} in the environment or in .env beside the file")
            return value or ""
        known = len(self.problems)
        default = self.read(depth + 1)
        # As in a shell: an empty variable takes the default too.
        if value:
            del self.problems[known:]
        return value or default

    def _value(self, kind: str | None, name: str) -> str | None:
        # `${env:VAR}` is how VS Code and Cursor write it.
        if kind in (None, "env"):
            return self._lookup(name)
        if kind == "input":
            return self._lookup(f"{INPUT_PREFIX}{name}")
        why = "available in this version" if kind in ("secret", "keyring") else "known here"
        self._problem(f"${{{kind}:{name}}} is not {why}: use ${{{name}}}")
        return ""

    def _problem(self, sentence: str) -> None:
        # No colon after the key: `env.API_KEY: ...` would be taken for a secret and be redacted.
        self.problems.append(f"in {self._key} {sentence}" if self._key else sentence)
