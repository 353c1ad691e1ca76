"""Searches a result in its JSON and in its text, and locates each hit by block and character offset."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Raw

from headgate.results.content import Content, Scratch, character_count, is_json
from headgate.results.embedded_json import MainJson, decode_json_strings
from headgate.results.jobs import ReadJob, SearchMode, SearchParams
from headgate.results.json_paths import resolve_path
from headgate.results.parsed_result import ParsedResult, content_length, starts_with_index
from headgate.results.pipeline import ProcessorResult
from headgate.results.search.search_processor import SearchProcessor
from headgate.results.text_stream import json_lines

SearchRun = Callable[[Content], ProcessorResult]


def search_forms(
    run: SearchRun, content: Content, main: MainJson | None, search: SearchParams, scratch: Scratch
) -> tuple[ProcessorResult, Content]:
    """What `run` finds: in the JSON first, with its strings opened, then in the content as it is written.

    Nothing is lost by it: a pattern may match signs of a string as they are written, or the text around.
    The second of the two is the form of the content that it was found in.
    """
    first: tuple[ProcessorResult, Content] | None = None
    for form in _forms(content if main is None else main.content, content, scratch):
        made = run(form)
        if made.error is not None or made.metadata["search"]["matches"]:
            if main is not None and form is not content:
                made = _with_matches_around(made, main, search)
            return made, form
        first = first or (made, form)
    return first or (run(content), content)


def _forms(json: Content, content: Content, scratch: Scratch) -> Iterator[Content]:
    if is_json(json) or json_lines(json) is not None:
        unfolded = decode_json_strings(json, scratch)
        yield unfolded
        if unfolded is not json:
            yield json
        if json is content:
            return
    yield content


def _with_matches_around(made: ProcessorResult, main: MainJson, search: SearchParams) -> ProcessorResult:
    """The result, with the number of matches in the text around the JSON, which it does not show."""
    if made.error is not None or search.mode is not SearchMode.REGEX or not main.around.strip():
        return made
    beside = SearchProcessor().process(main.around, search).metadata["matches"]
    if not beside:
        return made
    reason = f"{beside:,} more in the text around the JSON: proxy_read shows it with unit lines"
    found = {**made.metadata["search"], "reason": reason}
    return msgspec.structs.replace(made, metadata={**made.metadata, "search": found})


_MOST_POSITIONS = 20
_WINDOW = 1024 * 1024
_elements = msgspec.json.Decoder(list[Raw])


def hit_locations(
    made: ProcessorResult, form: Content, parsed: ParsedResult, job: ReadJob, *, is_written: bool
) -> dict[str, Any]:
    """What is added to what is said of a search in `form`; `made` is what came of it.

    `is_written` tells whether the form is the content as it is, or JSON that was found in it.
    """
    search_facts = made.metadata.get("search", {})
    if job.search is None or job.projection is not None:
        return {}
    if job.path:
        return _below_path(made, form if is_written else b"", parsed, job) if search_facts.get("cut") else {}
    texts = _SearchedTexts(parsed, form, is_written=is_written)
    facts: dict[str, Any] = {}
    if texts.are_several:
        blocks = texts.blocks(made.places, made.elements)
        facts = {"blocks": blocks} if blocks else {}
    if search_facts.get("cut") and made.places:
        positions = texts.positions(made.places[:_MOST_POSITIONS])
        facts |= {"positions": positions} if positions else {}
    return facts | texts.path(str(search_facts.get("path", "")))


def _below_path(made: ProcessorResult, text: Content, parsed: ParsedResult, job: ReadJob) -> dict[str, Any]:
    """Where a cut string is, as a path in the whole; nothing if the search path is no single place."""
    search_facts = made.metadata["search"]
    where = resolve_path(parsed.content_for_paths(job.path), job.path, parsed.scratch)
    if where.gathered:
        return {"path": "", "positions": []}
    if "path" in search_facts:
        return {"path": _join_paths(where.path, str(search_facts["path"]))}
    places = made.places[:_MOST_POSITIONS]
    if not places or not text or is_json(text):
        return {}
    return {"path": where.path, "positions": [_characters_before(text, start) for start in places]}


def _join_paths(above: str, below: str) -> str:
    return above + (below if below.startswith("[") or not above else f".{below}")


class _SearchedTexts:
    """The texts of a result as they stand in what is searched."""

    def __init__(self, parsed: ParsedResult, form: Content, *, is_written: bool) -> None:
        self._parsed = parsed
        self._form = form
        self._is_written = is_written
        self._is_structure = parsed.text_is_summary or not parsed.texts
        self._indexes = list(parsed.compact_texts)

    @cached_property
    def _starts(self) -> list[int]:
        if not self._is_written:
            return list(_element_starts(self._form))
        # Behind a bracket, and a sign between two of them.
        first = 1 if self._parsed.document.json and self.are_several else 0
        texts = self._parsed.compact_texts.values()
        return list(accumulate((len(text) + 1 for text in texts), initial=first))[:-1]

    @property
    def _only(self) -> int | None:
        """The block that has all the JSON that was searched, if it is one of several."""
        main = None if self._is_written else self._parsed.main
        return None if main is None else main.block

    @property
    def are_several(self) -> bool:
        """Whether it is more than one."""
        return len(self._parsed.texts) > 1 and not self._is_structure

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
        if self._only is None or not starts_with_index(inner):
            return {}
        return {"path": f"[{self._indexes.index(self._only)}]{inner}"}

    def positions(self, places: Sequence[int]) -> list[int]:
        """The characters before each hit in the text as it came; none of one that was searched otherwise."""
        if self._is_structure or self._parsed.document.json or not self._is_written:
            return []
        lengths = [content_length(self._parsed.texts[index]) + 1 for index in self._indexes]
        before = list(accumulate(lengths, initial=0))
        found = []
        for start in places:
            number = bisect_right(self._starts, start) - 1
            index = self._indexes[number]
            text = self._parsed.texts[index]
            if text is self._parsed.compact_texts[index]:
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
        character_count(text[start : min(start + _WINDOW, position)]) for start in range(0, position, _WINDOW)
    )
