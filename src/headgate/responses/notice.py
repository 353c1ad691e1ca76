"""The sentences that tell an agent what it does not see, and how to get it."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

MESSAGE: Final = (
    "[Excerpt: {shown}. The whole result has {size} characters (about {tokens} tokens) and is kept for "
    "{minutes} min as cache_id {cache_id}. Get what you need of it with {tools}.]"
)
# A note that tells a name of thousands of characters would be longer than what it is about.
_LONGEST_NOTE: Final = 600
# Of the blocks and positions of hits.
_MOST_NAMED: Final = 10
# Of an answer so many rows are fetched.
_MOST_ROWS: Final = 10_000


def filled(message: str, values: Mapping[str, str]) -> str:
    """The message with its places filled; whatever else stands in braces stays."""
    for place, value in values.items():
        message = message.replace(f"{{{place}}}", value)
    return message


def minutes(seconds: float) -> str:
    """So many minutes in words that fit the notice: `5`, or `0.5`."""
    return f"{seconds / 60:.1f}".removesuffix(".0") if seconds >= 3 else "less than 0.1"


def unopened(message: str, cache_id: str, size_bytes: int, reason: str, *, typed: bool) -> bytes:
    """The result that stands for one that was stored, but could not be opened."""
    words = {
        "shown": f"nothing, because {reason}",
        "size": f"up to {size_bytes:,}",
        "tokens": f"{size_bytes // 4:,}",
        "cache_id": cache_id,
    }
    blocks = [{"type": "text", "text": filled(message, words)}]
    return msgspec.json.encode(({"resultType": "complete"} if typed else {}) | {"content": blocks})


def page_note(cache_id: str, metadata: Mapping[str, Any]) -> str:
    """What stands below the reply of a tool: the id, and how to go on where there is more."""
    parts = [f"cache_id: {cache_id}"]
    for told in metadata.values():
        parts += _told(told)
    note = "; ".join(parts)
    return note if len(note) <= _LONGEST_NOTE else f"{note[:_LONGEST_NOTE]}…"


def _told(told: Mapping[str, Any]) -> list[str]:
    parts = [*_counted(told), *_of_table(told)]
    if "next_offset" in told:
        parts.append(f"more with offset {told['next_offset']}")
    if told.get("go_on"):
        parts.append(str(told["go_on"]))
    elif told.get("too_large_to_show"):
        parts.append(f"{told['too_large_to_show']:,} too large to show: read them by path")
    parts += _of_hits(told)
    if told.get("other_texts"):
        parts.append("other texts of the result are cut: proxy_read pages through all of them")
    if told.get("reason"):
        parts.append(str(told["reason"]))
    return parts + _not_found(told)


def _counted(told: Mapping[str, Any]) -> list[str]:
    shown, total = told.get("shown", 0), told.get("total", 0)
    if "matches" in told:
        least = "at least " if told.get("at_least") else ""
        parts = [f"{shown:,} of {least}{told['matches']:,} matches"]
        if not told["matches"] and told.get("mode") == "regex":
            parts.append("try case_insensitive, or mode fuzzy or bm25")
        elif told["matches"] and not shown and not told.get("too_large_to_show"):
            parts.append(f"the last has offset {told['matches'] - 1}")
        return parts
    if "total" not in told or shown == total:
        return []
    parts = [f"{shown:,} of {total:,} {told.get('unit', 'elements')}"]
    if not shown and 0 < total <= told.get("offset", 0):
        parts.append(f"the last has offset {total - 1}")
    return parts


def _of_hits(told: Mapping[str, Any]) -> list[str]:
    """In which blocks the hits of a search are, and how to read around those that are cut."""
    parts = []
    runs = [(block, sum(1 for _ in same)) for block, same in groupby(told.get("blocks", ()))]
    if runs:
        parts.append(f"in content block {_some([f'{block} ({count})' for block, count in runs])}")
    if told.get("cut") and "mode" in told:
        path = f"path {told['path']}, " if told.get("path") else ""
        how = "proxy_read shows the rest"
        if told.get("positions"):
            way = f"proxy_read with {path}unit characters and an offset a little before"
            how = f"to see more around one, {way} {_some(told['positions'])}"
        parts.append(f"{told['cut']:,} cut at …: {how}")
    return parts


def _some(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:_MOST_NAMED])) + (", …" if len(values) > _MOST_NAMED else "")


def _of_table(told: Mapping[str, Any]) -> list[str]:
    if told.get("table_rows") is None:
        return []
    parts = [f"rows are {told['path']}"] if told.get("path") else []
    if told.get("columns_left_out"):
        parts.append(f"{told['columns_left_out']} columns are left out")
    if told.get("more") or told.get("shown", 0) < told.get("rows", 0):
        least = "at least " if told["rows"] >= _MOST_ROWS else ""
        parts.append(f"{told['shown']:,} of {least}{told['rows']:,} rows: add LIMIT and OFFSET, or aggregate")
    return parts


def _not_found(told: Mapping[str, Any]) -> list[str]:
    nearest = told.get("nearest_fields", {})
    named = [
        f"{field} (nearest: {', '.join(nearest[field])})" if field in nearest else field
        for field in told.get("fields_not_found", ())
    ]
    return [f"not found: {', '.join(named)}"] if named else []
