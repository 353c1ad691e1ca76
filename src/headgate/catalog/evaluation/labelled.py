"""Reads a set of tools and questions: `tools.jsonl` and `queries.jsonl`."""

from collections.abc import Iterable
from typing import Any

import msgspec

from headgate.catalog.search.document import Document, document_of


class Question(msgspec.Struct, frozen=True):
    """A request, and the tools that answer it: of each group one."""

    text: str
    groups: tuple[frozenset[str], ...]
    split: str = ""


class _Tool(msgspec.Struct):
    id: str
    name: str
    server: str = ""
    description: str | None = None
    input_schema: Any = None


class _Query(msgspec.Struct):
    query: str
    gold_groups: list[list[str]] = []
    gold: list[str] = []
    split: str = ""


def read_tools(lines: Iterable[bytes | str]) -> list[Document]:
    """The tools, each under its server and its id in the set; raises msgspec.DecodeError for other lines."""
    return [_document(msgspec.json.decode(line, type=_Tool)) for line in lines if line.strip()]


def _document(tool: _Tool) -> Document:
    definition = msgspec.json.encode({"description": tool.description, "inputSchema": tool.input_schema})
    # A set without servers says so with a hyphen.
    server = "" if tool.server == "-" else tool.server
    document = document_of(server, tool.name, tool.name, definition)
    return msgspec.structs.replace(document, key=(server, tool.id))


def read_questions(lines: Iterable[bytes | str]) -> list[Question]:
    """The questions that have an answer; raises msgspec.DecodeError for other lines."""
    read = [msgspec.json.decode(line, type=_Query) for line in lines if line.strip()]
    return [Question(one.query, _groups(one), one.split) for one in read if _groups(one)]


def _groups(query: _Query) -> tuple[frozenset[str], ...]:
    groups = query.gold_groups or [[identifier] for identifier in query.gold]
    return tuple(frozenset(group) for group in groups if group)
