"""Search: the lines of a text, or the parts of a JSON document, that a regular expression matches."""

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.responses.content import Content, InMemory, Scratch, characters, first_sign, is_json
from headgate.responses.params import Search, SearchMode
from headgate.responses.patterns import Pattern, compiled_for_json
from headgate.responses.processing import Processor, ProcessorResult, done
from headgate.responses.processors.ranking.bm25 import Bm25Processor
from headgate.responses.processors.ranking.fuzzy import FuzzyProcessor
from headgate.responses.processors.search.assembly import Assembly
from headgate.responses.processors.search.context import ContextProcessor
from headgate.responses.processors.search.control_sequences import PlainContent, mentions_controls
from headgate.responses.processors.search.findings import Finding, Findings
from headgate.responses.processors.search.hit_lines import (
    HitLines,
    LinesPage,
    followed,
    hit_lines,
    line_numbers,
)
from headgate.responses.processors.search.matching import Matcher
from headgate.responses.processors.search.strings import LONGEST_STRING_BYTES
from headgate.responses.processors.search.structure import StructureProcessor
from headgate.responses.processors.search.tally import Tally
from headgate.responses.processors.windows import widths

# Of so many lines the numbers are told.
_MOST_NUMBERS = 20
# Of what is too large to show so many paths are told.
_MOST_PATHS = 3
_LONGEST_PATH = 100


class GrepProcessor:
    """Searches by regular expression, and hands every other way of searching to the one that knows it."""

    name = "search"

    def __init__(
        self, others: Mapping[SearchMode, Processor] | None = None, scratch: Scratch | None = None
    ) -> None:
        """`scratch` keeps a large content without its control sequences."""
        self._others = _others() if others is None else others
        self._scratch = scratch or InMemory()

    def process(self, content: Content, params: Search) -> ProcessorResult:
        """What matches, as much of it as there is room for. Raises Refused for a pattern that is none."""
        if mentions_controls(params.pattern):
            return self._searched(content, params)
        plain = PlainContent(content, self._scratch)
        result = self._searched(plain.content, params)
        if plain.content is content:
            return result
        return msgspec.structs.replace(
            result, original_size=len(content), places=plain.given_places(result.places)
        )

    def _searched(self, content: Content, params: Search) -> ProcessorResult:
        if params.mode is not SearchMode.REGEX:
            return self._others[params.mode].process(content, params)
        pattern = compiled_for_json(
            params.pattern, case_insensitive=params.case_insensitive, multiline=params.multiline
        )
        return (_in_json if is_json(content) else _in_text)(content, pattern, params)


def _others() -> dict[SearchMode, Processor]:
    return {
        SearchMode.BM25: Bm25Processor(),
        SearchMode.FUZZY: FuzzyProcessor(),
        SearchMode.CONTEXT: ContextProcessor(),
        SearchMode.STRUCTURE: StructureProcessor(),
    }


def _in_text(content: Content, pattern: Pattern, params: Search) -> ProcessorResult:
    page = LinesPage(content, before=params.before, after=params.after, room=params.room)
    tally = Tally(SearchMode.REGEX, params, most=pattern.most_hits)
    shown: list[HitLines] = []
    found = followed(hit_lines(content, pattern, widths(params.room).line))
    for lines, following in tally.counted(found):
        if tally.wanted and tally.tried(page.add(lines, following)):
            shown.append(lines)
    starts = dict.fromkeys(lines.start for lines in shown)
    numbers = line_numbers(content, list(starts)[:_MOST_NUMBERS])
    facts: dict[str, Any] = {"lines": numbers} if numbers else {}
    if page.cut:
        facts["cut"] = page.cut
    return done(content, page.text(), tally.metadata(facts), places=[lines.hit[0] for lines in shown])


def _in_json(content: Content, pattern: Pattern, params: Search) -> ProcessorResult:
    is_object = first_sign(content) == b"{"
    assembly = Assembly(is_object=is_object, room=params.room, before=params.before, after=params.after)
    tally = Tally(SearchMode.REGEX, params, most=pattern.most_hits)
    too_large, shown = list[str](), list[Finding]()
    for finding in tally.counted(Findings(Matcher(pattern, content), params.room).of(content)):
        if not tally.wanted:
            continue
        if tally.tried(assembly.add(finding)):
            shown.append(finding)
        elif finding.too_large or not tally.shown:
            # It fits no page, so that the search must go on behind it.
            tally.pass_over()
            too_large.append(finding.path)
    facts = _pointed_to(too_large) | _cut_strings(shown)
    elements = [finding.element for finding in shown]
    return done(content, assembly.json(), tally.metadata(facts), elements=elements)


def _pointed_to(paths: list[str]) -> dict[str, str]:
    """How to read what matches and was not shown."""
    # A longer one would be cut in the note.
    named = [path for path in paths if len(path) <= _LONGEST_PATH][:_MOST_PATHS]
    if not named:
        return {}
    return {"go_on": f"what matches is too large to show: proxy_read with path {', '.join(named)}"}


def _cut_strings(shown: list[Finding]) -> dict[str, Any]:
    """How many matches are shown without the whole of the string that they are in, and where the first is."""
    cut = [(finding, finding.part) for finding in shown if finding.part is not None]
    if not cut:
        return {}
    first = cut[0][0]
    facts: dict[str, Any] = {"cut": len(cut)}
    if len(first.path) > _LONGEST_PATH or len(first.value) > LONGEST_STRING_BYTES:
        return facts
    same = [part for finding, part in cut if finding.path == first.path][:_MOST_NUMBERS]
    positions = [characters(part.text[: part.hit[0]]) for part in same]
    return {**facts, "path": first.path, "positions": positions}
