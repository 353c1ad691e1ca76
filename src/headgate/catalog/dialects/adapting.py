"""Serves a tool in a dialect: the schema of its arguments is written anew, and every other byte is kept."""

from typing import Final

import msgspec

from headgate.catalog.dialects.changes import Changes
from headgate.catalog.dialects.dialect import Dialect
from headgate.catalog.dialects.gemini import Gemini
from headgate.catalog.dialects.opening import Unsayable
from headgate.catalog.dialects.reading import read
from headgate.catalog.dialects.shapes import Node
from headgate.catalog.dialects.source import encoded, schema_in
from headgate.catalog.dialects.strict import Strict
from headgate.protocol.json_members import replace_member

# What may be there or not without a difference, if it is empty.
_EMPTY: Final = {Dialect.GEMINI: ("properties", "required"), Dialect.OPENAI: ("required",)}


class Adapted(msgspec.Struct, frozen=True):
    """A tool as a client of some dialect sees it, and what that changed."""

    definition: bytes
    changes: tuple[str, ...] = ()


def adapt(definition: bytes, dialect: Dialect) -> Adapted:
    """The tool in that dialect, or as it is where it cannot be said in it; then the only change says why."""
    if dialect is Dialect.PLAIN:
        return Adapted(definition)
    try:
        text = definition.decode()
        member, schema = schema_in(text)
        changes = Changes()
        written = _written(schema, dialect, changes)
        if _bare(written, dialect) == _bare(schema, dialect):
            return Adapted(definition)
        # What is too small for a line of its own: a default that is null, or an example.
        lines = changes.lines() or ("inputSchema: written in the words of the dialect",)
        return Adapted(replace_member(text, member, encoded(written)).encode(), lines)
    except (ValueError, RecursionError) as error:
        return Adapted(definition, (f"inputSchema: served as it is: {_reason(error)}",))


def _written(schema: Node, dialect: Dialect, changes: Changes) -> Node:
    choice = read(schema, changes)
    return Gemini(changes).root(choice) if dialect is Dialect.GEMINI else Strict(changes).root(choice)


def _bare(schema: Node, dialect: Dialect) -> Node:
    return {
        key: value for key, value in schema.items() if value not in ({}, []) or key not in _EMPTY[dialect]
    }


def _reason(error: Exception) -> str:
    return str(error)[:200] if isinstance(error, Unsayable) else "it cannot be read"
