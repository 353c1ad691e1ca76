"""Pages of text with separators: as many records as fit, with the names of the columns on each page."""

from io import StringIO
from typing import Any

from headgate.responses.content import Content, characters, clipped
from headgate.responses.delimited import records, written
from headgate.responses.processing import ProcessorResult, done


def rows_page(content: Content, separator: str, offset: int, room: int) -> ProcessorResult:
    """The records from an offset on; of one that fits on no page its beginning."""
    names, *rows = list(records(StringIO(content[:].decode(errors="replace"), newline=""), separator)) or [[]]
    pieces = [written([names], separator)] if names else []
    left, shown = room - sum(map(characters, pieces)), 0
    facts: dict[str, Any] = {"unit": "rows", "offset": offset, "shown": 0, "total": len(rows)}
    for row in rows[offset:]:
        piece = written([row], separator)
        size = characters(piece)
        if size > left and shown:
            break
        if size > left:
            facts["go_on"] = f"row {offset} is cut: name fewer fields, or select a part with proxy_query"
        pieces.append(clipped(piece, max(left, 0)))
        left, shown = left - size, shown + 1
    facts["shown"] = shown
    if shown and offset + shown < len(rows):
        facts["next_offset"] = offset + shown
    return done(content, b"".join(pieces).rstrip(b"\n"), facts)
