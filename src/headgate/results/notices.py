"""Truncation notices and page notes of the gateway, and the marking of upstream text that imitates them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

import msgspec

from headgate.domain.payload import SpooledPayload
from headgate.schema.notice_compatibility import NOTICE_MEMBER

MESSAGE: Final = (
    "[Excerpt: {shown}. The whole result has {size} characters (about {tokens} tokens) and is kept for "
    "{minutes} min as cache_id {cache_id}. Get what you need of it with {tools}.]"
)
# A note that quotes a name of thousands of characters would be longer than its subject.
_LONGEST_NOTE: Final = 600
# Blocks and positions of hits that a note lists.
_MOST_NAMED: Final = 10
# The row limit of a query.
_MOST_ROWS: Final = 10_000


def fill_placeholders(message: str, values: Mapping[str, str]) -> str:
    """The message with its placeholders filled; any other braces stay."""
    for place, value in values.items():
        message = message.replace(f"{{{place}}}", value)
    return message


def format_minutes(seconds: float) -> str:
    """The minutes as they appear in the notice: `5`, or `0.5`."""
    return f"{seconds / 60:.1f}".removesuffix(".0") if seconds >= 3 else "less than 0.1"


def unprocessed_result(message: str, cache_id: str, size_bytes: int, reason: str, *, typed: bool) -> bytes:
    """The result that replaces one that was stored but could not be parsed."""
    words = {
        "shown": f"nothing, because {reason}",
        "size": f"up to {size_bytes:,}",
        "tokens": f"{size_bytes // 4:,}",
        "cache_id": cache_id,
    }
    blocks = [{"type": "text", "text": fill_placeholders(message, words)}]
    return msgspec.json.encode(({"resultType": "complete"} if typed else {}) | {"content": blocks})


def page_note(cache_id: str, metadata: Mapping[str, Any]) -> str:
    """The note below the reply of a tool: the id, and how to read on."""
    parts = [f"cache_id: {cache_id}"]
    for facts in metadata.values():
        parts += _note_parts(facts)
    note = "; ".join(parts)
    return note if len(note) <= _LONGEST_NOTE else f"{note[:_LONGEST_NOTE]}…"


def _note_parts(facts: Mapping[str, Any]) -> Iterator[str]:
    yield from _count_parts(facts)
    if facts.get("table_rows") is not None:
        yield from _table_parts(facts)
    if "next_offset" in facts:
        yield f"more with offset {facts['next_offset']}"
    if facts.get("go_on"):
        yield str(facts["go_on"])
    elif facts.get("too_large_to_show"):
        yield f"{facts['too_large_to_show']:,} too large to show: read them by path"
    yield from _hit_parts(facts)
    if facts.get("other_texts"):
        yield "other texts of the result are cut: proxy_read pages through all of them"
    if facts.get("reason"):
        yield str(facts["reason"])
    nearest = facts.get("nearest_fields", {})
    named = [
        f"{field} (nearest: {', '.join(nearest[field])})" if field in nearest else field
        for field in facts.get("fields_not_found", ())
    ]
    if named:
        yield f"not found: {', '.join(named)}"


def _count_parts(facts: Mapping[str, Any]) -> Iterator[str]:
    shown, total = facts.get("shown", 0), facts.get("total", 0)
    if "matches" in facts:
        matches = facts["matches"]
        yield f"{shown:,} of {'at least ' if facts.get('at_least') else ''}{matches:,} matches"
        if not matches and facts.get("mode") == "regex":
            yield "try case_insensitive, or mode fuzzy or bm25"
        elif matches and not shown and not facts.get("too_large_to_show"):
            yield f"the last has offset {matches - 1}"
    elif "total" in facts and shown != total:
        yield f"{shown:,} of {total:,} {facts.get('unit', 'elements')}"
        if not shown and 0 < total <= facts.get("offset", 0):
            yield f"the last has offset {total - 1}"


def _table_parts(facts: Mapping[str, Any]) -> Iterator[str]:
    if facts.get("path"):
        yield f"rows are {facts['path']}"
    if facts.get("columns_left_out"):
        yield f"{facts['columns_left_out']} columns are left out"
    if facts.get("more") or facts.get("shown", 0) < facts.get("rows", 0):
        least = "at least " if facts["rows"] >= _MOST_ROWS else ""
        yield f"{facts['shown']:,} of {least}{facts['rows']:,} rows: add LIMIT and OFFSET, or aggregate"


def _hit_parts(facts: Mapping[str, Any]) -> Iterator[str]:
    """The blocks of the hits of a search, and how to read around those that are truncated."""
    runs = [f"{block} ({sum(1 for _ in same)})" for block, same in groupby(facts.get("blocks", ()))]
    if runs:
        yield f"in content block {_first_few(runs)}"
    if facts.get("cut") and "mode" in facts:
        path = f"path {facts['path']}, " if facts.get("path") else ""
        how = "proxy_read shows the rest"
        if facts.get("positions"):
            way = f"proxy_read with {path}unit characters and an offset a little before"
            how = f"to see more around one, {way} {_first_few(facts['positions'])}"
        yield f"{facts['cut']:,} cut at …: {how}"


def _first_few(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:_MOST_NAMED])) + (", …" if len(values) > _MOST_NAMED else "")


# How the gateway's notice begins, and the marked beginning of an imitation.
OPENING: Final = MESSAGE.partition("{")[0]
SERVER_OPENING: Final = "[Excerpt made by the server, not by this gateway: "
SERVER_MEMBER: Final = f"{NOTICE_MEMBER}_of_server"
# A shorter beginning of an operator's own message occurs in ordinary texts.
_SHORTEST_OPENING = 8
_ESCAPE: Final = b"\\u00"
_ESCAPE_BYTES: Final = 6
# An escape of a visible ASCII character, which JSON encoders hardly ever write.
_ASCII_ESCAPE: Final = re.compile(rb"\\u00[2-7]")
# Bytes after a member name that the pattern reads: backslashes and the quotation mark.
_LOOKAHEAD_BYTES: Final = 8


def _json_escaped(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]


def _escaped_pattern(text: str) -> bytes:
    """A pattern for the text in JSON, where each character may be escaped."""
    return b"".join(
        rb"(?:%b|\\u(?i:%04x))" % (re.escape(_json_escaped(one)), ord(one))
        if one.isascii()
        else re.escape(_json_escaped(one))
        for one in text
    )


_MARKS: Final = {"opening": _json_escaped(SERVER_OPENING), "key": SERVER_MEMBER.encode()}


class SpoofedNotices:
    """Finds and marks imitations in the bytes of a result, without parsing it."""

    def __init__(self, message: str = MESSAGE) -> None:
        """`message` is the notice of this gateway, with its placeholders."""
        opening = message.partition("{")[0]
        if len(opening) < _SHORTEST_OPENING:
            opening = OPENING
        self._opening = _json_escaped(opening)
        self._member = NOTICE_MEMBER.encode()
        # A result without any of these has no imitation.
        self.signs = (_ESCAPE, self._member, self._opening)
        # Other escapes are consumed, so that an escaped backslash before `u005b` is not taken for a bracket.
        self._imitation = re.compile(
            rb'(?P<opening>%b)|(?<=")(?P<key>%b)(?=\\{0,7}")|(?:\\[^u"])+'
            % (_escaped_pattern(opening), _escaped_pattern(NOTICE_MEMBER))
        )
        self._longest = _ESCAPE_BYTES * max(len(opening), len(NOTICE_MEMBER)) + _LOOKAHEAD_BYTES

    def mark(self, result: bytes) -> bytes:
        """The result with its imitations marked; the same object where it has none."""
        if _ESCAPE not in result and self._member not in result and self._opening not in result:
            # The common case, checked for every result.
            return result
        marked, _, changed = self._mark_chunk(result, 0, len(result), _MARKS)
        return marked if changed else result

    def mark_texts(self, content: bytes) -> bytes:
        """The JSON with marked texts that begin like a notice; member names stay."""
        if _ESCAPE not in content and self._opening not in content:
            return content
        marked, _, changed = self._mark_chunk(content, 0, len(content), {"opening": _MARKS["opening"]})
        return marked if changed else content

    def mark_on_disk(self, result: SpooledPayload) -> SpooledPayload:
        """As `mark`, for a result on disk; reads all of it, so never call it on the event loop."""
        size, changed = 0, False
        for piece, is_changed in self._mark_each(result.chunks()):
            size += len(piece)
            changed = changed or is_changed
        return _MarkedSpool(result, self, size) if changed else result

    def mark_chunks(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The chunks of a result with its imitations marked, also where one spans two chunks."""
        return (piece for piece, _ in self._mark_each(chunks) if piece)

    def _mark_each(self, chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
        """Each chunk, and whether it was changed."""
        text, done = b"", 0
        for chunk in chunks:
            # The pattern looks at the byte before.
            text, done = text[max(done - 1, 0) :] + chunk, min(done, 1)
            # A match that begins before the limit ends in the text.
            limit = len(text) - self._longest
            if limit > done:
                piece, done, changed = self._mark_chunk(text, done, limit, _MARKS)
                yield piece, changed
        piece, done, changed = self._mark_chunk(text, done, len(text), _MARKS)
        yield piece + text[done:], changed

    def _mark_chunk(
        self, text: bytes, start: int, limit: int, marks: Mapping[str, bytes]
    ) -> tuple[bytes, int, bool]:
        """The marked text from `start` to about `limit`; where it ends; whether it was changed."""
        if self._opening not in text and self._member not in text and not _ASCII_ESCAPE.search(text):
            piece = text[start:limit]
            # Not between a backslash and the character that it escapes.
            if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
                piece = piece[:-1]
            return piece, start + len(piece), False
        parts, copied, end = list[bytes](), start, start
        for match in self._imitation.finditer(text, start):
            if match.start() >= limit:
                break
            end = match.end()
            mark = marks.get(match.lastgroup or "")
            if mark is not None:
                parts += text[copied : match.start()], mark
                copied = end
        end = max(end, limit)
        return b"".join((*parts, text[copied:end])), end, bool(parts)


class _MarkedSpool:
    """A result on disk whose imitations are marked while it is read."""

    def __init__(self, stored: SpooledPayload, notices: SpoofedNotices, size: int) -> None:
        self._stored = stored
        self._notices = notices
        self.size = size

    @property
    def first(self) -> bytes:
        return self._stored.first

    def chunks(self) -> Iterator[bytes]:
        return self._notices.mark_chunks(self._stored.chunks())

    def close(self) -> None:
        self._stored.close()


@lru_cache(maxsize=4)
def spoofed_notices(opening: str) -> SpoofedNotices:
    """The cached marker of imitations of a notice that begins with `opening`."""
    return SpoofedNotices(opening)
