"""Pages of a content: elements or members of JSON, records of CSV, lines, or characters."""

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from itertools import chain
from typing import Any, NamedTuple

from msgspec import DecodeError, Raw

from headgate.results.content import (
    Content,
    Scratch,
    TextChunks,
    character_count,
    first_byte,
    first_characters,
    first_text,
    fits,
    json_lines,
    string_text_chunks,
    text_chunks,
)
from headgate.results.delimited_text import read_records, write_records
from headgate.results.embedded_json import json_in_string
from headgate.results.jobs import PageUnit, ReadParams
from headgate.results.json_paths import PathTarget, decode_container, member_path, resolve_path
from headgate.results.pipeline import ProcessingError, ProcessorResult, processed
from headgate.results.truncation import encoded_key, join_parts, truncate_json


class ResultPage(NamedTuple):
    """One page, and its position in the whole."""

    content: bytes
    metadata: dict[str, Any]


class PageRequest(NamedTuple):
    """The first unit of a page, the most units, and the most characters."""

    offset: int
    limit: int | None
    room: int

    def bounds(self, total: int) -> tuple[int, int]:
        """Where the page begins and ends at the latest; a negative offset counts from the end."""
        start = self.offset if self.offset >= 0 else max(total + self.offset, 0)
        return start, total if self.limit is None else min(start + self.limit, total)


def page_facts(unit: PageUnit, offset: int, shown: int, total: int) -> dict[str, Any]:
    """The metadata of a page: how much it shows, and the next offset if there is more."""
    facts: dict[str, Any] = {"unit": unit.value, "offset": offset, "shown": shown, "total": total}
    if shown and offset + shown < total:
        facts["next_offset"] = offset + shown
    return facts


def characters_page(texts: TextChunks, slot: PageRequest) -> ResultPage:
    total = sum(map(len, texts()))
    start, stop = slot.bounds(total)
    shown = first_text(_behind_characters(texts(), start), min(stop - start, slot.room))
    return ResultPage(shown.encode(), page_facts(PageUnit.CHARACTERS, start, len(shown), total))


def _behind_characters(texts: Iterator[str], count: int) -> Iterator[str]:
    for text in texts:
        if len(text) > count:
            yield text[count:]
        count = max(count - len(text), 0)


def lines_page(texts: TextChunks, slot: PageRequest) -> ResultPage:
    """The lines that fit, without the last line end; the beginning of a line that fits on no page."""
    total = count_text_lines(texts())
    start, stop = slot.bounds(total)
    position, behind = _behind_lines(texts(), start)
    # The line end behind the last line, at most two characters, is not shown.
    head = first_text(behind, slot.room + 2)
    shown, count = _whole_lines(head, stop - start, slot.room)
    if count or start >= stop:
        return ResultPage(shown.encode(), page_facts(PageUnit.LINES, start, count, total))
    rest = 0
    for text in chain((head[slot.room :],), _behind_characters(texts(), position + len(head))):
        end = text.find("\n")
        rest += len(text) if end < 0 else end
        if end >= 0:
            break
    facts = page_facts(PageUnit.LINES, start, 1, total)
    facts["go_on"] = (
        f"line {start} is cut: for the rest of it read with unit characters, "
        f"offset {position + slot.room}, limit {rest}"
    )
    return ResultPage(head[: slot.room].encode(), facts)


def count_text_lines(texts: Iterator[str]) -> int:
    """The number of lines; the last one may lack a line end."""
    ends, last = 0, "\n"
    for text in texts:
        ends += text.count("\n")
        last = text[-1:] or last
    return ends + (last != "\n")


def _behind_lines(texts: Iterator[str], count: int) -> tuple[int, Iterator[str]]:
    """The length of the first `count` lines in characters, and the text behind them."""
    position = 0
    for text in texts:
        ends = text.count("\n")
        if ends < count:
            position, count = position + len(text), count - ends
            continue
        at = 0
        for _ in range(count):
            at = text.index("\n", at) + 1
        return position + at, chain((text[at:],), texts)
    return position, texts


def _whole_lines(head: str, limit: int, room: int) -> tuple[str, int]:
    shown, start, count = 0, 0, 0
    while count < limit:
        end = head.find("\n", start)
        # The head ends inside this line, or the text ends without a line end.
        end = len(head) if end < 0 else end
        line_end = end - 1 if head[start:end].endswith("\r") else end
        if line_end > room:
            break
        shown, start, count = line_end, end + 1, count + 1
    return head[:shown], count


# One nested envelope is common ({"data": {"items": []}}), more are rare.
_DEEPEST_ENVELOPE = 8


def value_page(
    value: Content | Raw, slot: PageRequest, place: PathTarget, depth: int = 0
) -> ResultPage | None:
    """A page of elements or members; None for a scalar.

    For `{"total": 3, "items": [...]}`, the usual envelope of an API, the items are paged and the other
    members are on every page. Raises ProcessingError when a key is no UTF-8.
    """
    container = decode_container(value)
    if container is None:
        return None
    if isinstance(container, list):
        return elements_page(container, slot, place)
    main = _paged_member(container, slot) if depth < _DEEPEST_ENVELOPE else None
    made = None
    if main is not None:
        around = {name: bytes(member) for name, member in container.items() if name != main}
        inner = PathTarget(b"", member_path(place.path, main), gathered=False)
        left = PageRequest(slot.offset, slot.limit, slot.room - _size(main, around))
        made = value_page(container[main], left, inner, depth + 1)
    if made is None:
        return members_page(container, slot, place.path)
    written = (encoded_key(name) + (made.content if name == main else around[name]) for name in container)
    return ResultPage(join_parts(b"{", written, b"}"), {"of": inner.path} | made.metadata)


def _paged_member(members: Mapping[str, Raw], slot: PageRequest) -> str | None:
    """The member that is too large for a page, if the others are small enough to be on every page.

    An offset refers to its elements, even where everything would fit on one page.
    """
    room = slot.room
    sizes = {name: len(memoryview(value)) for name, value in members.items()}
    main = max(sizes, key=sizes.__getitem__, default=None)
    if main is None or memoryview(members[main])[0] not in b"[{":
        return None
    rest = sum(sizes.values()) - sizes[main]
    if rest > min(sizes[main], room * 4):
        return None
    around = {name: bytes(value) for name, value in members.items() if name != main}
    written = _size(main, around)
    needs_pages = written + sizes[main] > room
    if not needs_pages and slot.offset:
        container = decode_container(members[main])
        needs_pages = isinstance(container, list) and len(container) > len(members)
    return main if needs_pages and written <= room // 2 else None


def _size(main: str, around: Mapping[str, bytes]) -> int:
    """The characters of an object without the value of its main member."""
    written = (character_count(encoded_key(name) + value) + 1 for name, value in around.items())
    return 2 + character_count(encoded_key(main)) + sum(written)


def elements_page(elements: Sequence[Raw], slot: PageRequest, place: PathTarget) -> ResultPage:
    """The elements of an array that fit; one that fits on no page is truncated."""
    start, stop = slot.bounds(len(elements))
    pieces, is_cut = _fill_page(((b"", elements[at]) for at in range(start, stop)), slot.room - 2)
    facts = page_facts(PageUnit.ELEMENTS, start, len(pieces), len(elements))
    if is_cut:
        last = start + len(pieces) - 1
        path = place.index_path(last)
        if path is not None:
            facts |= {"path": path, "go_on": f"element {last} is cut: read it with path {path}"}
        else:
            # A gathered array has no spaces, so its text is as long as its elements and their commas.
            before = 1 + sum(character_count(bytes(element)) + 1 for element in elements[:last])
            facts["go_on"] = f"element {last} is cut: read it with unit characters, offset {before}"
    return ResultPage(join_parts(b"[", filter(None, pieces), b"]"), facts)


def members_page(members: Mapping[str, Raw], slot: PageRequest, path: str) -> ResultPage:
    """The members of an object that fit; one that fits on no page is truncated."""
    start, stop = slot.bounds(len(members))
    names = list(members)[start:stop]
    pieces, is_cut = _fill_page(((encoded_key(name), members[name]) for name in names), slot.room - 2)
    facts = page_facts(PageUnit.ELEMENTS, start, len(pieces), len(members))
    if is_cut:
        deeper = member_path(path, names[len(pieces) - 1])
        facts |= {"path": deeper, "go_on": f"the last member is cut: read it with path {deeper}"}
    return ResultPage(join_parts(b"{", filter(None, pieces), b"}"), facts)


def _fill_page(pieces: Iterator[tuple[bytes, Raw]], room: int) -> tuple[list[bytes], bool]:
    """Keys with values, as long as they fit, and whether the last value is truncated: it fits on no page.

    A truncated piece is empty where the key alone is too long.
    """
    filled: list[bytes] = []
    left = room
    for key, value in pieces:
        # A character has at most four bytes; so nothing large is copied to be measured.
        may_fit = len(memoryview(value)) <= room * 4
        size = character_count(key + bytes(value)) if may_fit else room + 1
        if size <= left:
            filled.append(key + bytes(value))
            # With the comma after it.
            left -= size + 1
            continue
        if size > room and left > room // 2:
            left -= character_count(key)
            cut = truncate_json(bytes(value), left).content
            return [*filled, key + cut if character_count(cut) <= left else b""], True
        break
    return filled, False


def rows_page(content: Content, separator: str, offset: int, room: int) -> ProcessorResult:
    """The records from an offset on; the beginning of one that fits on no page."""
    names, *rows = list(
        read_records(StringIO(content[:].decode(errors="replace"), newline=""), separator)
    ) or [[]]
    pieces = [write_records([names], separator)] if names else []
    left, shown = room - sum(map(character_count, pieces)), 0
    facts: dict[str, Any] = {"unit": "rows", "offset": offset, "shown": 0, "total": len(rows)}
    for row in rows[offset:]:
        piece = write_records([row], separator)
        size = character_count(piece)
        if size > left and shown:
            break
        if size > left:
            facts["go_on"] = f"row {offset} is cut: name fewer fields, or select a part with proxy_query"
        pieces.append(first_characters(piece, max(left, 0)))
        left, shown = left - size, shown + 1
    facts["shown"] = shown
    if shown and offset + shown < len(rows):
        facts["next_offset"] = offset + shown
    return processed(content, b"".join(pieces).rstrip(b"\n"), facts)


class ReadProcessor:
    """Reads a page of a content, or of the part at a path."""

    name = "read"

    def __init__(self, scratch: Scratch | None = None) -> None:
        """`scratch` keeps the part at a path."""
        self._scratch = scratch

    def process(self, content: Content, params: ReadParams) -> ProcessorResult:
        """The page and its position in the whole. Raises ProcessingError for an unknown path or unit."""
        if params.limit is not None and params.limit < 1:
            raise ProcessingError(
                f"limit is {params.limit}: give at least 1, or leave it out for as much as fits."
            )
        return processed(content, *_page(resolve_path(content, params.path, self._scratch), params))


def first_fitting_page(content: Content, offset: int, room: int) -> ProcessorResult:
    """A page of the output of another processor.

    Elements of the outermost array, or of the one large array inside an envelope, else members, else lines. A
    content that fits is returned unchanged.
    """
    slot = PageRequest(offset, None, room)
    where = PathTarget(content, "", gathered=False)
    shown = _json_page(where, slot) or lines_page(text_chunks(content), slot)
    facts = shown.metadata
    if facts["shown"] == facts["total"] and "go_on" not in facts and fits(content, room):
        return processed(content, content[:], facts)
    return processed(content, shown.content, facts)


def _json_page(where: PathTarget, slot: PageRequest) -> ResultPage | None:
    """A page of elements or members; None for a content that can only be read as text."""
    if first_byte(where.value) not in (b"{", b"["):
        return None
    try:
        return value_page(where.value, slot, where)
    except (DecodeError, RecursionError, ProcessingError):
        # It only begins like JSON, nests too deeply, or has a key that is no UTF-8.
        return None


def _page(where: PathTarget, params: ReadParams) -> ResultPage:
    slot = PageRequest(params.offset, params.limit, params.room)
    # The text; for a JSON string its unescaped value.
    is_string = where.path and first_byte(where.value) == b'"'
    texts = string_text_chunks(where.value) if is_string else text_chunks(where.value)
    if params.unit is PageUnit.CHARACTERS:
        return characters_page(texts, slot)
    if params.unit is PageUnit.LINES:
        return lines_page(texts, slot)
    shown = _json_page(where, slot)
    if shown is None and where.path:
        inner = json_in_string(Raw(memoryview(where.value)), only_main=True)
        if inner is not None:
            shown = _json_page(PathTarget(bytes(inner), where.path, gathered=False), slot)
    elif shown is None and params.unit is PageUnit.ELEMENTS and json_lines(where.value) is None:
        raise ProcessingError(
            "The content is no JSON, so it has no elements: read it with unit lines or characters."
        )
    return shown or lines_page(texts, slot)
