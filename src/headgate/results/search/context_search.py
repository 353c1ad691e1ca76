"""Search that shows the paragraph, section, sentence, lines or JSON object around each hit."""

from collections import deque
from collections.abc import Iterator
from itertools import count, islice, takewhile
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from headgate.results.content import Content, character_count, first_characters, is_json
from headgate.results.jobs import SearchMode, SearchParams
from headgate.results.json_paths import decode_container_or_none, join_paths
from headgate.results.pipeline import ProcessorResult, processed
from headgate.results.regex import RegexPattern, compile_pattern_for_json
from headgate.results.search.context_passages import ContextPassage, context_passages
from headgate.results.search.json_matches import (
    MAX_DEPTH,
    JsonAssembler,
    JsonContainer,
    JsonMatch,
    JsonMatcher,
    JsonMatchFinder,
    MatchContainer,
    TruncatedString,
    keys_and_values,
    path_of,
    string_matches,
    top_level_index,
)
from headgate.results.search.match_page import MatchCounter, Span, window_widths
from headgate.results.search.matching_lines import line_numbers
from headgate.results.truncation import fair_shares

_MOST_SHOWN = 5
# More hits are never read, and each costs a scan of its context.
_MOST_FOUND = 1_000
# A shorter passage says nothing.
_FEWEST_CHARACTERS = 200
# Lines of context around a hit in a long string: about as much as of a long line of text.
_PART_LINES = 4
_BETWEEN = b"\n--\n"


def search_context(content: Content, params: SearchParams) -> ProcessorResult:
    """The context of the first hits, as far as it fits. Raises ProcessingError for a bad pattern."""
    pattern = compile_pattern_for_json(
        params.pattern, case_insensitive=params.case_insensitive, multiline=params.multiline
    )
    most = min(params.max_results or _MOST_SHOWN, max(params.room // _FEWEST_CHARACTERS, 1))
    params = msgspec.structs.replace(params, max_results=most)
    return (_search_json if is_json(content) else _search_text)(content, pattern, params)


def _search_text(content: Content, pattern: RegexPattern, params: SearchParams) -> ProcessorResult:
    page = _PassagePage(content, params)
    # So that later pages can be reached.
    most = pattern.max_hits + min(max(params.offset, 0), pattern.max_hits)
    every, counter = _hits(content, pattern), count()
    hits = (hit for hit, _ in zip(islice(every, most), counter, strict=False))
    for passage in context_passages(content, hits, params, _limit(content, pattern, params)):
        if not page.add(passage):
            break
    # The others are only counted.
    deque(hits, maxlen=0)
    total = next(counter)
    at_least = total == most and next(every, None) is not None
    return processed(content, page.text(), page.metadata(total, at_least=at_least), places=page.places)


def _hits(content: Content, pattern: RegexPattern) -> Iterator[Span]:
    size = len(content)
    hits = pattern.find_hits(content) if pattern.multiline else pattern.find_hits_in_line(content, 0, size)
    # After the last character there is nothing to show.
    return takewhile(lambda hit: hit[0] < size, hits)


class _PassagePage:
    """The passages of one page, and the number of hits before and on it."""

    def __init__(self, content: Content, params: SearchParams) -> None:
        self._content = content
        self._params = params
        self._offset = max(params.offset, 0)
        self._left = params.room
        self._passages: list[ContextPassage] = []
        # Hits up to the end of the last added or skipped passage.
        self._seen = 0
        self._cut = 0
        self._firsts: list[int] = []
        self.places: list[int] = []

    def add(self, passage: ContextPassage) -> bool:
        """Add the passage; false if the page ends before it."""
        hits = len(passage.hits)
        if self._seen + hits <= self._offset:
            self._seen += hits
            return True
        last = self._passages[-1] if self._passages else None
        # Nothing lies between the previous passage and this one.
        joins = last is not None and passage.start <= last.end + 1
        size = character_count(passage.text(self._content))
        size += 1 if joins else len(_BETWEEN) if self._passages else 0
        if self._hits_shown >= (self._params.max_results or _MOST_SHOWN) or (last and size > self._left):
            return False
        self._left -= size
        self._seen += hits
        self._cut += hits if passage.cut_before or passage.cut_after else 0
        self._firsts.append(passage.hits[0])
        self.places += passage.hits
        if last is not None and joins:
            together = last.hits + passage.hits
            self._passages[-1] = ContextPassage(
                last.start, passage.end, together, last.cut_before, passage.cut_after
            )
        else:
            self._passages.append(passage)
        return True

    @property
    def _hits_shown(self) -> int:
        return max(self._seen - self._offset, 0)

    def text(self) -> bytes:
        made = _BETWEEN.join(passage.text(self._content) for passage in self._passages)
        return first_characters(made, self._params.room)

    def metadata(self, total: int, *, at_least: bool) -> dict[str, Any]:
        facts: dict[str, Any] = {"mode": "context", "matches": total, "shown": self._hits_shown}
        if at_least:
            facts["at_least"] = True
        if self._passages and (self._seen < total or at_least):
            facts["next_offset"] = self._seen
        facts["context_type"] = self._params.context_type.value
        numbers = line_numbers(self._content, self._firsts)
        if numbers:
            facts["lines"] = numbers
        if self._cut:
            facts["cut"] = self._cut
        return facts


def _limit(content: Content, pattern: RegexPattern, params: SearchParams) -> int:
    """The most characters of one passage, so that a first page holds as many passages as it may.

    The same for every page, so that each page continues where the last one ended.
    """
    found = context_passages(content, _hits(content, pattern), params, params.room)
    first = list(islice(found, params.max_results))
    room = params.room - len(_BETWEEN) * max(len(first) - 1, 0)
    sizes = [character_count(passage.text(content)) for passage in first]
    return params.room if sum(sizes) <= room else max(fair_shares(sizes, room))


def _search_json(content: Content, pattern: RegexPattern, params: SearchParams) -> ProcessorResult:
    counter = MatchCounter(SearchMode.CONTEXT, params, most=_MOST_FOUND)
    matcher = JsonMatcher(pattern, content)
    found: list[tuple[bytes, Raw]] = []
    elements: list[int] = []
    room = params.room - len("[]")
    parts = 0
    for place in counter.page(_values_around_hits(content, matcher, params)):
        path = msgspec.json.encode(place.path)
        around = character_count(path) + len('{"path":,"value":},')
        # A part of each value must fit too.
        if counter.record_fit(around + len("null") * (len(found) + 1) <= room):
            found.append((path, place.value))
            elements.append(place.element)
            parts += place.is_part
            room -= around
        elif not found:
            counter.skip()
    limits = fair_shares([len(value) for _, value in found], room)
    objects = [
        b'{"path":%b,"value":%b}' % (path, _value_or_matches(value, matcher, limit))
        for (path, value), limit in zip(found, limits, strict=True)
    ]
    cut = max(parts, sum(len(value) > limit for (_, value), limit in zip(found, limits, strict=True)))
    facts = counter.metadata({"cut": cut} if cut else {})
    return processed(content, b"[%b]" % b",".join(objects), facts, elements=elements)


def _value_or_matches(value: Raw, matcher: JsonMatcher, room: int) -> bytes:
    first, size = memoryview(value)[0], len(value)
    if size <= room:
        return bytes(value)
    if first not in b'{["':
        return b"null"
    # A string is assembled as the only element of an array.
    is_string = first == ord('"')
    assembly = JsonAssembler(is_object=first == ord("{"), room=room + len("[]") * is_string)
    for match in _matches_in(value, matcher, room):
        if not assembly.add(match) and not match.too_large:
            break
    return (assembly.json()[1:-1] or b"null") if is_string else assembly.json()


def _matches_in(value: Raw, matcher: JsonMatcher, room: int) -> Iterator[JsonMatch]:
    if memoryview(value)[0] != ord('"'):
        return JsonMatchFinder(matcher, room).find(value)
    container = MatchContainer(is_object=False)
    parts = string_matches(value, matcher.pattern)
    return (JsonMatch(container, None, value, 0, part=part) for part in parts)


class _ShownValue(NamedTuple):
    """A value that is shown for one hit or more, its path, and the outermost element that contains it."""

    path: str
    element: int
    value: Raw
    # Whether it is only a part of a string.
    is_part: bool = False


def _values_around_hits(
    content: Content, matcher: JsonMatcher, params: SearchParams
) -> Iterator[_ShownValue]:
    """The value to show for each hit; in a value that fits on no page every hit counts by itself."""
    for place in _enclosing_objects(content, matcher):
        findings: list[JsonMatch] = []
        if len(place.value) > params.room:
            findings = list(islice(_matches_in(place.value, matcher, params.room), _MOST_FOUND))
        if len(findings) < 2 or _fit(place, findings, params.room):
            yield place
        else:
            yield from (_part(place, finding, params) for finding in findings)


def _fit(place: _ShownValue, findings: list[JsonMatch], room: int) -> bool:
    around = len(place.path) + len('[{"path":"","value":}]')
    assembly = JsonAssembler(is_object=memoryview(place.value)[0] == ord("{"), room=room - around)
    return all(map(assembly.add, findings))


def _part(place: _ShownValue, finding: JsonMatch, params: SearchParams) -> _ShownValue:
    """The part around one hit, where the whole value has more hits than fit on a page."""
    is_string = memoryview(place.value)[0] == ord('"')
    path = place.path if is_string else join_paths(place.path, finding.path)
    element = place.element if place.path else finding.element
    if finding.part is None:
        return _ShownValue(path, element, finding.value)
    width = window_widths(params.room, params.before or _PART_LINES, params.after or _PART_LINES)
    shown = TruncatedString(finding.part.text).with_hit(finding.part, width)
    return _ShownValue(path, element, Raw(shown.json()), is_part=True)


def _enclosing_objects(content: Content, matcher: JsonMatcher) -> Iterator[_ShownValue]:
    """The smallest object around each hit, once; a value outside of any object stands for itself."""
    decoded = decode_container_or_none(content)
    if decoded is None:
        return
    whole = _ShownValue("", 0, Raw(memoryview(content))) if isinstance(decoded, dict) else None
    yielded: dict[int, _ShownValue] = {}
    for place in _innermost(decoded, MatchContainer(isinstance(decoded, dict)), whole, matcher):
        if id(place) not in yielded:
            # Kept alive, so that no other one gets the same id.
            yielded[id(place)] = place
            yield place


def _innermost(
    decoded: JsonContainer, container: MatchContainer, around: _ShownValue | None, matcher: JsonMatcher
) -> Iterator[_ShownValue]:
    keys, values = keys_and_values(decoded)
    for index in matcher.indexes(decoded):
        key, value = keys[index] if keys else None, values[index]
        inner = decode_container_or_none(value) if container.depth < MAX_DEPTH else None
        place, inside = around, False
        if place is None or isinstance(inner, dict):
            place = _ShownValue(path_of(container, key, index), top_level_index(container, index), value)
        if inner is not None and not (key is not None and matcher.in_key(key)):
            deeper = container.child(inner, key, index)
            for found in _innermost(inner, deeper, place if isinstance(inner, dict) else around, matcher):
                inside = True
                yield found
        if not inside:
            yield place
