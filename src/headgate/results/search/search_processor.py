"""Search by regular expression, without ANSI control sequences, and dispatch of the other search modes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headgate.results.content import (
    Content,
    MemoryScratch,
    Scratch,
    aligned_windows,
    character_count,
    first_byte,
    is_json,
)
from headgate.results.jobs import SearchMode, SearchParams
from headgate.results.pipeline import Processor, ProcessorResult, processed
from headgate.results.regex import RegexPattern, compile_pattern_for_json
from headgate.results.search.context_search import ContextProcessor
from headgate.results.search.json_assembly import JsonAssembler
from headgate.results.search.json_matches import LONGEST_STRING_BYTES, JsonMatch, JsonMatcher, JsonMatchFinder
from headgate.results.search.match_page import MatchCounter, window_widths
from headgate.results.search.matching_lines import (
    MatchingLines,
    MatchingLinesPage,
    line_numbers,
    matching_lines,
    with_next,
)
from headgate.results.search.ranked_search import Bm25Processor, FuzzyProcessor
from headgate.results.search.structure_search import StructureProcessor

# How many line numbers the metadata lists.
_MOST_NUMBERS = 20
# How many paths of matches that do not fit are listed.
_MOST_PATHS = 3
_LONGEST_PATH = 100


class SearchProcessor:
    """Searches by regular expression, and dispatches the other modes."""

    name = "search"

    def __init__(
        self, others: Mapping[SearchMode, Processor] | None = None, scratch: Scratch | None = None
    ) -> None:
        """`scratch` keeps a large content without its control sequences."""
        self._modes = _default_modes() if others is None else others
        self._scratch = scratch or MemoryScratch()

    def process(self, content: Content, params: SearchParams) -> ProcessorResult:
        """The matches that fit. Raises ProcessingError for an invalid pattern."""
        if mentions_ansi(params.pattern):
            return self._search(content, params)
        plain = ContentWithoutAnsi(content, self._scratch)
        result = self._search(plain.content, params)
        if plain.content is content:
            return result
        return msgspec.structs.replace(
            result, original_size=len(content), places=plain.original_positions(result.places)
        )

    def _search(self, content: Content, params: SearchParams) -> ProcessorResult:
        if params.mode is not SearchMode.REGEX:
            return self._modes[params.mode].process(content, params)
        pattern = compile_pattern_for_json(
            params.pattern, case_insensitive=params.case_insensitive, multiline=params.multiline
        )
        return (_search_json if is_json(content) else _search_text)(content, pattern, params)


def _default_modes() -> dict[SearchMode, Processor]:
    return {
        SearchMode.BM25: Bm25Processor(),
        SearchMode.FUZZY: FuzzyProcessor(),
        SearchMode.CONTEXT: ContextProcessor(),
        SearchMode.STRUCTURE: StructureProcessor(),
    }


def _search_text(content: Content, pattern: RegexPattern, params: SearchParams) -> ProcessorResult:
    page = MatchingLinesPage(content, before=params.before, after=params.after, room=params.room)
    counter = MatchCounter(SearchMode.REGEX, params, most=pattern.max_hits)
    shown: list[MatchingLines] = []
    found = with_next(matching_lines(content, pattern, window_widths(params.room).line))
    for lines, following in counter.count(found):
        if counter.is_on_page and counter.record_fit(page.add(lines, following)):
            shown.append(lines)
    starts = dict.fromkeys(lines.start for lines in shown)
    numbers = line_numbers(content, list(starts)[:_MOST_NUMBERS])
    facts: dict[str, Any] = {"lines": numbers} if numbers else {}
    if page.cut:
        facts["cut"] = page.cut
    return processed(content, page.text(), counter.metadata(facts), places=[lines.hit[0] for lines in shown])


def _search_json(content: Content, pattern: RegexPattern, params: SearchParams) -> ProcessorResult:
    is_object = first_byte(content) == b"{"
    assembly = JsonAssembler(is_object=is_object, room=params.room, before=params.before, after=params.after)
    counter = MatchCounter(SearchMode.REGEX, params, most=pattern.max_hits)
    too_large, shown = list[str](), list[JsonMatch]()
    for finding in counter.count(JsonMatchFinder(JsonMatcher(pattern, content), params.room).find(content)):
        if not counter.is_on_page:
            continue
        if counter.record_fit(assembly.add(finding)):
            shown.append(finding)
        elif finding.too_large or not counter.shown:
            # It fits on no page, so the search continues after it.
            counter.skip()
            too_large.append(finding.path)
    facts = _paths_too_large(too_large) | _truncated_string_facts(shown)
    elements = [finding.element for finding in shown]
    return processed(content, assembly.json(), counter.metadata(facts), elements=elements)


def _paths_too_large(paths: list[str]) -> dict[str, str]:
    """How to read matches that were not shown."""
    # A longer one would be truncated in the note.
    named = [path for path in paths if len(path) <= _LONGEST_PATH][:_MOST_PATHS]
    if not named:
        return {}
    return {"go_on": f"what matches is too large to show: proxy_read with path {', '.join(named)}"}


def _truncated_string_facts(shown: list[JsonMatch]) -> dict[str, Any]:
    """The number of matches in truncated strings, and the positions of those in the first string."""
    cut = [(finding, finding.part) for finding in shown if finding.part is not None]
    if not cut:
        return {}
    first = cut[0][0]
    facts: dict[str, Any] = {"cut": len(cut)}
    if len(first.path) > _LONGEST_PATH or len(first.value) > LONGEST_STRING_BYTES:
        return facts
    same = [part for finding, part in cut if finding.path == first.path][:_MOST_NUMBERS]
    positions = [character_count(part.text[: part.hit[0]]) for part in same]
    return {**facts, "path": first.path, "positions": positions}


_WINDOW = 4 * 1024 * 1024
# Colours and cursor moves, links and titles, and every single character after an escape.
_RAW = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[()*+][0-9A-Za-z]|[@-Z\\-_=>])"
)
# The same in a JSON string. An escaped backslash is consumed, so that what follows it is no escape.
_ESCAPED = re.compile(rb"(\\\\)|\\u001[bB](?:\[[0-?]*[ -/]*[@-~]|[()*+][0-9A-Za-z])")
_IN_PATTERN = ("\x1b", "\\x1b", "\\x{1b}", "\\x{001b}", "\\033")


def mentions_ansi(pattern: str) -> bool:
    """Whether the pattern itself is about control sequences."""
    low = pattern.lower()
    return any(spelling in low for spelling in _IN_PATTERN)


class ContentWithoutAnsi:
    """A content without control sequences, which maps its positions back to the original."""

    def __init__(self, given: Content, scratch: Scratch) -> None:
        self._given = given
        self._expression = _expression(given)
        self.content = given if self._expression is None else _strip(given, self._expression, scratch)

    def original_positions(self, places: Sequence[int]) -> list[int]:
        """The positions in the original content."""
        if self._expression is None:
            return list(places)
        found, removed = dict[int, int](), 0
        codes = _sequence_spans(self._given, self._expression)
        code = next(codes, None)
        for place in sorted(places):
            while code is not None and code[0] - removed <= place:
                removed += code[1] - code[0]
                code = next(codes, None)
            found[place] = place + removed
        return [found[place] for place in places]


def _expression(content: Content) -> "re.Pattern[bytes] | None":
    if content.find(b"\x1b") >= 0:
        return _RAW
    # In JSON and JSON Lines. In other text it is source code that writes them.
    is_escaped = first_byte(content) in (b"{", b"[") and content.find(b"\\u001") >= 0
    return _ESCAPED if is_escaped else None


def _strip(content: Content, expression: "re.Pattern[bytes]", scratch: Scratch) -> Content:
    if len(content) <= _WINDOW:
        return _remove_sequences(content[:], expression)
    # No sequence spans a line end or a comma.
    windows = aligned_windows(content, _WINDOW, b"\n", b",")
    return scratch.store(_remove_sequences(window, expression) for window in windows)


def _remove_sequences(data: bytes, expression: "re.Pattern[bytes]") -> bytes:
    return expression.sub(rb"\1" if expression.groups else b"", data)


def _sequence_spans(content: Content, expression: "re.Pattern[bytes]") -> Iterator[tuple[int, int]]:
    return (found.span() for found in expression.finditer(content) if not (found.re.groups and found[1]))
