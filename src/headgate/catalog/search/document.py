"""What the search reads of one tool."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

Key = tuple[str, str]
# Deeper than any schema that a person wrote by hand.
_DEEPEST: Final = 8
# Time zones and country codes come in hundreds and would drown the rest.
_MOST_CHOICES: Final = 64


class Document(msgspec.Struct, frozen=True):
    """One tool: whose it is, what it is called, and what is said about it."""

    # Server, and name of the tool there.
    key: Key
    public_name: str
    name: str
    title: str = ""
    description: str = ""
    parameters: str = ""
    # Descriptions of the parameters, and the values they can take.
    parameter_texts: str = ""
    read_only: bool = False


def document_of(server: str, name: str, public_name: str, definition: bytes) -> Document:
    """The document of a tool; what is not as it should be in its definition is left out."""
    try:
        tool = msgspec.json.decode(definition)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        tool = None
    tool = _object(tool)
    annotations = _object(tool.get("annotations"))
    names: list[str] = []
    texts: list[str] = []
    for parameter, schema in _parameters(tool.get("inputSchema"), _DEEPEST):
        names.append(parameter)
        texts += [text for text in _said(schema) if text]
    return Document(
        key=(server, name),
        public_name=public_name,
        name=name,
        title=_text(tool.get("title")) or _text(annotations.get("title")),
        description=_text(tool.get("description")),
        parameters=" ".join(names),
        parameter_texts=" ".join(texts),
        read_only=annotations.get("readOnlyHint") is True,
    )


def _parameters(schema: Any, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every parameter, those of parameters that are objects or lists of objects too."""
    for name, inner in _object(_object(schema).get("properties")).items():
        yield name, _object(inner)
        if depth and isinstance(inner, dict):
            yield from _parameters(inner, depth - 1)
            yield from _parameters(inner.get("items"), depth - 1)


def _said(schema: dict[str, Any]) -> Iterator[str]:
    for part in (schema, _object(schema.get("items"))):
        yield _text(part.get("description"))
        choices = part.get("enum")
        if isinstance(choices, list):
            yield from (choice for choice in choices[:_MOST_CHOICES] if isinstance(choice, str))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
