"""One question to the engine, and its answer as values."""

import json
from typing import Any

from headgate.responses.params import Query
from headgate.responses.processing import ProcessorResult
from headgate.workers.query import QueryProcessor


def ask(content: bytes | str, sql: str, *, path: str = "", room: int = 8000) -> ProcessorResult:
    data = content.encode() if isinstance(content, str) else content
    return QueryProcessor().process(data, Query(sql=sql, path=path, room=room))


def rows(content: Any, sql: str, *, path: str = "") -> list[list[Any]]:
    """The rows of the answer; a content that is no text is written as JSON."""
    text = content if isinstance(content, bytes | str) else json.dumps(content)
    found: list[list[Any]] = json.loads(bytes(ask(text, sql, path=path).content))["rows"]
    return found
