"""Where the hits of a search are: in which block of the result, and at which character for proxy_read."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Raw

from headgate.responses.content import Content, characters, is_json
from headgate.responses.jobs import Look
from headgate.responses.opened import Opened, by_index, length
from headgate.responses.processing import ProcessorResult
from headgate.responses.processors.places import place

_MOST_POSITIONS = 20
_WINDOW = 1024 * 1024
_elements = msgspec.json.Decoder(list[Raw])


def located(
    made: ProcessorResult, form: Content, opened: Opened, job: Look, *, is_written: bool
) -> dict[str, Any]:
    """What is added to what is said of a search in `form`; `made` is what came of it.

    `is_written` tells whether the form is the content as it is, or JSON that was found in it.
    """
    told = made.metadata.get("search", {})
    if job.search is None or job.projection is not None:
        return {}
    if job.path:
        return _below_path(made, form if is_written else b"", opened, job) if told.get("cut") else {}
    texts = _Texts(opened, form, is_written=is_written)
    facts: dict[str, Any] = {}
    if texts.are_several:
        blocks = texts.blocks(made.places, made.elements)
        facts = {"blocks": blocks} if blocks else {}
    if told.get("cut") and made.places:
        positions = texts.positions(made.places[:_MOST_POSITIONS])
        facts |= {"positions": positions} if positions else {}
    return facts | texts.path(str(told.get("path", "")))


def _below_path(made: ProcessorResult, text: Content, opened: Opened, job: Look) -> dict[str, Any]:
    """Where a cut string is, as a path in the whole; nothing if the search path is no single place."""
    told = made.metadata["search"]
    where = place(opened.addressed(job.path), job.path, opened.scratch)
    if where.gathered:
        return {"path": "", "positions": []}
    if "path" in told:
        return {"path": _joined(where.path, str(told["path"]))}
    places = made.places[:_MOST_POSITIONS]
    if not places or not text or is_json(text):
        return {}
    return {"path": where.path, "positions": [_characters_before(text, start) for start in places]}


def _joined(above: str, below: str) -> str:
    return above + (below if below.startswith("[") or not above else f".{below}")


class _Texts:
    """The texts of a result as they stand in what is searched."""

    def __init__(self, opened: Opened, form: Content, *, is_written: bool) -> None:
        self._opened = opened
        self._form = form
        self._is_written = is_written
        self._is_structure = opened.is_summed_up or not opened.texts
        self._indexes = list(opened.tight)

    @cached_property
    def _starts(self) -> list[int]:
        if not self._is_written:
            return list(_element_starts(self._form))
        # Behind a bracket, and a sign between two of them.
        first = 1 if self._opened.document.json and self.are_several else 0
        texts = self._opened.tight.values()
        return list(accumulate((len(text) + 1 for text in texts), initial=first))[:-1]

    @property
    def _only(self) -> int | None:
        """The block that has all the JSON that was searched, if it is one of several."""
        main = None if self._is_written else self._opened.main
        return None if main is None else main.block

    @property
    def are_several(self) -> bool:
        """Whether it is more than one."""
        return len(self._opened.texts) > 1 and not self._is_structure

    def blocks(self, places: Sequence[int], elements: Sequence[int]) -> list[int]:
        """The index of the block that each hit is in."""
        if self._only is not None:
            return [self._only] * max(len(places), len(elements))
        if not (elements or self._is_written or is_json(self._form)):
            return []
        numbers = elements or [bisect_right(self._starts, start) - 1 for start in places]
        return [self._indexes[number] for number in numbers]

    def path(self, inner: str) -> dict[str, str]:
        """The path of a string for proxy_read, where an index would be taken for the one of a text."""
        if self._only is None or not by_index(inner):
            return {}
        return {"path": f"[{self._indexes.index(self._only)}]{inner}"}

    def positions(self, places: Sequence[int]) -> list[int]:
        """The characters before each hit in the text as it came; none of one that was searched otherwise."""
        if self._is_structure or self._opened.document.json or not self._is_written:
            return []
        lengths = [length(self._opened.texts[index]) + 1 for index in self._indexes]
        before = list(accumulate(lengths, initial=0))
        found = []
        for start in places:
            number = bisect_right(self._starts, start) - 1
            index = self._indexes[number]
            text = self._opened.texts[index]
            if text is self._opened.tight[index]:
                found.append(before[number] + _characters_before(text, start - self._starts[number]))
        return found


def _element_starts(array: Content) -> Iterator[int]:
    """Where each element of a JSON array begins; between two of them are only a comma and white space."""
    position = 0
    for element in _elements.decode(array):
        position = array.find(bytes(element), position)
        yield position
        position += len(memoryview(element))


def _characters_before(text: Content, position: int) -> int:
    return sum(
        characters(text[start : min(start + _WINDOW, position)]) for start in range(0, position, _WINDOW)
    )
