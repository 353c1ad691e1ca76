"""Pages of a text, in lines or in characters."""

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from headgate.responses.params import Unit
from headgate.responses.processors.lines import Texts


class Page(msgspec.Struct, frozen=True):
    """What is shown at once, and where it stands in the whole."""

    content: bytes
    metadata: dict[str, Any]


class Slot(NamedTuple):
    """What is asked for: from where on, how much at most, and in how many characters."""

    offset: int
    limit: int | None
    room: int

    def bounds(self, total: int) -> tuple[int, int]:
        """Where the page begins and must end; a negative offset counts from the end."""
        start = self.offset if self.offset >= 0 else max(total + self.offset, 0)
        return start, total if self.limit is None else min(start + self.limit, total)


def told(unit: Unit, offset: int, shown: int, total: int) -> dict[str, Any]:
    """What is said of a page: how much it shows, and where the next one begins if there is one."""
    facts: dict[str, Any] = {"unit": unit.value, "offset": offset, "shown": shown, "total": total}
    if shown and offset + shown < total:
        facts["next_offset"] = offset + shown
    return facts


def characters_page(texts: Texts, slot: Slot) -> Page:
    """The characters that there is room for."""
    total = sum(map(len, texts()))
    start, stop = slot.bounds(total)
    shown = _head(_behind_characters(texts(), start), min(stop - start, slot.room))
    return Page(shown.encode(), told(Unit.CHARACTERS, start, len(shown), total))


def _behind_characters(texts: Iterator[str], count: int) -> Iterator[str]:
    for text in texts:
        if len(text) > count:
            yield text[count:]
        count = max(count - len(text), 0)


def _head(texts: Iterator[str], size: int) -> str:
    """The first characters, and nothing taken from the texts behind them."""
    head: list[str] = []
    while size > 0:
        text = next(texts, None)
        if text is None:
            break
        head.append(text[:size])
        size -= len(head[-1])
    return "".join(head)


def lines_page(texts: Texts, slot: Slot) -> Page:
    """The lines that fit, without the last line end; of one that fits on no page its beginning."""
    total = count_lines(texts())
    start, stop = slot.bounds(total)
    position, behind = _behind_lines(texts(), start)
    # The two characters of a line end behind the last line that fits are not shown.
    head = _head(behind, slot.room + 2)
    shown, count = _whole_lines(head, stop - start, slot.room)
    if count or start >= stop:
        return Page(shown.encode(), told(Unit.LINES, start, count, total))
    rest = _rest_of_line(chain((head[slot.room :],), _behind_characters(texts(), position + len(head))))
    facts = told(Unit.LINES, start, 1, total)
    facts["go_on"] = (
        f"line {start} is cut: for the rest of it read with unit characters, "
        f"offset {position + slot.room}, limit {rest}"
    )
    return Page(head[: slot.room].encode(), facts)


def count_lines(texts: Iterator[str]) -> int:
    """How many lines there are; the last one may have no line end."""
    ends, last = 0, "\n"
    for text in texts:
        ends += text.count("\n")
        last = text[-1:] or last
    return ends + (last != "\n")


def _behind_lines(texts: Iterator[str], count: int) -> tuple[int, Iterator[str]]:
    """How many characters the first lines have, and the text behind them."""
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
    """The lines of the head that fit, and how many they are."""
    shown, start, count = 0, 0, 0
    while count < limit:
        end = head.find("\n", start)
        # The head is cut inside this line, or the text ends without a line end.
        end = len(head) if end < 0 else end
        line_end = end - 1 if head[start:end].endswith("\r") else end
        if line_end > room:
            break
        shown, start, count = line_end, end + 1, count + 1
    return head[:shown], count


def _rest_of_line(texts: Iterator[str]) -> int:
    size = 0
    for text in texts:
        end = text.find("\n")
        if end >= 0:
            return size + end
        size += len(text)
    return size
