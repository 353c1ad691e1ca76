"""One question to the engine, and its answer as values."""

import json
from typing import Any

from headgate.results.jobs import QueryParams
from headgate.results.pipeline import ProcessorResult
from headgate.workers.sql.query_processor import QueryProcessor


def run_query(content: bytes | str, sql: str, *, path: str = "", room: int = 8000) -> ProcessorResult:
    data = content.encode() if isinstance(content, str) else content
    return QueryProcessor().process(data, QueryParams(sql=sql, path=path, room=room))


def rows(content: Any, sql: str, *, path: str = "") -> list[list[Any]]:
    """The rows of the answer; a content that is no text is written as JSON."""
    text = content if isinstance(content, bytes | str) else json.dumps(content)
    found: list[list[Any]] = json.loads(bytes(run_query(text, sql, path=path).content))["rows"]
    return found
