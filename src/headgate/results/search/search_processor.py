"""The search processor: its modes, search by regular expression, and removal of ANSI control sequences."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from headgate.results.pipeline import ProcessorResult, processed
from headgate.results.regex import RegexPattern, compile_pattern_for_json
from headgate.results.search.context_search import search_context
from headgate.results.search.json_matches import (
    LONGEST_STRING_BYTES,
    JsonAssembler,
    JsonMatch,
    JsonMatcher,
    JsonMatchFinder,
)
from headgate.results.search.match_page import MatchCounter, window_widths
from headgate.results.search.matching_lines import (
    MatchingLines,
    MatchingLinesPage,
    line_numbers,
    matching_lines,
    with_next,
)
from headgate.results.search.ranked_search import search_bm25, search_fuzzy
from headgate.results.search.structure_search import search_structure

# How many line numbers the metadata lists.
_MOST_NUMBERS = 20
# How many paths of matches that do not fit are listed.
_MOST_PATHS = 3
_LONGEST_PATH = 100

SearchFunction = Callable[[Content, SearchParams], ProcessorResult]


class SearchProcessor:
    """Searches in one of the modes, without ANSI control sequences."""

    name = "search"

    def __init__(
        self, modes: Mapping[SearchMode, SearchFunction] | None = None, scratch: Scratch | None = None
    ) -> None:
        """`scratch` keeps a large content without its control sequences."""
        self._modes = _MODES if modes is None else modes
        self._scratch = scratch or MemoryScratch()

    def process(self, content: Content, params: SearchParams) -> ProcessorResult:
        """The matches that fit. Raises ProcessingError for an invalid pattern."""
        search = self._modes[params.mode]
        sequences = None if mentions_ansi(params.pattern) else _sequence_pattern(content)
        if sequences is None:
            return search(content, params)
        result = search(_strip(content, sequences, self._scratch), params)
        places = _original_positions(content, sequences, result.places)
        return msgspec.structs.replace(result, original_size=len(content), places=places)


def search_regex(content: Content, params: SearchParams) -> ProcessorResult:
    """The matching lines, or the matching elements and members of JSON. Raises ProcessingError."""
    pattern = compile_pattern_for_json(
        params.pattern, case_insensitive=params.case_insensitive, multiline=params.multiline
    )
    return (_search_json if is_json(content) else _search_text)(content, pattern, params)


_MODES: Mapping[SearchMode, SearchFunction] = {
    SearchMode.REGEX: search_regex,
    SearchMode.BM25: search_bm25,
    SearchMode.FUZZY: search_fuzzy,
    SearchMode.CONTEXT: search_context,
    SearchMode.STRUCTURE: search_structure,
}


def _search_text(content: Content, pattern: RegexPattern, params: SearchParams) -> ProcessorResult:
    page = MatchingLinesPage(content, before=params.before, after=params.after, room=params.room)
    counter = MatchCounter(SearchMode.REGEX, params, most=pattern.max_hits)
    shown: list[MatchingLines] = []
    found = with_next(matching_lines(content, pattern, window_widths(params.room).line))
    for lines, following in counter.page(found):
        if counter.record_fit(page.add(lines, following)):
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
    for finding in counter.page(JsonMatchFinder(JsonMatcher(pattern, content), params.room).find(content)):
        if counter.record_fit(assembly.add(finding)):
            shown.append(finding)
        elif finding.too_large or not counter.shown:
            # It fits on no page, so the search continues after it.
            counter.skip()
            too_large.append(finding.path)
    # A longer path would be truncated in the note.
    named = [path for path in too_large if len(path) <= _LONGEST_PATH][:_MOST_PATHS]
    facts = _truncated_string_facts(shown)
    if named:
        facts["go_on"] = f"what matches is too large to show: proxy_read with path {', '.join(named)}"
    elements = [finding.element for finding in shown]
    return processed(content, assembly.json(), counter.metadata(facts), elements=elements)


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


def _sequence_pattern(content: Content) -> "re.Pattern[bytes] | None":
    """The pattern of the control sequences of a content; None where it has none."""
    if content.find(b"\x1b") >= 0:
        return _RAW
    # In JSON and JSON Lines. In other text it is source code that writes them.
    is_escaped = first_byte(content) in (b"{", b"[") and content.find(b"\\u001") >= 0
    return _ESCAPED if is_escaped else None


def _strip(content: Content, sequences: "re.Pattern[bytes]", scratch: Scratch) -> Content:
    remove = partial(sequences.sub, rb"\1" if sequences.groups else b"")
    if len(content) <= _WINDOW:
        return remove(content[:])
    # No sequence spans a line end or a comma.
    return scratch.store(map(remove, aligned_windows(content, _WINDOW, b"\n", b",")))


def _original_positions(content: Content, sequences: "re.Pattern[bytes]", places: Sequence[int]) -> list[int]:
    """Positions in the content for positions in what `_strip` leaves of it."""
    spans = (found.span() for found in sequences.finditer(content) if not (sequences.groups and found[1]))
    found, removed = dict[int, int](), 0
    span = next(spans, None)
    for place in sorted(places):
        while span is not None and span[0] - removed <= place:
            removed += span[1] - span[0]
            span = next(spans, None)
        found[place] = place + removed
    return [found[place] for place in places]
